// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The volumes of a pod: for each that is refused by default, the field that the refusal names and the limits that allow it.
func TestVolumesOfPods(t *testing.T) {
	const path = "spec.pod.volumes[0]."
	const claim = path + "ephemeral.volumeClaimTemplate.spec."
	ephemeral := func(spec string) string { return "ephemeral: {volumeClaimTemplate: {spec: {" + spec + "}}}" }
	fast := map[string]string{"storage-classes": "fast"}
	with := func(name, value string) map[string]string {
		return map[string]string{"storage-classes": "fast", name: value}
	}
	p, err := NewPolicy(Options{PodSecurity: "privileged"})
	require.NoError(t, err)
	for _, c := range []struct {
		volume  string
		refused string            // the field, with the limits "fast"
		limits  map[string]string // that allow it
	}{
		{"emptyDir: {}", "", nil},
		{"persistentVolumeClaim: {claimName: a}", "", nil},
		{"projected: {sources: []}", "", nil},
		{"image: {reference: a}", "", nil},
		{ephemeral("storageClassName: fast"), "", nil},
		{ephemeral(""), "", nil},
		{ephemeral("storageClassName: slow"), claim + "storageClassName", with("storage-classes", "slow")},
		{ephemeral(`storageClassName: ""`), claim + "storageClassName", nil},
		{ephemeral("storageClassName: fast, volumeName: backup"), claim + "volumeName", nil},
		{ephemeral("storageClassName: fast, selector: {}"), claim + "selector", nil},
		{ephemeral("storageClassName: fast, dataSource: {kind: PersistentVolumeClaim, name: a}"), claim + "dataSource", with("claim-data-sources", "true")},
		{ephemeral("storageClassName: fast, dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: shop-rome}"), claim + "dataSource", with("claim-data-sources", "true")},
		{ephemeral("storageClassName: fast, dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: kube-system}"), claim + "dataSourceRef", nil},
		{ephemeral("storageClassName: fast, volumeAttributesClassName: gold"), claim + "volumeAttributesClassName", with("volume-attributes-classes", "gold")},
		{ephemeral("storageClassName: fast, resources: {requests: {storage: 1Ti}}"), "", nil},
		{ephemeral("storageClassName: fast, resources: {requests: {storage: 1025Gi}}"), claim + "resources.requests[storage]", with("max-claim-size", "unlimited")},
	} {
		field := func(limits map[string]string) string {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome", Annotations: map[string]string{}}}
			for name, value := range limits {
				namespace.Annotations["tenants.refract.io/"+name] = value
			}
			spec := map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte("{containers: [{name: a, image: a}], volumes: [{name: v, "+c.volume+"}]}"), &spec))
			if refusal := p.CheckPod(namespace, nil, nil, spec); refusal != nil {
				return refusal.Field
			}
			return ""
		}
		assert.Equal(t, c.refused, field(fast), c.volume)
		if c.limits != nil {
			assert.Empty(t, field(c.limits), c.volume)
		}
	}
	spec := map[string]any{"volumes": []any{map[string]any{"name": "v", "ephemeral": map[string]any{"volumeClaimTemplate": map[string]any{}}}}}
	require.NotNil(t, p.CheckPod(&corev1.Namespace{}, nil, nil, spec), "the default class is allowed where no class is")
}
