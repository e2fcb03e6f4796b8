// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// A pod gets its namespace, UID and service account from the downward API, and uses
// them with an API server: a lease in its namespace, an owner reference to itself.
// They are therefore taken from the cluster whose API server the pod uses. The node,
// its address and resources, and the pod's address are facts of the provider and stay.
// pod, the resources of the node) is true on the provider alone, and stays.

// translates reports whether the downward API returns the consumer's
// names. This is also the case without API server support: the pod
// was created there, and its names must not depend on a credential.
func (a *access) translates() bool {
	if a.mode == remote {
		return false
	}
	if !a.downwardRead {
		a.downwardRead = true
		value := a.annotation("[" + wire.DownwardAPIAnnotation + "]")
		a.downwardRemote = value == wire.DownwardAPIRemote
		if value != "" && !a.downwardRemote {
			a.ctx.Warn("annotation ", wire.DownwardAPIAnnotation, ": ", value, " is not ", wire.DownwardAPIRemote)
		}
	}
	return !a.downwardRemote
}

// translateVariable replaces a reference to a name
// of the provider's pod by the consumer's name.
func (a *access) translateVariable(variable, source sdk.Node) {
	var value string
	switch source.String("fieldRef.fieldPath") {
	case "spec.serviceAccountName":
		value = a.serviceAccount
	case "metadata.namespace":
		if a.translates() {
			value = a.pod.Namespace()
		}
	case "metadata.uid":
		if a.translates() {
			value = a.pod.String("metadata.uid")
		}
	}
	if value != "" {
		variable.Remove("valueFrom")
		variable.SetString("value", value)
	}
}

// translateItems does the same for the files of a
// volume. An item cannot have a constant value, so it
// refers to an annotation that the virtual kubelet sets.
func (a *access) translateItems(items sdk.Node) {
	for i := range items.Len("") {
		field := items.At(i).Get("fieldRef")
		switch field.String("fieldPath") {
		case "metadata.namespace":
			if a.translates() {
				field.SetString("fieldPath", "metadata.annotations['"+wire.OriginNamespaceAnnotation+"']")
			}
		case "metadata.uid":
			if a.translates() {
				field.SetString("fieldPath", "metadata.annotations['"+wire.OriginUIDAnnotation+"']")
			}
		}
	}
}
