// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
)

// selector implements host.Selector for the field match of a revision.
type selector struct {
	namespaces *Namespaces
	namespace  labels.Selector // nil selects all namespaces
	object     labels.Selector // nil selects all objects

	decided sync.Map // whether a namespace is selected: *namespaceDecision by its name
}

// namespaceDecision records whether a namespace with these labels is selected. Labels are replaced, never modified.
type namespaceDecision struct {
	labels   *namespaceLabels
	selected bool
}

// selectors contains the selectors in use. Equal selectors are shared, because a plugin with another selector is
// another entry of its chains. It is safe for concurrent use.
type selectors struct {
	namespaces *Namespaces

	mu         sync.Mutex
	used, next map[string]*selector // key: the JSON of the field match
}

// renew removes the selectors that have not been shared since the last call.
func (s *selectors) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.next = s.next, map[string]*selector{}
	var ofNamespaces []labels.Selector
	for _, each := range s.used {
		if each.namespace != nil {
			ofNamespaces = append(ofNamespaces, each.namespace)
		}
	}
	s.namespaces.selectors.Store(&ofNamespaces)
}

// share returns the selector of a revision, or nil if it selects everything. Providers are not part of the selector.
func (s *selectors) share(match *plugins.PluginMatch) (host.Selector, error) {
	if match == nil || match.NamespaceSelector == nil && match.ObjectSelector == nil {
		return nil, nil
	}
	key, err := json.Marshal(match)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	made := cmp.Or(s.next[string(key)], s.used[string(key)])
	if made == nil {
		if made, err = newSelector(s.namespaces, match); err != nil {
			return nil, err
		}
	}
	s.next[string(key)] = made
	return made, nil
}

func newSelector(namespaces *Namespaces, match *plugins.PluginMatch) (*selector, error) {
	made := &selector{namespaces: namespaces}
	for _, part := range []struct {
		field  string
		given  *metav1.LabelSelector
		parsed *labels.Selector
	}{{"namespaceSelector", match.NamespaceSelector, &made.namespace}, {"objectSelector", match.ObjectSelector, &made.object}} {
		if part.given == nil {
			continue
		}
		parsed, err := metav1.LabelSelectorAsSelector(part.given)
		if err != nil {
			return nil, fmt.Errorf("match.%s: %w", part.field, err)
		}
		if !parsed.Empty() {
			*part.parsed = parsed
		}
	}
	return made, nil
}

// Selects implements host.Selector.
func (s *selector) Selects(env *host.Env) (bool, error) {
	return s.selects(env.Namespace, env.ObjectLabels)
}

// selects reports whether an object of the namespace is selected. It calls objectLabels only if the plugin selects by
// the labels of objects.
func (s *selector) selects(namespace string, objectLabels func() host.Labels) (bool, error) {
	if s.object != nil && !s.object.Matches(objectLabels()) {
		return false, nil
	}
	if s.namespace == nil {
		return true, nil
	}
	return s.selectsNamespace(namespace)
}

// selectsNamespace returns an error as long as the labels of the namespace are not known.
func (s *selector) selectsNamespace(name string) (bool, error) {
	known := s.namespaces.lookup(name)
	if known == nil {
		return false, fmt.Errorf("the labels of namespace %s are not known yet%s", name, s.namespaces.obstacle())
	}
	if decided, ok := s.decided.Load(name); ok {
		if d := decided.(*namespaceDecision); d.labels == known {
			return d.selected, nil
		}
	}
	d := &namespaceDecision{known, s.namespace.Matches(known.set)}
	s.decided.Store(name, d)
	return d.selected, nil
}
