// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// printColumns checks the columns that kubectl get shows. In the expected text, the columns of the wide output follow
// the bar.
func printColumns(t *testing.T, c discovery.DiscoveryInterface) {
	want := map[string][]string{
		"authentication.liqo.io/v1beta1/renews":           {"Name", "Age"},
		"authentication.liqo.io/v1beta1/resourceslices":   {"Name", "Authentication", "Resources", "Age"},
		"authentication.liqo.io/v1beta1/tenants":          {"Name", "Condition", "Age"},
		"core.liqo.io/v1beta1/foreignclusters":            {"Name", "Role", "Age", "|ClusterID"},
		"offloading.liqo.io/v1beta1/virtualnodes":         {"Name", "ClusterID", "Create Node", "Age", "|VirtualKubelet", "|Node"},
		"offloading.liqo.io/v1beta1/namespaceoffloadings": {"Name", "NamespaceMappingStrategy", "PodOffloadingStrategy", "OffloadingPhase", "|RemoteNamespaceName", "Age"},
		"offloading.liqo.io/v1beta1/namespacemaps":        {"Name", "Local", "Age"},
		"offloading.liqo.io/v1beta1/shadowpods":           {"Name", "Status", "Age"},
		"offloading.liqo.io/v1beta1/shadowendpointslices": {"Name", "Age"},
		"offloading.liqo.io/v1beta1/quotas":               {"Name", "Enforcement", "Cordoned", "Age", "|User"},
		"offloading.liqo.io/v1beta1/vkoptionstemplates":   {"Name", "Age"},
		"plugins.refract.io/v1alpha1/peernetworks":        {"Name", "Mode", "Local", "Remote", "Connected", "|Message", "Age"},
		"plugins.refract.io/v1alpha1/reflectionplugins":   {"Name", "Revision", "Version", "Kinds", "|Priority", "Nodes", "Accepted", "Ready", "Reason", "|Message", "Age"},
		"plugins.refract.io/v1alpha1/pluginrevisions":     {"Name", "Plugin", "Number", "Version", "|Source", "|SHA256", "State", "Age"},
		"plugins.refract.io/v1alpha1/pluginmodules":       {"Name", "Part", "Parts", "|SHA256", "Age"},
		"plugins.refract.io/v1alpha1/reflectedresources":  {"Name", "Version", "Policy", "Status Back", "Nodes", "Ready", "|Message", "Age"},
	}
	for path, columns := range want {
		table := &metav1.Table{}
		err := c.RESTClient().Get().AbsPath("/apis/"+path).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Into(table)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var got []string
		for _, column := range table.ColumnDefinitions {
			name := column.Name
			if column.Priority > 0 {
				name = "|" + name
			}
			got = append(got, name)
		}
		if diff := cmp.Diff(columns, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}
