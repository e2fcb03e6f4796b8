// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// agentsSuffix is the end of the name of the DaemonSet of agents, after the name of the release.
const agentsSuffix = "-gateway-agent"

// checkGateways checks the gateways of the cluster, the agents on its nodes, and its declared ranges.
func (p *Examination) checkGateways(ctx context.Context, installed *release.Installation) error {
	side := &cluster.Side{Cluster: &cluster.Cluster{Name: installed.ClusterID, Client: p.Client}, Installation: installed}
	states, err := gateways.List(ctx, side)
	if err != nil {
		return err
	}
	for i := range states {
		p.checkGateway(&states[i])
	}
	if len(states) == 0 {
		return nil
	}
	if err := p.checkAgents(ctx, installed); err != nil {
		return err
	}
	if err := p.checkCilium(ctx); err != nil {
		return err
	}
	if err := p.checkPodRoutes(ctx, installed); err != nil {
		return err
	}
	return p.checkDeclaredRanges(ctx)
}

// checkGateway checks the gateway to one peer.
func (p *Examination) checkGateway(s *gateways.State) {
	subject := "gateway to " + s.Peer
	available, all, _ := strings.Cut(s.Pods, "/")
	switch {
	case s.Gateway == "":
		p.addFinding(subject, Warning, "there is none, but the ranges of %s are reserved: run refractctl network connect, or refractctl network disconnect %s --release-ranges", s.Peer, s.Peer)
	case !s.IsConnected() && s.Problem != "":
		p.addFinding(subject, Error, "%s: %s", s.Gateway, s.Problem)
	case available == "0":
		p.addFinding(subject, Error, "%s: no pod is available, of %s: see kubectl -n %s describe deployment/%s and its pods",
			s.Gateway, all, wire.TenantNamespace(s.Peer), wire.GatewayObjectName(s.Peer))
	case !s.IsConnected() && !s.HasPublicKey:
		p.addFinding(subject, Error, "%s: the PublicKey of %s is missing: run refractctl network connect", s.Gateway, s.Peer)
	case !s.IsConnected():
		p.addFinding(subject, Error, "%s is not connected: the client must reach the server at %s, so check firewalls and security groups, and the pods with kubectl -n %s logs deployment/%s",
			s.Gateway, s.Endpoint, wire.TenantNamespace(s.Peer), wire.GatewayObjectName(s.Peer))
	case s.CheckedAt != nil && p.Now.Sub(s.CheckedAt.Time) > maxConditionAge:
		const text = "%s: its Connection is Connected, but was last refreshed at %s, so it counts as down: " +
			"check whether the active pod runs and reaches the API server, with kubectl -n %s logs deployment/%s"
		p.addFinding(subject, Error, text,
			s.Gateway, s.CheckedAt.UTC().Format(time.RFC3339), wire.TenantNamespace(s.Peer), wire.GatewayObjectName(s.Peer))
	case available != all:
		p.addFinding(subject, Warning, "connected, but only %s of %s pods are available, so that another one may not be able to take over: see kubectl -n %s describe pods", available, all, wire.TenantNamespace(s.Peer))
	default:
		p.addFinding(subject, OK, "connected, latency %s", s.Latency)
	}
}

// checkAgents checks the agents, without which pods of a node do not reach the gateways.
func (p *Examination) checkAgents(ctx context.Context, installed *release.Installation) error {
	agents := &appsv1.DaemonSet{}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: installed.Namespace, Name: installed.Name + agentsSuffix}, agents)
	if apierrors.IsNotFound(err) { // Liqo runs the gateways
		return nil
	}
	if err == nil {
		p.describeAgents(agents)
	}
	return err
}

func (p *Examination) describeAgents(agents *appsv1.DaemonSet) {
	subject := "DaemonSet " + client.ObjectKeyFromObject(agents).String()
	if ready, desired := agents.Status.NumberReady, agents.Status.DesiredNumberScheduled; ready < desired {
		p.addFinding(subject, Error, "agents are ready on %d of %d nodes: pods of the other nodes do not reach peers; see kubectl -n %s describe pods", ready, desired, agents.Namespace)
		return
	}
	p.addFinding(subject, OK, "ready on all nodes")
}

