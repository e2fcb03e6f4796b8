// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
)

// countingSelector counts how often labels are matched.
type countingSelector struct {
	labels.Selector
	matched int
}

func (c *countingSelector) Matches(l labels.Labels) bool {
	c.matched++
	return c.Selector.Matches(l)
}

// labelSelector returns a selector of the label tier.
func labelSelector(tier string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}
}

// namespaceOf returns a namespace with the label tier, as the watch reports it.
func namespaceOf(name, tier string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier}}}
}

// TestNamespaceMatchesAreRemembered checks that the labels of a namespace are matched once, and again only after they
// have changed. A change to another plugin must not drop the results. A change of the selector must drop them.
func TestNamespaceMatchesAreRemembered(t *testing.T) {
	namespaces := newNamespaces(nil)
	all := selectors{namespaces: namespaces, next: map[string]*selector{}}
	share := func(tier string) *selector {
		t.Helper()
		made, err := all.share(&plugins.PluginMatch{NamespaceSelector: labelSelector(tier)})
		require.NoError(t, err)
		all.renew()
		return made.(*selector)
	}
	s := share("web")
	counting := &countingSelector{Selector: s.namespace}
	s.namespace = counting
	env := &host.Env{Namespace: "shop"}
	check := func(selected bool, matched int) {
		t.Helper()
		for range 100 {
			got, err := s.Selects(env)
			require.NoError(t, err)
			require.Equal(t, selected, got)
		}
		require.Equal(t, matched, counting.matched)
	}
	_, err := s.Selects(env)
	require.ErrorContains(t, err, "the labels of namespace shop are not known yet")
	used := namespaces.selectors.Swap(nil) // the watch matches changed labels, too, to find out whether anything changes
	namespaces.learn(namespaceOf("shop", "web"))
	check(true, 1)
	namespaces.learn(namespaceOf("shop", "web")) // reported again
	check(true, 1)
	namespaces.learn(namespaceOf("shop", "db"))
	check(false, 2)
	namespaces.forget(namespaceOf("shop", "db"))
	_, err = s.Selects(env)
	require.Error(t, err, "a namespace that was deleted")
	namespaces.learn(namespaceOf("shop", "web"))
	check(true, 3)
	namespaces.selectors.Store(used)

	// The chains change, and the selector of the plugin does not.
	require.Same(t, s, share("web"))
	check(true, 3)
	other := share("db")
	require.NotSame(t, s, other)
	got, err := other.Selects(env)
	require.NoError(t, err)
	require.False(t, got, "what was remembered for another selector")
}

// TestLabelsOfObjectsAreReadIfNeeded checks that the labels of objects are read only for a plugin that selects by them.
func TestLabelsOfObjectsAreReadIfNeeded(t *testing.T) {
	namespaces := newNamespaces(nil)
	namespaces.learn(namespaceOf("shop", "web"))
	all, untiered := &metav1.LabelSelector{}, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	for name, c := range map[string]struct {
		match plugins.PluginMatch
		reads int
	}{
		"namespaceSelector":                       {plugins.PluginMatch{NamespaceSelector: labelSelector("web")}, 0},
		"namespaceSelector, empty objectSelector": {plugins.PluginMatch{NamespaceSelector: labelSelector("web"), ObjectSelector: all}, 0},
		"empty objectSelector":                    {plugins.PluginMatch{ObjectSelector: all}, 0},
		"objectSelector":                          {plugins.PluginMatch{ObjectSelector: untiered}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSelector(namespaces, &c.match)
			require.NoError(t, err)
			reads := 0
			selected, err := s.selects("shop", func() host.Labels { reads++; return host.Labels{} })
			require.NoError(t, err)
			assert.True(t, selected)
			assert.Equal(t, c.reads, reads)
		})
	}
	used := selectors{namespaces: namespaces, next: map[string]*selector{}}
	for _, match := range []*plugins.PluginMatch{nil, {}, {Providers: []string{"milan"}}} {
		s, err := used.share(match)
		require.NoError(t, err)
		assert.Nil(t, s, "a plugin for all objects has a selector, so its chains are selective")
	}
}

// TestSelectionDoesNotAllocate checks that a selection by remembered namespaces and by labels of objects allocates
// nothing.
func TestSelectionDoesNotAllocate(t *testing.T) {
	namespaces := newNamespaces(nil)
	namespaces.learn(namespaceOf("shop", "web"))
	env := &host.Env{Namespace: "shop"}
	for name, match := range map[string]plugins.PluginMatch{
		"namespaces":             {NamespaceSelector: labelSelector("web")},
		"namespaces and objects": {NamespaceSelector: labelSelector("web"), ObjectSelector: labelSelector("web")},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSelector(namespaces, &match)
			require.NoError(t, err)
			assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = s.Selects(env) }))
		})
	}
}
