// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package reflection reflects objects of this cluster to a provider and keeps the copies in sync.
//
// There is one engine for all kinds. A Kind defines where objects come from, how their copies are stored, and how the
// copies are written. The plugin chain with the name of the kind mutates the content. An object passes through
//
//	informer ─▶ queue ─▶ policy ─▶ document ─▶ chain ─▶ comparison ─▶ write
//
// This is also a good order for reading the code: internal/informer; internal/queue, which prioritizes objects with copies over objects to
// create; then, in internal/engine, reflector.go, process.go and reconcile.go, with ../../internal/reflectionpolicy and internal/mutation
// on the way; then internal/copies: desired.go, compare.go and write.go. internal/objects writes the statuses back; internal/failure
// decides what happens after an error; internal/content reduces cached objects to a hash; internal/settings provides the context for
// plugins; internal/statusdelay delays the writes of statuses. In internal/engine, manager.go starts everything, and lifecycle.go starts
// and stops namespaces and kinds. follow.go starts a kind in a namespace, and watches it on the provider while it has local objects or
// copies. defaults.go, in this package, lists the default kinds.
//
// For most kinds a value of the type Kind is sufficient. Kinds with special behavior also have a handler in a package
// below internal/kinds: pod; token, for the service account tokens of pods, which are requested from this cluster and
// are not objects; secret, for the Secrets with tokens if tokens cannot be requested; claim; endpointslice, because
// slices are reflected together with their Services; and event. A handler (handler.go) is called to reconcile an
// object, a namespace or everything, and uses the layers below the engine (env.go). The engine does not import the
// packages of the kinds, and these do not import each other: a handler that needs another handler declares an
// interface, and looks up the handler that implements it (engine.Peer).
//
// Both clusters are watched only in offloaded namespaces and their remote namespaces (except for the pods of the
// node, the volumes that represent volumes of the provider, and the inputs of the context): therefore memory grows
// with the number of reflected objects, and not with the size of the clusters.
//
// # What it never does
//
//   - Overwrite objects of other clients. Only copies with the labels of this pair of clusters are watched. If an
//     object with another owner has the name of a copy, this is reported on the local object, and the write is
//     retried later.
//   - Delete when in doubt. Nothing is evaluated before every relevant cache is filled. After an invalid annotation, a
//     failed plugin or a missing namespace map, the copy stays. A copy is deleted if the local object is deleted, if
//     the policy or an annotation excludes the object, or if a plugin skips it, because that is a decision and not a
//     failure. While a revision of a plugin is on probation, a copy that only the new revision skips stays
//     (internal/probation). A claim, which may contain the only copy of a user's data, is deleted only when Kubernetes
//     has released its volume under the policy Delete.
//   - Write without a difference. The mutated document is compared with the copy before an object is built from it.
//     The normalizations of the API server are remembered, so that they are not reverted (only in memory: after a
//     restart such a copy is written once), and an event that only echoes our own write is not evaluated.
//   - Spin. Keys that arrive before a namespace is ready are dropped, and all objects are enqueued when it is ready.
//     While the provider is unreachable (internal/breaker), writes fail at once. Writes and watches resume when it is
//     reachable again, without a backoff. An object is quarantined (internal/oscillation) if its copy is written back
//     and forth, or deleted, while the local object does not change. A write of this process to the local object does
//     not count as a change. Other errors are retried after 5 ms to 30 s, per object and direction: a refused update
//     does not stop the status.
//   - Rely on a watch alone. A restarted watch does not report objects that were created and deleted in the meantime,
//     so an object is enqueued again if the watch has not confirmed a write of it after 10 s
//     (internal/mutationcache).
//   - Fail an object because of one field. An immutable field of a copy stays unchanged, is reported with the remedy,
//     and does not block the other fields (internal/copies, immutable.go).
//   - Flood users with Events. The same Event about the same object is written once until its cause is resolved. All
//     Events together are limited in rate. A success causes no Event, and neither does an unreachable provider, which
//     the node reports.
//
// # Whether the provider is available
//
// The breaker and the virtual node's Ready condition (package node) answer two questions and may differ. The breaker
// tracks whether a call made now can get through. The first call, list or watch that cannot connect (refused, reset,
// lost, no route, wrong name or certificate) opens the breaker, and a successful probe of /readyz closes it. Every
// response below 500 counts as a success, because such a response concerns only the requested object. (401 and 403
// count only after some seconds: an API server that has just started denies requests that it will allow.) Waiting
// calls resume spread over up to two seconds. A call that passes its deadline opens the breaker only if a probe
// fails, too: admission may be slow for one object. The Ready condition determines whether new pods should be
// scheduled to the node. It becomes False after three lost pings of /livez in a row. The responses 401, 403 and 5xx
// count as lost pings, because pods could not run on such a provider. Calls are still made then, and each object
// shows why its call was refused.
//
// # Two ways of writing
//
// Kinds that are entirely ours (ShadowPod, ShadowEndpointSlice, the Secrets of tokens) are created and replaced.
// Kinds in which the provider also sets fields (for example the cluster IP of a Service) are written by server-side
// apply, with a hash of the applied state in an annotation. The copy is up to date if it has all desired fields, and
// the hash shows that no other fields were applied.
//
// # Events are reflected back
//
// The provider's Events about our objects are shown on the local objects. Each Event takes one write, and one write
// per 10 s while it is repeated. Warnings are written at once, and Events about normal operation at a limited rate. A
// written Event takes 200 bytes of memory, a waiting Event 3 KiB.
//
// # Several virtual kubelets
//
// A provider may have several virtual nodes. Each virtual kubelet reflects the pods of its own node. All other
// objects belong to the provider and not to a node, so only the leader reflects them (Manager.SetLeading). Events are
// shown by the virtual kubelet that reflects the object.
//
// One replica of a virtual kubelet is active. All other replicas stand by (Options.StandBy, Manager.Lead) with filled
// caches of the node's objects.
package reflection
