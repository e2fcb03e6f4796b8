// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// daemonSet returns a DaemonSet that tolerates every taint, with the given terms in its required node affinity.
func daemonSet(namespace string, terms ...corev1.NodeSelectorTerm) *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers:  []corev1.Container{{Name: "agent", Image: "agent:1"}},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}
	if len(terms) > 0 {
		set.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	return set
}

func requiredTerms(set *appsv1.DaemonSet) []corev1.NodeSelectorTerm {
	a := set.Spec.Template.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// awaitMutation waits until the policy changes DaemonSets of the namespace.
func (h *held) awaitMutation(namespace string) {
	h.Helper()
	h.attempt("creating a DaemonSet", "", func() error {
		probe := daemonSet(namespace)
		probe.Name = "probe"
		if err := h.admin.Create(h.Context(), probe, client.DryRunAll); err != nil || requiredTerms(probe) != nil {
			return err
		}
		return errors.New("the policy has not changed it")
	})
}

// TestDaemonSetsExcludeVirtualNodes checks which DaemonSets get the affinity that excludes virtual nodes, and that a
// node still has to match one of their own terms.
func TestDaemonSetsExcludeVirtualNodes(t *testing.T) {
	h := hold(t)
	h.must(h.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "offloaded", Labels: map[string]string{wire.SchedulingEnabledLabel: "true"}}}))
	h.awaitMutation("somebody-elses")
	linux := corev1.NodeSelectorRequirement{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}
	excluded := corev1.NodeSelectorRequirement{Key: wire.TypeLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{wire.VirtualNodeType}}
	virtual := corev1.NodeSelectorRequirement{Key: wire.TypeLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{wire.VirtualNodeType}}
	byName := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}
	expressions := func(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: all}
	}
	tolerating := func(tolerations ...corev1.Toleration) *appsv1.DaemonSet {
		set := daemonSet("somebody-elses")
		set.Spec.Template.Spec.Tolerations = tolerations
		return set
	}
	podAffinity := daemonSet("somebody-elses")
	podAffinity.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}},
	}}}
	preferred := daemonSet("somebody-elses")
	preferred.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: 1, Preference: expressions(linux)},
	}}}
	empty, emptyNodes := daemonSet("somebody-elses"), daemonSet("somebody-elses")
	empty.Spec.Template.Spec.Affinity = &corev1.Affinity{}
	emptyNodes.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	many, manyExcluded := make([]corev1.NodeSelectorTerm, 20), make([]corev1.NodeSelectorTerm, 20)
	for i := range many {
		many[i], manyExcluded[i] = expressions(linux), expressions(linux, excluded)
	}
	none := excluded
	none.Values = []string{"none"}
	selected := daemonSet("somebody-elses")
	selected.Spec.Template.Spec.NodeSelector = map[string]string{wire.TypeLabel: wire.VirtualNodeType}
	for name, c := range map[string]struct {
		set  *appsv1.DaemonSet
		want []corev1.NodeSelectorTerm
	}{
		"without an affinity":        {daemonSet("somebody-elses"), []corev1.NodeSelectorTerm{expressions(excluded)}},
		"in kube-system":             {daemonSet("kube-system"), []corev1.NodeSelectorTerm{expressions(excluded)}},
		"with one to pods":           {podAffinity, []corev1.NodeSelectorTerm{expressions(excluded)}},
		"with a preferred one":       {preferred, []corev1.NodeSelectorTerm{expressions(excluded)}},
		"with two terms":             {daemonSet("somebody-elses", expressions(linux), byName), []corev1.NodeSelectorTerm{expressions(linux, excluded), {MatchFields: byName.MatchFields, MatchExpressions: []corev1.NodeSelectorRequirement{excluded}}}},
		"with twenty terms":          {daemonSet("somebody-elses", many...), manyExcluded},
		"with an empty affinity":     {empty, []corev1.NodeSelectorTerm{expressions(excluded)}},
		"with an empty one to nodes": {emptyNodes, []corev1.NodeSelectorTerm{expressions(excluded)}},
		"with a term that excludes them": {
			daemonSet("somebody-elses", expressions(linux, excluded), expressions(linux)),
			[]corev1.NodeSelectorTerm{expressions(linux, excluded), expressions(linux, excluded)},
		},
		"with a rule of its own":                      {daemonSet("somebody-elses", expressions(none)), []corev1.NodeSelectorTerm{expressions(none)}},
		"with an empty term":                          {daemonSet("somebody-elses", corev1.NodeSelectorTerm{}, expressions(linux)), []corev1.NodeSelectorTerm{{}, expressions(linux, excluded)}},
		"for virtual nodes":                           {daemonSet("somebody-elses", expressions(virtual), expressions(linux)), []corev1.NodeSelectorTerm{expressions(virtual), expressions(linux)}},
		"with a selector of them":                     {selected, nil},
		"that tolerates every taint with this effect": {tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}), []corev1.NodeSelectorTerm{expressions(excluded)}},
		"that tolerates another effect":               {tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}), nil},
		"that tolerates this taint":                   {tolerating(corev1.Toleration{Key: wire.VirtualNodeTaint, Operator: corev1.TolerationOpExists}), nil},
		"that tolerates nothing":                      {tolerating(), nil},
		"in an offloaded namespace":                   {daemonSet("offloaded"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.set.DeepCopy()
			require.NoError(t, h.admin.Create(t.Context(), c.set))
			assert.Empty(t, cmp.Diff(c.want, requiredTerms(c.set)))
			if len(c.want) > 0 && before.Spec.Template.Spec.Affinity != nil {
				assert.Equal(t, before.Spec.Template.Spec.Affinity.PodAntiAffinity, c.set.Spec.Template.Spec.Affinity.PodAntiAffinity)
			}
			// Applying the same object again changes nothing.
			again, generation := c.set.DeepCopy(), c.set.Generation
			again.Spec, again.ResourceVersion = before.Spec, "" // the control plane writes its status
			require.NoError(t, h.admin.Update(t.Context(), again))
			assert.Empty(t, cmp.Diff(c.want, requiredTerms(again)))
			assert.Equal(t, generation, again.Generation)
			require.NoError(t, h.admin.Delete(t.Context(), again))
		})
	}
}

