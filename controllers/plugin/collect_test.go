// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// TestRunningRevisionsAreKept checks that the history limit does not delete a revision that a virtual node still runs because it
// cannot load the active one.
func TestRunningRevisionsAreKept(t *testing.T) {
	p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "strip", UID: "1"}}
	p.Spec.RevisionHistoryLimit = 1
	p.Status.ActiveRevision = "strip-5"
	isController := true
	var all []plugins.PluginRevision
	for number := int64(1); number <= 5; number++ {
		r := plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("strip-%d", number),
			OwnerReferences: []metav1.OwnerReference{{UID: p.UID, Controller: &isController}}}}
		r.Spec.Plugin, r.Spec.Number = p.Name, number
		all = append(all, r)
	}
	names := func() (names []string) {
		for _, r := range superfluous(p, all) {
			names = append(names, r.Name)
		}
		return names
	}
	assert.Equal(t, []string{"strip-3", "strip-2", "strip-1"}, names())
	all[4].Status.VirtualNodes = []plugins.VirtualNodePlugin{{Name: "milan", State: plugins.FailedPlugin, RunningRevision: "strip-2"}}
	assert.Equal(t, []string{"strip-3", "strip-1"}, names())
}
