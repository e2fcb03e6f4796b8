// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package coverage

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/plugins"
)

// policyKind is the name that plugins use for the kind NetworkPolicy.
const policyKind = "NetworkPolicy." + networkingv1.GroupName

// untranslatedPolicies returns a gap for each policy that the default plugin rejects, and for each of its warnings. It
// does not check whether the addresses in them can be remapped, because only virtual kubelets have the mapping.
func (p *provider) untranslatedPolicies(ctx context.Context, namespace string, policies []networkingv1.NetworkPolicy) (gaps []string, err error) {
	h, err := host.New(ctx, host.NewConfig())
	if err != nil {
		return nil, fmt.Errorf("starting the plugin host, %w", err)
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
	name, module := plugins.Default(policyKind)
	plugin, err := h.Load(ctx, name, module, host.PluginConfig{})
	if err != nil {
		return nil, fmt.Errorf("loading plugin %s, %w", name, err)
	}
	chain, err := host.NewChain(host.Outgoing, host.DefaultGuard(policyKind), plugin)
	if err != nil {
		return nil, fmt.Errorf("running plugin %s, %w", name, err)
	}
	root := p.pluginContext(namespace)
	for i := range policies {
		subject := fmt.Sprintf("cluster %s: NetworkPolicy %s/%s", p.id, namespace, policies[i].Name)
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&policies[i])
		if err != nil {
			return nil, fmt.Errorf("reading NetworkPolicy %s/%s, %w", namespace, policies[i].Name, err)
		}
		object["apiVersion"], object["kind"] = networkingv1.SchemeGroupVersion.String(), "NetworkPolicy"
		doc := document.New()
		doc.Reset(object)
		outcome, err := chain.Run(ctx, doc, &host.Env{Context: root, RemapIP: func(ip string) (string, bool) { return ip, true }})
		if err != nil {
			gaps = append(gaps, fmt.Sprintf("%s is not reflected: %v", subject, err))
			continue
		}
		for _, warning := range outcome.Warnings {
			gaps = append(gaps, subject+": "+warning.Message)
		}
	}
	return gaps, nil
}

// pluginContext returns the part of the plugin's input that describes the two clusters.
func (p *provider) pluginContext(namespace string) map[string]any {
	namespaces := map[string]any{}
	for local, remote := range p.namespaces {
		namespaces[local] = remote
	}
	return map[string]any{
		"hook": host.Outgoing.String(), "remoteClusterID": p.id, "localNamespace": namespace, "remoteNamespace": p.remote,
		"namespaces": namespaces, "offloadingPatch": map[string]any{"labelsNotReflected": p.labelsNotReflected()},
	}
}

// labelsNotReflected returns the label keys that are excluded from reflection on at least one of the provider's virtual
// nodes.
func (p *provider) labelsNotReflected() []any {
	keys := []any{}
	for i := range p.nodes {
		for _, patch := range []*offloading.OffloadingPatch{p.nodes[i].Spec.OffloadingPatch, p.nodes[i].Status.EffectiveOffloadingPatch} {
			if patch == nil {
				continue
			}
			for _, key := range patch.LabelsNotReflected {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
