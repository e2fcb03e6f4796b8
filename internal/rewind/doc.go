// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package rewind detects that the storage of an API server was rolled back, for example when etcd was restored from a
// backup.
//
// A watch continues from a resource version. After a rollback, the versions known to clients are in the future of the
// storage: the API server accepts such a watch and sends neither events nor an error until as much has been written
// as was lost. Caches then have deleted objects and miss changes. client-go does not check for this.
//
// Wrap therefore reads, before a watch is resumed, the current version of the same resource, with a list of one
// object's metadata. If that is older, the watch fails with 410 Gone: the client lists again, as for a compacted
// version. This works for every client created from the configuration, including informers of any library, and costs
// one small request each time a watch is resumed, every few minutes.
//
// A backup so recent that its versions have been caught up with before the watch is resumed is not detected.
// Kubernetes recommends restoring with etcdutl's --bump-revision and --mark-compacted, which avoids this case.
package rewind
