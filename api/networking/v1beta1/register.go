// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "networking.liqo.io", Version: "v1beta1"}

// The kinds of this package.
const (
	ConfigurationKind           = "Configuration"
	ConnectionKind              = "Connection"
	GatewayServerKind           = "GatewayServer"
	GatewayClientKind           = "GatewayClient"
	PublicKeyKind               = "PublicKey"
	WgGatewayServerTemplateKind = "WgGatewayServerTemplate"
	WgGatewayClientTemplateKind = "WgGatewayClientTemplate"
)

// AddToScheme registers the kinds of this package with s. It never fails; the error is for runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Configuration{}, &ConfigurationList{}, &Connection{}, &ConnectionList{},
		&GatewayServer{}, &GatewayServerList{}, &GatewayClient{}, &GatewayClientList{}, &PublicKey{}, &PublicKeyList{},
		&WgGatewayServerTemplate{}, &WgGatewayServerTemplateList{}, &WgGatewayClientTemplate{}, &WgGatewayClientTemplateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
