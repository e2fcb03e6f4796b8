// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package rewind notices that the storage of an API server was set back, as etcd is when it is restored from a backup.
//
// A watch goes on from a resource version. When the storage has been set back, the versions that clients know lie in its
// future: the API server takes such a watch and says nothing, without an error, until as much has been written as was lost.
// Caches then show what is not there, and what happens is not heard. Nothing in client-go looks for it.
//
// Wrap therefore asks, before a watch that goes on, for the present version of the same resource, by a list of one object's
// metadata. When that is older, the watch is answered with 410 Gone: the client lists again, as for a version that has been
// compacted. This holds for every client made from the configuration, informers of any library included, and costs one small
// request each time a watch is resumed, every few minutes.
//
// A backup so young that the versions have been caught up with before the watch is resumed is not noticed here. Kubernetes
// advises to restore with etcdutl's --bump-revision and --mark-compacted, which leaves no such case.
package rewind
