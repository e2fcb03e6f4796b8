// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package reflection reflects objects of this cluster to a provider and keeps the copies in sync.
//
// There is one engine for all kinds. A Kind defines where objects come from, how their copies are stored, and how
// they are written; the plugin chain of that name mutates the content. An object passes through
//
//	informer ─▶ queue ─▶ policy ─▶ document ─▶ chain ─▶ comparison ─▶ write
//
// This is also a good order to read the code: internal/informer; then, in internal/engine, reflector.go, process.go,
// reconcile.go, desired.go, compare.go and write.go, with internal/policy on the way. queue.go prioritizes objects
// with copies over objects to create; follow.go watches the provider while there is something to watch; digest.go
// reduces cached objects to a hash. manager.go starts everything, extension.go and scope.go do so per offloaded
// namespace, lifecycle.go for kinds added at run time; context.go has the context for plugins; statusback.go copies
// statuses back. defaults.go, here, lists the kinds.
//
// Most kinds are a Kind and no more. Kinds with a life of their own also have a handler, each in a package below
// internal/kinds: pod; token, the service-account tokens of pods, which are requested from this cluster and are not
// objects of it; secret, where pods find tokens if none can be requested; claim; endpointslice, whose objects cross
// with their Services; and event. A handler (handler.go) is called to reconcile an object, a namespace or everything,
// and uses the services of the engine (env.go, and env_*.go for each purpose). The engine does not know the kinds, and
// the kinds do not know each other: a handler that needs another one declares an interface, and looks up the peer that
// implements it.
//
// Both clusters are watched only in offloaded namespaces and their remote namespaces (except for the pods of the
// node, the volumes that represent volumes of the provider, and the inputs of the context): memory grows with the
// number of reflected objects, not with the size of the clusters.
//
// # What it never does
//
//   - Overwrite objects of others. Only copies with the labels of this pair of clusters are watched. An object with
//     another owner is found when it has the name of a copy, is reported on the local object, and is tried again
//     later.
//   - Delete on doubt. Nothing is evaluated before every relevant cache is filled. After an invalid annotation, a
//     failed plugin or a missing namespace map, the copy stays. It is deleted when the local object is deleted, when
//     the policy or an annotation excludes it, or when a plugin skips the object, which is a decision, not a failure.
//     A claim, which may have the only copy of a user's data, is deleted only when Kubernetes has released its volume
//     under the policy Delete.
//   - Write without a difference. The mutated document is compared before anything is built from it. The
//     normalizations of the API server are remembered, so that they are not reverted (by this process: after a
//     restart such a copy is written once), and an event that only echoes our own write is not evaluated.
//   - Spin. Keys that arrive before a namespace is ready are dropped, and all are enqueued then. While the provider
//     is unreachable (internal/breaker), writes fail at once, and both writes and watches resume when it is back,
//     without a backoff. An object is quarantined (internal/oscillation) if its copy is written back and forth, or
//     deleted, while the object itself does not change. A write of this process to the object is not such a change.
//     Other errors are retried after 5 ms to 30 s, per object and direction: a refused update does not stop the status.
//   - Rely on a watch alone. A restarted watch does not report objects that were created and deleted
//     in the meantime, so the object of a write that it has not confirmed after 10 s is enqueued again
//     (internal/mutationcache).
//   - Fail an object for one field. An immutable field of a copy stays unchanged, is reported with the remedy, and
//     blocks nothing else (internal/engine, immutable.go).
//   - Flood. The same Event about the same object is written once until the object is fine again; all Events together
//     are limited; success and an unreachable provider cause none (the node reports the latter).
//
// # Whether the provider is available
//
// The breaker and the virtual node's Ready condition (package node) answer two questions and may differ. The breaker
// tracks whether a call made now can get through. It is opened by the first call, list or watch that cannot connect
// (refused, reset, lost, no route, name or certificate wrong) and closed by a successful probe of /readyz: any
// response below 500, because a response is about the requested object. (401 and 403 count only after some seconds:
// an API server that has just started denies requests that it will allow.) Waiting calls resume spread over up to two
// seconds. A call that passes its deadline opens the breaker only if a probe fails, too: admission may be slow for one
// object. Ready determines whether new pods should be scheduled. It changes after three lost pings of /livez in a row,
// and 401, 403 and 5xx count as lost, because pods could not run there, although each call is still made and each
// object shows why it is refused.
//
// # Two ways of writing
//
// Kinds that are entirely ours (ShadowPod, ShadowEndpointSlice, the Secrets of tokens) are created and replaced.
// Kinds that the provider also writes (a Service's cluster IP) are applied, server-side, with a hash of the applied
// state in an annotation: the copy is up to date when it has all desired fields and the hash shows that no others
// were applied.
//
// # Events are reflected back
//
// The provider's Events about our objects are shown on the local objects. That takes one write for each Event, and
// one per 10 s while it repeats. Warnings are written at once, the others when there is time. A shown Event takes
// 200 bytes of memory; a waiting one takes 3 KiB.
//
// # Several virtual kubelets
//
// Each reflects the pods of its own node. Everything else belongs to the provider rather than to a node, and is
// reflected by the leader (Manager.SetLeading). Events are shown by the virtual kubelet that reflects the object.
//
// Of the replicas of one virtual kubelet, one is active. The others stand by (Options.StandBy, Manager.Lead) with
// filled caches of the objects of the node.
package reflection
