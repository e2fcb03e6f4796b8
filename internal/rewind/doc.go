// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package rewind detects that the storage of an API server was rolled back, for example when etcd was restored from a
// backup.
//
// A watch is resumed at a resource version. After a rollback, the versions that clients know are higher than the
// current version of the storage. The API server accepts a watch at such a version, but sends neither events nor an
// error until the storage reaches the version. Until then, caches contain deleted objects and miss changes. client-go
// does not detect this.
//
// Therefore, before a watch is resumed, this package lists the metadata of one object of the resource to read the
// current version. If it is lower than the version of the watch, the watch fails with 410 Gone, and the client lists
// all objects again, as it does after a compaction. This works for every client that is created from the configuration,
// including informers of any library. It costs one small request whenever a watch is resumed, i.e. every few minutes.
//
// The rollback is not detected if the backup was so recent that the storage has reached the version of the watch
// again before the watch is resumed. Kubernetes recommends restoring with etcdutl's --bump-revision and
// --mark-compacted, which avoids this case.
package rewind
