// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// clusterIDPath is the path of the chart value with the cluster ID, which has no default.
const clusterIDPath = "discovery.config.clusterID"

// checkDowngrade fails if the release was installed from a newer version of the chart, because the controllers of this
// version would drop unknown fields of CRDs and objects. Versions of development builds, which are not semantic, are
// not compared.
func (i *Installer) checkDowngrade(config *action.Configuration, chart *chartv2.Chart) error {
	if i.AllowDowngrade {
		return nil
	}
	history, err := listRevisions(config, i.Name)
	if err != nil || len(history) == 0 {
		return err
	}
	last := history[len(history)-1]
	if last.Chart == nil || last.Chart.Metadata == nil || chart.Metadata == nil || !isEarlier(chart.Metadata.Version, last.Chart.Metadata.Version) {
		return nil
	}
	return fmt.Errorf("release %s in namespace %s is of version %s, and this refractctl would install %s, with older CRDs: use refractctl of version %s, or set --allow-downgrade",
		i.Name, i.Namespace, last.Chart.Metadata.Version, chart.Metadata.Version, last.Chart.Metadata.Version)
}

// isEarlier reports whether own is an earlier version than other. It returns false if either of them is not a semantic
// version.
func isEarlier(own, other string) bool {
	parsed, err := version.ParseSemantic(own)
	if err != nil {
		return false
	}
	difference, err := parsed.Compare(other)
	return err == nil && difference < 0
}

// checkKeepsID fails if a release would change the ID of a cluster that has peers, because the tenant namespaces,
// credentials and remote namespaces on the peers belong to the current ID.
func (i *Installer) checkKeepsID(ctx context.Context, planned *releasev1.Release) error {
	found, err := Find(ctx, i.Client)
	if errors.Is(err, ErrNotInstalled) {
		return nil
	}
	if err != nil {
		return err
	}
	id, _, err := unstructured.NestedString(planned.Config, strings.Split(clusterIDPath, ".")...)
	if err != nil {
		return fmt.Errorf("reading %s of release %s/%s, %w", clusterIDPath, i.Namespace, i.Name, err)
	}
	if found.ClusterID == "" || id == found.ClusterID {
		return nil
	}
	peers, err := i.peerIDs(ctx)
	if err != nil || len(peers) == 0 {
		return err
	}
	return fmt.Errorf("the id of the cluster, %q, cannot be changed to %q (--cluster-id, %s) while it is joined with %s: end the peerings first, with refractctl unpeer or refractctl delete peering-user, and delete the tenant namespaces (%s=true) and ForeignClusters that are left",
		found.ClusterID, id, clusterIDPath, strings.Join(peers, ", "), wire.TenantNamespaceLabel)
}

// peerIDs returns the IDs of the clusters that have a tenant namespace or a ForeignCluster in this cluster.
func (i *Installer) peerIDs(ctx context.Context) (ids []string, err error) {
	tenants := &corev1.NamespaceList{}
	if err := i.Client.List(ctx, tenants, client.MatchingLabels{wire.TenantNamespaceLabel: "true"}); err != nil {
		return nil, fmt.Errorf("listing the tenant namespaces, %w", err)
	}
	for n := range tenants.Items {
		if tenants.Items[n].DeletionTimestamp == nil {
			ids = append(ids, peerOf(tenants.Items[n].Name))
		}
	}
	clusters := &core.ForeignClusterList{}
	if err := i.Client.List(ctx, clusters); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("listing ForeignClusters, %w", err)
	}
	for n := range clusters.Items {
		ids = append(ids, string(clusters.Items[n].Spec.ClusterID))
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