// findHiddenNodes adds a finding for each node with an address in a range of a peer. The agents refuse such a peer, because
// packets to the node would go to it.
func (p *Examination) findHiddenNodes(nodes []corev1.Node, configurations []networking.Configuration) {
	for i := range configurations {
		c := &configurations[i]
		if c.Status.Remote == nil {
			continue
		}
		for _, text := range slices.Concat(c.Status.Remote.CIDR.Pod, c.Status.Remote.CIDR.External) {
			r, err := netip.ParsePrefix(string(text))
			if err != nil {
				continue
			}
			for j := range nodes {
				for _, a := range nodes[j].Status.Addresses {
					if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && r.Contains(ip) {
						p.addFinding("node "+nodes[j].Name, Error, "its address %s is in the range %s of %s, so that nodes do not connect to that peer: delete the Network of the range in namespace %s, so that the peer gets another one",
							ip, r, c.Labels[wire.RemoteClusterIDLabel], c.Namespace)
					}
				}
			}
		}
	}
}

// checkCilium checks whether Cilium, if it is the network plugin, lets the packets of pods pass the rules of the agents.
func (p *Examination) checkCilium(ctx context.Context) error {
	settings := &corev1.ConfigMap{}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "cilium-config"}, settings)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return err
	}
	p.describeCilium(settings)
	return nil
}

// describeCilium adds a finding if Cilium forwards packets of pods with eBPF (host routing), so that they do not pass the
// routes and rules of the agents. Cilium does so where it replaces kube-proxy and masquerades with eBPF, unless legacy
// host routing is set (https://docs.cilium.io/en/stable/operations/performance/tuning/#ebpf-host-routing).
func (p *Examination) describeCilium(settings *corev1.ConfigMap) {
	replaces := settings.Data["kube-proxy-replacement"]
	if (replaces == "true" || replaces == "strict") && settings.Data["enable-bpf-masquerade"] == "true" &&
		settings.Data["enable-host-legacy-routing"] != "true" {
		p.addFinding("ConfigMap kube-system/cilium-config", Warning, "Cilium forwards packets of pods with eBPF, past the routes of the agents, so that pods may not reach peers: set the value bpf.hostLegacyRouting=true of Cilium's chart, and restart its agents")
	}
}

// checkPodRoutes checks that gateways find the nodes of all pods.
func (p *Examination) checkPodRoutes(ctx context.Context, installed *release.Installation) error {
	template := &networking.WgGatewayServerTemplate{}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: installed.Namespace, Name: gateways.ServerTemplate}, template)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err == nil && bytes.Contains(template.Spec.Template.Raw, []byte("--pod-routes")) {
		return nil
	}
	if err != nil {
		return err
	}
	why, err := gateways.ExplainPodRoutes(ctx, p.Client)
	if err == nil && why != "" {
		p.addFinding("pod ranges", Error, "%s, so that gateways do not find the nodes of all pods: set networking.gateways.podRoutes=true", why)
	}
	return err
}

// checkDeclaredRanges checks that the pod ranges of all nodes are declared. Peers do not reach pods outside of the declared ranges.
func (p *Examination) checkDeclaredRanges(ctx context.Context) error {
	networks, nodes := &ipam.NetworkList{}, &corev1.NodeList{}
	err := p.Client.List(ctx, networks, client.MatchingLabels{wire.NetworkTypeLabel: wire.PodNetwork})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.Client.List(ctx, nodes); err != nil {
		return err
	}
	configurations := &networking.ConfigurationList{}
	if err := p.Client.List(ctx, configurations); err != nil {
		return err
	}
	p.findHiddenNodes(nodes.Items, configurations.Items)
	var declared []netip.Prefix
	for i := range networks.Items {
		if prefix, err := netip.ParsePrefix(string(networks.Items[i].Spec.CIDR)); err == nil {
			declared = append(declared, prefix.Masked())
		}
	}
	for i := range nodes.Items {
		for _, cidr := range nodes.Items[i].Spec.PodCIDRs {
			prefix, err := netip.ParsePrefix(cidr)
			isDeclared := func(d netip.Prefix) bool { return d.Bits() <= prefix.Bits() && d.Contains(prefix.Addr()) }
			if err != nil || !prefix.Addr().Is4() || slices.ContainsFunc(declared, isDeclared) {
				continue
			}
			p.addFinding("node "+nodes.Items[i].Name, Warning, "no Network declares its pod range %s, so that peers do not reach its pods: create a Network with the label %s=%s, and run refractctl network connect for each peer",
				cidr, wire.NetworkTypeLabel, wire.PodNetwork)
		}
	}
	return nil
}
