// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// gateway is a GatewayServer or a GatewayClient. Exactly one of them is set.
type gateway struct {
	server *api.GatewayServer
	client *api.GatewayClient
}

func (g gateway) object() client.Object {
	if g.server != nil {
		return g.server
	}
	return g.client
}

func (g gateway) kind() string {
	if g.server != nil {
		return api.GatewayServerKind
	}
	return api.GatewayClientKind
}

// String returns the kind and the name, for messages.
func (g gateway) String() string { return g.kind() + " " + g.object().GetName() }

// objectName returns the name of the objects that belong to the gateway.
func (g gateway) objectName() string { return wire.GatewayObjectName(g.object().GetName()) }

func (g gateway) peer() string { return g.object().GetLabels()[wire.RemoteClusterIDLabel] }

// templateRef returns the reference to the template, its field in the spec, and the kind that the template must have.
func (g gateway) templateRef() (reference corev1.ObjectReference, field, kind string) {
	if g.server != nil {
		return g.server.Spec.ServerTemplateRef, "spec.serverTemplateRef", api.WgGatewayServerTemplateKind
	}
	return g.client.Spec.ClientTemplateRef, "spec.clientTemplateRef", api.WgGatewayClientTemplateKind
}

// secretName returns the name of the Secret with the keys in use, and whether the spec names it.
func (g gateway) secretName() (name string, isGiven bool) {
	primary, isGiven := g.primarySecret()
	if used := g.secretRef(); !isGiven && used != nil && used.Name == g.alternateSecret() {
		return used.Name, false
	}
	return primary, isGiven
}

// primarySecret returns the name of the Secret with the first keys of the gateway, and whether the spec names it.
func (g gateway) primarySecret() (name string, isGiven bool) {
	given := ""
	if g.server != nil {
		given = g.server.Spec.SecretRef.Name
	} else {
		given = g.client.Spec.SecretRef.Name
	}
	return cmp.Or(given, g.objectName()), given != ""
}

func (g gateway) alternateSecret() string { return wire.AlternateKeysName(g.object().GetName()) }

// unusedSecret returns the name of the Secret, of the two that the gateway alternates between, that is not in use.
func (g gateway) unusedSecret() string {
	if used, _ := g.secretName(); used == g.alternateSecret() {
		return g.objectName()
	}
	return g.alternateSecret()
}

// secretRef returns the Secret that the status names, or nil.
func (g gateway) secretRef() *corev1.ObjectReference {
	if g.server != nil {
		return g.server.Status.SecretRef
	}
	return g.client.Status.SecretRef
}

// hasKeys reports whether the status names a Secret.
func (g gateway) hasKeys() bool { return g.secretRef() != nil }

// port returns the UDP port of the tunnel. A client has none, because it starts the connection.
func (g gateway) port() int32 {
	if g.server != nil {
		return g.server.Spec.Endpoint.Port
	}
	return 0
}

// ownerReference returns the reference of objects that are deleted with the gateway. Without blockOwnerDeletion, no permission to
// update the finalizers of the gateway is needed.
func (g gateway) ownerReference() metav1.OwnerReference {
	isController := true
	return metav1.OwnerReference{APIVersion: api.GroupVersion.String(), Kind: g.kind(), Name: g.object().GetName(),
		UID: g.object().GetUID(), Controller: &isController}
}

// metadata returns the metadata of an object that belongs to the gateway.
func (g gateway) metadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: g.object().GetNamespace(), Name: name, Labels: g.labels(), OwnerReferences: []metav1.OwnerReference{g.ownerReference()},
	}
}

// selector returns the labels of the pods of the gateway.
func (g gateway) selector() map[string]string {
	return map[string]string{
		wire.GatewayComponentLabel: wire.GatewayComponent, wire.GatewayNameLabel: g.object().GetName(),
		wire.GatewayNamespaceLabel: g.object().GetNamespace(),
	}
}

// labels returns the labels of objects that belong to the gateway.
func (g gateway) labels() map[string]string {
	return map[string]string{wire.RemoteClusterIDLabel: g.peer(), wire.ComponentLabel: wire.GatewayComponent}
}

// comparePrecedence orders gateways: first the gateways that already have keys, then by age. Gateways that were created
// in the same second are ordered by kind and name.
func comparePrecedence(a, b gateway) int {
	if a.hasKeys() != b.hasKeys() {
		if a.hasKeys() {
			return -1
		}
		return 1
	}
	return cmp.Or(a.object().GetCreationTimestamp().Compare(b.object().GetCreationTimestamp().Time),
		cmp.Compare(a.kind(), b.kind()), cmp.Compare(a.object().GetName(), b.object().GetName()))
}
