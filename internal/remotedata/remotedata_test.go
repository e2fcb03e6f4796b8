// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package remotedata

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

func volume(name string, policy corev1.PersistentVolumeReclaimPolicy, phase corev1.PersistentVolumePhase) Volume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeReclaimPolicy: policy, ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"},
	}, Status: corev1.PersistentVolumeStatus{Phase: phase}}
	return newVolume(pv, []string{"milan"})
}

func TestHolding(t *testing.T) {
	t.Parallel()
	retained, forgotten := volume("retained", corev1.PersistentVolumeReclaimRetain, corev1.VolumeBound), volume("forgotten", "", corev1.VolumeReleased)
	used, ending := volume("used", corev1.PersistentVolumeReclaimDelete, corev1.VolumeBound), volume("ending", corev1.PersistentVolumeReclaimDelete, corev1.VolumeReleased)
	all := Volumes{retained, forgotten, used, ending}
	assert.Equal(t, []string{"retained", "forgotten", "used"}, all.Holding(false).Names())
	assert.Equal(t, []string{"retained", "forgotten"}, all.Holding(true).Names())
	assert.Equal(t, "retained of claim shop/data (Retain), used of claim shop/data", Volumes{retained, used}.String())
	assert.True(t, Volumes{forgotten, ending}.AreReleased())
	assert.False(t, all.AreReleased())

	assert.Equal(t, "copy the data elsewhere and delete the claims, or say so", Volumes{used}.Remedy("say so"))
	assert.Contains(t, Volumes{retained, used}.Remedy("say so"), "say so; for volumes with the reclaim policy Retain, set persistentVolumeReclaimPolicy to Delete")
	many := Volumes{}
	for i := range 20 {
		many = append(many, Volume{Name: fmt.Sprint("v", i)})
	}
	assert.Equal(t, "v0, v1, v2, v3, v4, v5, v6, v7, 12 more", many.String())
}

// TestWhereTheDataIs checks the providers and namespaces of volumes. The data of a volume without a claim may be in any
// namespace. A volume of Liqo has no reflection label, so its node affinity determines the provider.
func TestWhereTheDataIs(t *testing.T) {
	t.Parallel()
	free := Volume{Name: "free", Providers: []string{"milan"}}
	all := Volumes{free, volume("shop", corev1.PersistentVolumeReclaimDelete, corev1.VolumeBound)}
	assert.Equal(t, []string{"free", "shop"}, all.In("shop").Names())
	assert.Equal(t, []string{"free"}, all.In("bank").Names())
	assert.Empty(t, all.On("turin"))

	labelled := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: wire.ReflectionLabels("rome", "milan")}}
	assert.Equal(t, []string{"milan"}, providersOf(labelled))
	of := func(provisioner string, operator corev1.NodeSelectorOperator) []string {
		expression := corev1.NodeSelectorRequirement{Key: wire.RemoteClusterIDLabel, Operator: operator, Values: []string{"milan"}}
		return providersOf(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wire.ProvisionedByAnnotation: provisioner}},
			Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{expression}}}}}}})
	}
	assert.Equal(t, []string{"milan"}, of(wire.StorageProvisioner, corev1.NodeSelectorOpIn))
	assert.Empty(t, of("example.com/disk", corev1.NodeSelectorOpIn))
	assert.Empty(t, of(wire.StorageProvisioner, corev1.NodeSelectorOpNotIn))
	assert.Empty(t, providersOf(&corev1.PersistentVolume{}))
}

func TestConfirmation(t *testing.T) {
	t.Parallel()
	with := func(value string) *offloading.NamespaceMap {
		return &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wire.DeleteDataAnnotation: value}}}
	}
	assert.True(t, IsConfirmed(&offloading.NamespaceOffloading{}, with("true")))
	assert.False(t, IsConfirmed(&offloading.NamespaceOffloading{}, with("false")))
	assert.False(t, IsConfirmed())

	assert.Equal(t, minRecheckInterval, RecheckInterval(0))
	assert.Equal(t, 5*time.Second, RecheckInterval(20*time.Second))
	assert.Equal(t, MaxRecheckInterval, RecheckInterval(time.Hour))
}
