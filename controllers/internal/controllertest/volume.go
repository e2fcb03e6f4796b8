// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// BoundClaim creates a claim with data on a provider, and the volume that represents the data, as a virtual kubelet
// would. Both are deleted after the test.
func (c *Cluster) BoundClaim(t *testing.T, provider, namespace string, policy corev1.PersistentVolumeReclaimPolicy) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	t.Helper()
	size, modes := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(wire.DefaultStorageClass), AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	c.Create(t, claim)
	here := corev1.NodeSelectorRequirement{Key: wire.RemoteClusterIDLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{provider}}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + string(claim.UID), Labels: wire.ReflectionLabels(c.ID, provider), Annotations: map[string]string{wire.ProvisionedByAnnotation: wire.StorageProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: wire.DefaultStorageClass, AccessModes: modes, Capacity: size, PersistentVolumeReclaimPolicy: policy,
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{here}}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/liqo-placeholder"}},
		},
	}
	c.Create(t, volume)
	t.Cleanup(func() {
		c.Release(t, claim)
		c.Release(t, volume)
	})
	c.awaitPhase(t, volume, corev1.VolumeBound)
	return claim, volume
}

// Release deletes an object and removes its finalizers. It may be called after the test's context is done.
func (c *Cluster) Release(t *testing.T, object client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	err := c.Client.Delete(ctx, object)
	if err == nil {
		err = c.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	assert.NoErrorf(t, client.IgnoreNotFound(err), "releasing %T %s", object, client.ObjectKeyFromObject(object))
}

// ReleaseVolume deletes a claim and waits until Kubernetes has released its volume.
func (c *Cluster) ReleaseVolume(t *testing.T, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	t.Helper()
	require.NoError(t, c.Client.Delete(t.Context(), claim))
	c.awaitPhase(t, volume, corev1.VolumeReleased)
}

func (c *Cluster) awaitPhase(t *testing.T, volume *corev1.PersistentVolume, want corev1.PersistentVolumePhase) {
	t.Helper()
	Eventually(t, fmt.Sprintf("volume %s to be %s", volume.Name, want), func() error {
		c.Get(t, volume, "", volume.Name)
		if volume.Status.Phase != want {
			return fmt.Errorf("it is %s", volume.Status.Phase)
		}
		return nil
	})
}
