// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// A pod gets its namespace, UID and service account from the downward API, and uses them in requests to an API server,
// for example for a lease in its namespace or an owner reference to itself. Therefore these values must come from the
// cluster whose API server the pod uses. All other values (the name, address and resources of the node, and the
// addresses of the pod) always come from the provider.

// translates reports whether the downward API returns the consumer's names. It also does if the pod uses no API server,
// because the pod was created on the consumer, and its names must not depend on its credentials.
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

// translateVariable replaces an environment variable's reference to a name of the provider's pod with the consumer's
// name.
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

// translateItems replaces references to names of the provider's pod in the files of a volume. A file cannot have a
// constant value, so it refers to an annotation that the virtual kubelet sets.
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
