// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/cmd/refractctl/cli/peerings"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// liqoInstall contains the flags of install that set values of the chart. All except --network are flags of liqoctl.
type liqoInstall struct {
	apiServer                                string
	metrics                                  bool
	clusterLabels, globalLabels, annotations map[string]string
	pods, services, reserved                 []string
	network                                  string
}

func (l *liqoInstall) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&l.apiServer, "api-server-url", "", "address at which consumers that run Liqo reach the API server of this cluster (apiServer.address)")
	flags.StringVar(&l.network, "network", "", "what connects the pods of this cluster with those of its peers: gateway (runs gateways and their agents, networking.gateways.enabled), reachable (an existing network) or none (shows no addresses, networking.reflectIPs)")
	flags.BoolVar(&l.metrics, "enable-metrics", false, "export metrics (metrics.enabled)")
	flags.StringToStringVar(&l.clusterLabels, "cluster-labels", nil, "labels that this cluster offers for its virtual nodes, as KEY=VALUE (discovery.config.clusterLabels)")
	flags.StringToStringVar(&l.globalLabels, "global-labels", nil, "labels of all objects of the chart, as KEY=VALUE (common.globalLabels)")
	flags.StringToStringVar(&l.annotations, "global-annotations", nil, "annotations of all objects of the chart, as KEY=VALUE (common.globalAnnotations)")
	flags.StringSliceVar(&l.pods, "pod-cidr", nil, "range of the pods of this cluster, if nodes do not say it (tenants.ownCIDRs)")
	flags.StringSliceVar(&l.services, "service-cidr", nil, "range of the Services of this cluster, if the API server does not say it (tenants.ownCIDRs)")
	flags.StringSliceVar(&l.reserved, "reserved-subnets", nil, "ranges that peers do not get, such as those of databases outside of this cluster (networking.addresses.reservedCIDRs; for --network=gateway)")
}

// setNetwork sets the values of the network. Values that a network does not need are reset, because those of earlier installs are
// reused.
func (l *liqoInstall) setNetwork(set map[string]any) error {
	mode, err := peerings.ParseNetwork(l.network)
	if err != nil || mode == "" {
		return err
	}
	setValue(set, mode != plugins.NoNetwork, "networking", "reflectIPs")
	setValue(set, mode == plugins.GatewayNetwork, "networking", "addresses", "enabled")
	setValue(set, mode == plugins.GatewayNetwork, "networking", "gateways", "enabled")
	return nil
}

// choosePodRoutes lets gateways read the addresses of pods where they need them to find the nodes of pods, unless the
// user has decided about it.
func (l *liqoInstall) choosePodRoutes(ctx context.Context, installer *release.Installer, set map[string]any) error {
	mode, err := peerings.ParseNetwork(l.network)
	_, isSet, _ := unstructured.NestedFieldNoCopy(set, "networking", "gateways", "podRoutes")
	if err != nil || mode != plugins.GatewayNetwork || isSet {
		return err
	}
	why, err := gateways.ExplainPodRoutes(ctx, installer.Client)
	if err != nil || why == "" {
		return err
	}
	setValue(set, true, "networking", "gateways", "podRoutes")
	installer.Progress("networking.gateways.podRoutes=true, so that gateways find the nodes of pods: " + why)
	return nil
}

// setValues sets the values of the chart for the flags that are set.
func (l *liqoInstall) setValues(set map[string]any) error {
	if l.apiServer != "" {
		setValue(set, l.apiServer, "apiServer", "address")
	}
	if err := l.setNetwork(set); err != nil {
		return err
	}
	if l.metrics {
		setValue(set, true, "metrics", "enabled")
	}
	for _, labels := range []struct {
		given map[string]string
		path  []string
	}{{l.clusterLabels, []string{"discovery", "config", "clusterLabels"}}, {l.globalLabels, []string{"common", "globalLabels"}}, {l.annotations, []string{"common", "globalAnnotations"}}} {
		for key, value := range labels.given {
			setValue(set, value, append(labels.path[:len(labels.path):len(labels.path)], key)...)
		}
	}
	var own, reserved []any
	for _, given := range []struct {
		flag  string
		texts []string
		list  *[]any
	}{{"pod-cidr", l.pods, &own}, {"service-cidr", l.services, &own}, {"reserved-subnets", l.reserved, &reserved}} {
		ranges, err := peerings.ParseRanges(given.flag, given.texts)
		if err != nil {
			return err
		}
		for _, prefix := range ranges {
			*given.list = append(*given.list, prefix.String())
		}
	}
	if len(own) > 0 {
		setValue(set, own, "tenants", "ownCIDRs")
	}
	if len(reserved) > 0 {
		setValue(set, reserved, "networking", "addresses", "reservedCIDRs")
	}
	return nil
}
