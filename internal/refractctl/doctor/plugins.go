// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// checkDeclaredPlugins checks that all virtual nodes run the declared plugins, and that no change of a plugin is refused
// or waits. checkDefinitions reports missing CRDs.
func (p *Examination) checkDeclaredPlugins(ctx context.Context, _ *release.Installation) error {
	all := &plugins.ReflectionPluginList{}
	if err := p.Client.List(ctx, all); err != nil {
		if meta.IsNoMatchError(err) {
			return nil
		}
		return err
	}
	for i := range all.Items {
		p.checkDeclaredPlugin(&all.Items[i])
	}
	return nil
}

// checkDeclaredPlugin reports the conditions of a declared plugin that are not as they should be. An active revision
// that does not run is an error, because its objects may be held. All else leaves what is active as it is.
func (p *Examination) checkDeclaredPlugin(declared *plugins.ReflectionPlugin) {
	subject, status := "ReflectionPlugin "+declared.Name, &declared.Status
	ready := meta.FindStatusCondition(status.Conditions, plugins.ReadyCondition)
	if ready == nil {
		p.addFinding(subject, Warning, "no controller has seen it: set plugins.enabled in the values of the chart, and see whether the controller manager runs")
		return
	}
	before := len(p.found)
	for _, step := range []string{plugins.FetchedCondition, plugins.VerifiedCondition, plugins.AcceptedCondition, plugins.RehearsedCondition} {
		if c := meta.FindStatusCondition(status.Conditions, step); c != nil && c.Status == metav1.ConditionFalse {
			p.addFinding(subject, Warning, "%s is False, %s: %s", step, c.Reason, c.Message)
		}
	}
	switch {
	case status.ActiveRevision != "" && ready.Status != metav1.ConditionTrue:
		p.addFinding(subject, Error, "not ready: %s, %s; see refractctl plugin status %s", ready.Reason, ready.Message, declared.Name)
	case status.ActiveRevision == "" && len(p.found) == before:
		p.addFinding(subject, Warning, "no revision is active: %s, %s; see refractctl plugin status %s", ready.Reason, ready.Message, declared.Name)
	case len(p.found) == before:
		p.addFinding(subject, OK, "revision %s is active on %s virtual nodes", status.ActiveRevision, status.Nodes)
	}
}
