// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
)

// example returns the objects that the chart creates with the values of one cluster in examples/gitops, and the
// objects in the other files of this cluster.
func example(t *testing.T, cluster, beside string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../examples/gitops", cluster, "values.yaml"))
	require.NoError(t, err)
	vals := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict(text, &vals))
	found := map[string]bool{}
	manifests, err := os.ReadFile(filepath.Join("../examples/gitops", cluster, beside))
	require.NoError(t, err)
	for _, object := range append(objects(t, vals), decode(t, beside, string(manifests))...) {
		key := object.GetNamespace() + "/" + object.GetName()
		switch object := object.(type) {
		case *corev1.Namespace:
			found["namespace "+object.Name] = object.Labels["liqo.io/tenant-namespace"] == "true"
		case *corev1.ServiceAccount:
			found["account "+key] = true
		case *offloadingv1beta1.Quota, *offloadingv1beta1.VirtualNode, *offloadingv1beta1.NamespaceOffloading, *appsv1.Deployment:
			found[key] = true
		case *rbacv1.RoleBinding:
			for _, subject := range object.Subjects {
				found["bound "+subject.Namespace+"/"+subject.Name] = true
			}
		}
	}
	return found
}

// TestGitOpsExample checks that the two clusters in examples/gitops match: the provider binds the ServiceAccount with
// which the consumer authenticates.
func TestGitOpsExample(t *testing.T) {
	milan := example(t, "milan", "consumer-rome.yaml")
	rome := example(t, "rome", "provider-milan.yaml")
	assert.True(t, milan["namespace liqo-tenant-rome"])
	assert.True(t, milan["account liqo-tenant-rome/refract-consumer"])
	assert.True(t, milan["bound liqo-tenant-rome/refract-consumer"])
	assert.True(t, milan["liqo-tenant-rome/rome"], "the Quota")
	assert.True(t, rome["namespace liqo-tenant-milan"])
	assert.True(t, rome["liqo-tenant-milan/milan"], "the VirtualNode")
	assert.True(t, rome["shop/offloading"])
}
