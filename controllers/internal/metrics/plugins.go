// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// The states of declared plugins. A plugin may have several of them at the same time.
const (
	// ReadyPlugin means that all reachable virtual nodes run the active revision.
	ReadyPlugin = "Ready"
	// NotReadyPlugin means that some reachable virtual nodes do not run the active revision.
	NotReadyPlugin = "NotReady"
	// RefusedPlugin means that the module cannot be fetched, verified or accepted.
	RefusedPlugin = "Refused"
	// WaitingPlugin means that the candidate waits for approval.
	WaitingPlugin = "WaitingForApproval"
	// RolledBackPlugin means that the newest revision was rolled back.
	RolledBackPlugin = "RolledBack"
)

// declaredPlugins is a collector that exports the states of ReflectionPlugins.
type declaredPlugins struct {
	reader client.Reader
	active <-chan struct{}
	gauge  *prometheus.Desc
}

// RegisterPlugins exports the states of the ReflectionPlugins. reader must read from a cache. Until active is closed,
// nothing is exported, because another replica may be the leader.
func RegisterPlugins(registerer prometheus.Registerer, reader client.Reader, active <-chan struct{}) error {
	return register(registerer, &declaredPlugins{
		reader: reader, active: active,
		gauge: prometheus.NewDesc("refract_declared_plugins", "1 for each state of a declared plugin, 0 for the others.", []string{"plugin", "state"}, nil),
	})
}

// Describe sends the description of the only metric.
func (d *declaredPlugins) Describe(to chan<- *prometheus.Desc) { to <- d.gauge }

// Collect exports the states. If the cache cannot be read yet, the metric is omitted.
func (d *declaredPlugins) Collect(to chan<- prometheus.Metric) {
	select {
	case <-d.active:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	all := &plugins.ReflectionPluginList{}
	if err := d.reader.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	for i := range all.Items {
		for state, holds := range pluginStates(&all.Items[i]) {
			value := 0.0
			if holds {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(d.gauge, prometheus.GaugeValue, value, all.Items[i].Name, state)
		}
	}
}

// pluginStates returns, for each state, whether the plugin has it.
func pluginStates(p *plugins.ReflectionPlugin) map[string]bool {
	conditions := p.Status.Conditions
	isFalse := func(kind string) bool { return apimeta.IsStatusConditionFalse(conditions, kind) }
	isAccepted := apimeta.IsStatusConditionTrue(conditions, plugins.AcceptedCondition)
	isReady := apimeta.IsStatusConditionTrue(conditions, plugins.ReadyCondition)
	rehearsed := apimeta.FindStatusCondition(conditions, plugins.RehearsedCondition)
	isStopped := rehearsed != nil && rehearsed.Status == metav1.ConditionFalse
	isTriedAgain := p.Status.Source != nil && p.Status.Source.NextTry != nil
	return map[string]bool{
		ReadyPlugin:    isReady,
		NotReadyPlugin: !isReady && p.Status.ActiveRevision != "",
		// A module without a signature that is accepted nevertheless does not count as refused. The source is tried again
		// only after a refusal. The condition Accepted may then still be about the module that it had before.
		RefusedPlugin: isFalse(plugins.FetchedCondition) || isFalse(plugins.AcceptedCondition) ||
			isFalse(plugins.VerifiedCondition) && (!isAccepted || isTriedAgain),
		WaitingPlugin:    isStopped && rehearsed.Reason != string(plugins.RolledBackPlugin),
		RolledBackPlugin: isStopped && rehearsed.Reason == string(plugins.RolledBackPlugin),
	}
}