// TestOlderDaemonSetsKeepRunning checks that a DaemonSet that predates the policy is only changed together with its
// template, because any change of the template restarts its pods.
func TestOlderDaemonSetsKeepRunning(t *testing.T) {
	h := hold(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "older", Labels: map[string]string{wire.SchedulingEnabledLabel: "true"}}}
	h.must(h.admin.Create(t.Context(), ns))
	set := daemonSet("older")
	h.must(h.admin.Create(t.Context(), set))
	require.Nil(t, requiredTerms(set))
	ns.Labels = nil
	h.must(h.admin.Update(t.Context(), ns))
	h.awaitMutation("older")
	set.Labels, set.ResourceVersion = map[string]string{"team": "a"}, ""
	h.must(h.admin.Update(t.Context(), set))
	assert.Nil(t, requiredTerms(set), "after a change outside the template")
	set.Spec.Template.Spec.Containers[0].Image, set.ResourceVersion = "agent:2", ""
	h.must(h.admin.Update(t.Context(), set))
	assert.Len(t, requiredTerms(set), 1, "after a change of the template")
}

// TestMutatingPolicyNeedsItsAPI checks that the chart installs no MutatingAdmissionPolicy if the API server does not
// serve this kind.
func TestMutatingPolicyNeedsItsAPI(t *testing.T) {
	const beta = "admissionregistration.k8s.io/v1beta1"
	for _, c := range []struct {
		version string
		apis    []string
		vals    map[string]any // the values below offloading
		want    string
	}{
		{version: "v1.30.0"},
		{version: "v1.35.4"},
		{version: "v1.35.4", apis: []string{beta + "/MutatingAdmissionPolicy"}, want: beta},
		{version: "v1.36.0-rc.1", want: "admissionregistration.k8s.io/v1"},
		{version: "v1.37.2-eks-1", apis: []string{beta + "/MutatingAdmissionPolicy"}, want: "admissionregistration.k8s.io/v1"},
		{version: "v1.36.0", vals: map[string]any{"excludeDaemonSets": false}},
		{version: "v1.36.0", vals: map[string]any{"enabled": false}},
	} {
		vals := util.CoalesceTables(values(t, "provider"), images())
		if c.vals != nil {
			vals["offloading"] = c.vals
		}
		files, err := renderFor(t, vals, common.ReleaseOptions{Name: releaseName, Namespace: releaseNamespace, IsInstall: true}, c.version, c.apis...)
		require.NoError(t, err)
		text := strings.TrimSpace(files["refract/templates/policy-daemonsets.yaml"])
		if c.want == "" {
			assert.Empty(t, text, "%+v", c)
			continue
		}
		assert.Equal(t, 2, strings.Count(text, "apiVersion: "+c.want+"\n"), "%+v", c)
	}
}
