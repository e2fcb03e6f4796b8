// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// renewal describes how credentials are renewed. The text remedy is for credentials that have expired or expire soon,
// and the text outlook is for credentials that are still valid.
type renewal struct{ remedy, outlook string }

// renewalOf returns how the credentials are renewed. It returns the zero value if the origin of the credentials is not
// known.
func renewalOf(vn *offloading.VirtualNode, secret *corev1.Secret, config *rest.Config) renewal {
	events := fmt.Sprintf("; the Events CredentialsNotRenewed of VirtualNode %s/%s say why the controller manager has not", vn.Namespace, vn.Name)
	const byItself = ", renewed by the controller manager before"
	if _, account := credentials.Account(config.BearerToken); account == wire.ConsumerServiceAccount {
		return renewal{remedy: events, outlook: byItself}
	}
	switch {
	case !cluster.IsOurs(secret) || len(config.CertData) == 0:
		return renewal{}
	case secret.Annotations[wire.RenewedAnnotation] == "true":
		return renewal{remedy: " --credentials=certificate" + events, outlook: byItself}
	}
	return renewal{
		remedy:  fmt.Sprintf(" --credentials=certificate; nobody else renews this certificate, unless cluster %s runs Refract with authentication.enabled when you do", vn.Spec.ClusterID),
		outlook: fmt.Sprintf(": run refractctl peer again before, nobody else renews this certificate; set authentication.enabled of the chart first if cluster %s runs Refract", vn.Spec.ClusterID),
	}
}
