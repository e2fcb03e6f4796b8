// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// copyPullSecrets copies the image pull Secrets in the templates of gateways to the namespace of the cluster's gateway. Templates of Liqo
// contain no Deployment, and name no such Secrets.
func (l *Link) copyPullSecrets(ctx context.Context, e *end, writer *cluster.Writer) error {
	template := &api.WgGatewayServerTemplate{}
	key := client.ObjectKey{Namespace: e.Installation.Namespace, Name: ServerTemplate}
	if err := e.Client.Get(ctx, key, template); err != nil {
		return fmt.Errorf("cluster %s: getting the template %s of gateways, %w", e.Name, key, err)
	}
	deployment := &appsv1.Deployment{}
	if template.Spec.ObjectKind.Kind != deploymentKind || json.Unmarshal(template.Spec.Template.Raw, deployment) != nil {
		return nil // a malformed template has an Event of its gateway
	}
	names := sets.New[string]()
	for _, reference := range deployment.Spec.Template.Spec.ImagePullSecrets {
		names.Insert(reference.Name)
	}
	originals, err := e.FindPullSecrets(ctx, names, l.Reporter)
	if err != nil {
		return err
	}
	return writer.Apply(ctx, cluster.CopyPullSecrets(e.namespace(), originals)...)
}
