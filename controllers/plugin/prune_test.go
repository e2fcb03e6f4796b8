// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/plugin"
)

// TestEntriesOfGoneNodesAreRemoved checks that the entries of virtual nodes that no longer exist are removed, that the
// entries of other virtual nodes stay, whether these have a Node, a Node that has lost its label, or only a
// VirtualNode, and that the condition Ready follows from the remaining entries.
func TestEntriesOfGoneNodesAreRemoved(t *testing.T) {
	start(t, func(o *plugin.Options) { o.Recheck = time.Second })
	p := declare(t, assemble(t, manifest, "", hook+`(func (export "prune"))`), nil)
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	registered := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	unlabelled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "unlabelled", Labels: map[string]string{wire.TypeLabel: "other"}}}
	unregistered := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "unregistered"}}
	cluster.Create(t, unlabelled)
	t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), unlabelled) })
	cluster.Create(t, unregistered)
	await(t, p, plugins.ReadyCondition, metav1.ConditionUnknown, "NotReported")
	revision := &plugins.PluginRevision{}
	cluster.Get(t, revision, "", p.Status.ActiveRevision)
	before := revision.DeepCopy()
	for _, name := range []string{"gone", registered, "gone-too", unlabelled.Name, unregistered.Name} {
		revision.Status.VirtualNodes = append(revision.Status.VirtualNodes, plugins.VirtualNodePlugin{Name: name, State: plugins.ActivePlugin})
	}
	require.NoError(t, cluster.Client.Status().Patch(t.Context(), revision, client.MergeFrom(before)))
	controllertest.Eventually(t, "the entries to be removed", func() error {
		cluster.Get(t, revision, "", revision.Name)
		var names []string
		for _, entry := range revision.Status.VirtualNodes {
			names = append(names, entry.Name)
		}
		if !slices.Equal(names, []string{registered, unlabelled.Name, unregistered.Name}) {
			return fmt.Errorf("there are %v", names)
		}
		return nil
	})
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "Active")
	assert.Equal(t, "2/2", p.Status.Nodes, "of the virtual nodes")
	before = revision.DeepCopy()
	revision.Status.VirtualNodes[0] = plugins.VirtualNodePlugin{Name: registered, State: plugins.FailedPlugin, Reason: "DigestMismatch", Message: "altered"}
	require.NoError(t, cluster.Client.Status().Patch(t.Context(), revision, client.MergeFrom(before)))
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "Failed")
	assert.Equal(t, "1/2", p.Status.Nodes)
	assert.Contains(t, message(p, plugins.ReadyCondition), "on "+registered+": altered")
	cluster.Delete(t, unregistered)
	cluster.AwaitGone(t, unregistered) // the manager must remove the finalizer before it is stopped
}
