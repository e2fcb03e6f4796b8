// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/peering"
	"github.com/refract-project/refract/internal/refractctl/release"
)

func (p *Examination) checkClock(ctx context.Context, _ *release.Installation) error {
	if p.Cluster == nil {
		return nil
	}
	offset, known, err := p.Cluster.ClockOffset(ctx)
	if err != nil {
		return err
	}
	p.checkSkew(offset, known)
	return nil
}

// checkSkew reports the difference between the clocks of the API server and of this computer. A positive offset means
// that the clock of the API server is ahead.
func (p *Examination) checkSkew(offset time.Duration, known bool) {
	direction := "ahead of"
	if offset < 0 {
		direction = "behind"
	}
	switch {
	case !known:
		p.addFinding("clock", OK, "unknown, because the API server sends no header Date")
	case offset.Abs() > cluster.MaxClockSkew:
		p.addFinding("clock", Warning, "the clock of the API server is %s %s that of this computer: synchronise them (NTP); certificates and leases depend on the clock of the cluster", offset.Abs().Round(time.Second), direction)
	default:
		p.addFinding("clock", OK, "in sync with this computer")
	}
}

func (p *Examination) checkNetworks(ctx context.Context, _ *release.Installation) error {
	networks := &plugins.PeerNetworkList{}
	if err := p.Client.List(ctx, networks); meta.IsNoMatchError(err) {
		return nil // the missing CRD was already reported
	} else if err != nil {
		return err
	}
	for i := range networks.Items {
		p.checkNetwork(&networks.Items[i])
	}
	return nil
}

// maxConditionAge is the age at which the condition Connected of a PeerNetwork, or the state in a Connection, no longer counts. It applies
// only if the object has the time of the last observation.
const maxConditionAge = time.Minute

func (p *Examination) checkNetwork(network *plugins.PeerNetwork) {
	subject := "PeerNetwork " + client.ObjectKeyFromObject(network).String()
	if network.Spec.Mode == plugins.NoNetwork {
		p.addFinding(subject, OK, "spec.mode is None: pods do not reach those of %s by address", network.Spec.ClusterID)
		return
	}
	if one, other, overlap := overlappingRanges(network); overlap {
		p.addFinding(subject, Warning, "the pod ranges overlap, %s here and %s of %s: pods do not reach each other unless a network between the clusters translates addresses; without one, run refractctl peer with --network=none", one, other, network.Spec.ClusterID)
	}
	connected, checked := meta.FindStatusCondition(network.Status.Conditions, plugins.ConnectedCondition), network.Status.CheckedAt
	const try = "try it with refractctl network test"
	switch {
	case connected == nil:
		p.addFinding(subject, OK, "%s; no controller reports whether it is connected, %s", network.Spec.Mode, try)
	case checked != nil && p.Now.Sub(checked.Time) > maxConditionAge:
		p.addFinding(subject, Error, "the condition Connected was checked last at %s, so it counts as False: check whether the gateway that reports it runs, and %s", checked.UTC().Format(time.RFC3339), try)
	case connected.Status == metav1.ConditionFalse:
		p.addFinding(subject, Error, "the network to %s is down, %s: %s; %s once that is fixed", network.Spec.ClusterID, connected.Reason, connected.Message, try)
	case connected.Status == metav1.ConditionUnknown:
		p.addFinding(subject, Warning, "the network to %s is being set up, %s: %s; check again in a minute", network.Spec.ClusterID, connected.Reason, connected.Message)
	default:
		p.addFinding(subject, OK, "connected")
	}
}

// overlappingRanges returns two pod ranges that have addresses in common, unless gateways translate the addresses.
func overlappingRanges(network *plugins.PeerNetwork) (one, other plugins.CIDR, overlap bool) {
	if network.Spec.Mode == plugins.GatewayNetwork {
		return "", "", false
	}
	for _, one := range network.Spec.Local.PodCIDRs {
		for _, other := range network.Spec.Remote.PodCIDRs {
			here, err := netip.ParsePrefix(string(one))
			there, otherErr := netip.ParsePrefix(string(other))
			if err == nil && otherErr == nil && here.Overlaps(there) {
				return one, other, true
			}
		}
	}
	return "", "", false
}

// checkPeer compares this cluster with the given peer.
func (p *Examination) checkPeer(ctx context.Context, _ *release.Installation) error {
	if p.Cluster == nil || p.Peer == nil {
		return nil
	}
	subject := "peer " + p.Peer.Name
	compared, err := (&peering.Options{Consumer: p.Cluster, Provider: p.Peer}).Compare(ctx)
	if err != nil {
		return err
	}
	for _, found := range []struct {
		level Level
		err   error
		well  string
	}{
		{Error, compared.Sides, "its id is " + compared.ProviderID}, {Error, compared.Clocks, "the clocks of both clusters agree"}, {Warning, compared.Versions, "the versions are compatible"},
	} {
		if found.err != nil {
			p.addFinding(subject, found.level, "%v", found.err)
		} else {
			p.addFinding(subject, OK, "%s", found.well)
		}
	}
	if compared.Sides != nil {
		return nil
	}
	if err := p.checkKnownIn(ctx, p.Cluster, compared.ProviderID); err != nil {
		return err
	}
	if p.Peer.IsInvited() {
		return nil // a consumer may lack the permission to read the Secret
	}
	return p.checkKnownIn(ctx, p.Peer, compared.ConsumerID)
}

// checkKnownIn checks that the given cluster has a ForeignCluster for the other cluster, which has the given ID.
func (p *Examination) checkKnownIn(ctx context.Context, in *cluster.Cluster, id string) error {
	clusters := &core.ForeignClusterList{}
	if err := in.Client.List(ctx, clusters); err != nil {
		return fmt.Errorf("cluster %s: listing ForeignClusters, %w", in.Name, err)
	}
	for i := range clusters.Items {
		if found := &clusters.Items[i]; string(found.Spec.ClusterID) == id {
			// The ForeignClusters of this cluster were already checked.
			if in != p.Cluster {
				p.checkCluster("ForeignCluster "+found.Name+" in "+in.Name, found)
			}
			return nil
		}
	}
	p.addFinding("peer "+p.Peer.Name, Error, "%s has no ForeignCluster for %s, so nothing is reflected: join them with refractctl peer, or check whether the controller manager of %s runs", in.Name, id, in.Name)
	return nil
}
