// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllers lists the controllers of the controller manager; each is
// a package of its own below this one.
//
// One controller manager runs in every cluster of a peering, whatever its role.
// On a provider it enforces what consumers asked for, also while they cannot be
// reached: shadowpod makes the pods, shadowendpointslice the endpoints,
// namespacemap the namespaces they live in; nodefailure, off by default, lets the
// pods of failed nodes go; beside Liqo, resourceslice creates the Quotas of those
// whom it has accepted. On a consumer it extends
// namespaces: namespaceoffloading says where to, replicator carries that to the
// providers and brings their answers back; podscheduling, an admission webhook
// whose certificates webhookcert looks after, lets their pods onto virtual
// nodes; podstatus marks those whose virtual node is not ready;
// virtualnode drains virtual nodes, and removes them. On both sides
// foreigncluster says whether the other one can be reached. A controller whose
// objects do not occur in a cluster costs a watch that stays silent.
//
// Under which addresses other clusters are reached is Liqo's network module's to
// say, where there is one; package internal/networks follows it.
//
// They all keep to the same rules. Objects of users stay unstructured from the
// cache to the write, so that no field is lost on the way; they are decoded in
// one pass, which is why this costs little. Nothing is written that is so
// already; what is written is named one field at a time. An object that belongs
// to somebody else is left alone, and a Warning Event says so, once. What cannot
// be undone is done only when it is certain. Retries grow from 5 ms to 30 s per
// object and share no bucket; every reconciliation, API calls included, has a
// deadline; and where other clusters are asked, each has a worker of its own, so
// that one that is silent keeps no other waiting.
//
// What they do is counted from outside, in the clients and recorders that they
// are given: the objects that each enforces, its writes by kind and verb, its
// errors by class (who can do something about them) and its Warning Events by
// reason; the names of these metrics begin with refract_controller_.
package controllers
