// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package reflection makes objects of this cluster appear on a provider and keeps them the same.
//
// There is one engine for all kinds. A Kind says where objects come from, what their copies are stored as and how they
// are written; what happens to the content on the way is up to the plugin chain of that name. An object goes
//
//	informer ─▶ queue ─▶ policy ─▶ document ─▶ chain ─▶ comparison ─▶ write
//
// and reading in that order is a good tour: internal/informer; then, in internal/engine, reflector.go, process.go, reconcile.go,
// desired.go, compare.go and write.go, with internal/policy on the way. queue.go lets what has a copy overtake what is to be
// created; follow.go watches the provider where there is something to be watched; digest.go keeps less than the whole of an object. manager.go starts everything, extension.go and scope.go
// do so per offloaded namespace, lifecycle.go for kinds that come while it runs; context.go holds what plugins see as context;
// statusback.go copies statuses back. defaults.go, here, lists the kinds.
//
// Most kinds are a Kind and no more. Those with a life of their own have a handler besides, each in a package below
// internal/kinds: pod; token, the service-account tokens of pods, which are no objects of this cluster but requested from it;
// secret, in which pods find tokens where none can be requested; claim; endpointslice, which cross as their Services do; and event. A handler (handler.go) is called to reconcile
// an object, a namespace or everything, and does it with what the engine offers (env.go). The engine does not know which kinds
// there are, and they do not know each other: what one needs of another it declares as an interface, and asks for the peer that has
// it.
//
// Both clusters are watched in offloaded namespaces and their remote namespaces alone (but for the pods of the node, the volumes that
// stand for those of the provider, and what the context is made of): memory grows with what is reflected, not with what exists.
//
// # What it never does
//
//   - Overwrite what it did not make. Only copies with the labels of this pair of clusters are watched; a foreign
//     object is found when its name is in the way, is reported on the local object, and is tried again later.
//   - Delete on doubt. Nothing is evaluated before every cache that matters is filled. An annotation that makes no
//     sense, a plugin that fails, a namespace map that is gone: the copy stays. It goes when the local object is gone,
//     when the policy or an annotation says so, or when a plugin skips the object, which is a decision, not a failure. A
//     claim, which is all there is of somebody's data, goes only when Kubernetes has released its volume under the policy
//     Delete.
//   - Write what is there already. Comparison is on the mutated document, before anything is built from it. What the API
//     server makes of a write is remembered, so that its normalisations are not fought (by this process: after a restart
//     such a copy is written once), and the event that only echoes our own write is not even evaluated.
//   - Spin. Keys that come before a namespace is ready are dropped, all are enqueued then. While the provider is
//     unreachable (internal/breaker) writes fail at once and wait, as watches do, for its return, not for a backoff. An object
//     whose copy is written back and forth, without a change of its own, is quarantined (internal/oscillation). Other errors are
//     retried after 5 ms to 30 s, each object by itself.
//   - Rely on a watch for what it may miss. When one begins again it does not report what came and went meanwhile, so a
//     write that it has not confirmed after 10 s has its object enqueued again (internal/mutationcache).
//   - Give up all for one field. What Kubernetes never lets change in a copy stays as it is, is reported with the remedy,
//     and holds up nothing else (internal/engine, immutable.go).
//   - Flood. The same Event about the same object is written once until the object is fine again; all Events together
//     are limited; success and a lost provider make none (the node says the latter).
//
// # Whether the provider is there
//
// The breaker and the virtual node's Ready condition (package node) answer two questions and may differ. The breaker asks
// whether a call made now can get through. It is opened by the first call, list or watch that finds no way (refused, reset,
// lost, no route, name or certificate wrong) and closed by a probe of /readyz that is answered: by anything below 500, for
// what an answer says concerns the object it is about. (401 and 403 count after some seconds only: an API server that has just
// started denies what it will allow.) What waited comes back spread over up to two seconds. A call that passes its deadline opens it only if a probe is not
// answered either: admission may be slow for one object. Ready asks whether new pods should come. It changes for three
// lost pings of /livez in a row, and 401, 403 and 5xx count as lost, since nothing would become of pods there, although
// each call is still made and each object shows why it is refused.
//
// # Two ways of writing
//
// Kinds that are wholly ours (ShadowPod, ShadowEndpointSlice, the Secrets of tokens) are created and replaced. Kinds to which the provider adds
// (a Service's cluster IP) are applied, server-side, with a hash of what was asked for in an annotation: the copy is
// right when it has everything we want and the hash says that we never asked for more.
//
// # Events come back
//
// What the provider's Events say of our objects there is shown on the objects here. That takes one write of each Event, and
// one per 10 s while it repeats itself. Warnings come at once, the others when there is time. Of an Event that is shown 200
// bytes are kept in memory; those that wait take 3 KiB each.
//
// # Several virtual kubelets
//
// Each reflects the pods of its own node. Everything else belongs to the provider rather than to a node, and is
// reflected by the one that leads (Manager.SetLeading). Events are shown by whoever reflects the object.
//
// Of the replicas of one virtual kubelet one works. The others stand by (Options.StandBy, Manager.Lead) with the caches of what belongs to the node.
package reflection
