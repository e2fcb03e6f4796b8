// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/takeover"
)

const (
	// electionWriteTimeout limits the requests of one takeover. Meanwhile, the holder of the Lease is not probed.
	electionWriteTimeout = 5 * time.Second
	// handOverTimeout is how long a pod that has to end carries packets while no other pod has taken over. It is less than the 30 s that
	// Kubernetes waits for a pod.
	handOverTimeout = 5 * time.Second
)

// takeoversReason is the reason of the Event of a gateway whose pods take over from each other although they may be alive.
const takeoversReason = "FrequentTakeovers"

// elector takes part in the election of the active pod. The Lease decides which pod writes status.internalEndpoint, and
// status.internalEndpoint decides which pod carries packets.
type elector struct {
	options  *runOptions
	own      netip.Addr
	reader   client.Reader
	writer   client.Client
	reporter *reporter
	// warn writes an Event about the gateway. It must not block.
	warn   func(reason, text string)
	synced <-chan struct{}
	member *takeover.Member
	// demoted receives a value when another pod has become active.
	demoted chan struct{}
	failing bool
}

// newElector returns an elector that answers probes as soon as it runs.
func newElector(writer client.Client, o *runOptions, caches *objects, r *reporter, warn func(reason, text string)) (_ *elector, err error) {
	e := &elector{options: o, own: netip.MustParseAddr(o.podIP), reader: caches.cache, writer: writer, reporter: r, warn: warn,
		synced: caches.synced, demoted: make(chan struct{}, 1)}
	e.member, err = takeover.Open(takeover.Options{
		Address: e.own, View: e.view, Claim: e.claim, Publish: e.publish, Failed: e.logOutcome,
		Answered: r.answeredProbes.Inc, Refused: r.refusedProbes.Inc,
	})
	return e, err
}

// recordReport processes a Report of package gateway. It does not block.
func (e *elector) recordReport(r gateway.Report) {
	if r.PeerEndpoint.IsValid() {
		e.member.SetPeer(r.PeerEndpoint)
	}
	if r.Active == nil {
		return
	}
	e.member.SetActive(*r.Active)
	select {
	case <-e.demoted:
	default:
	}
	if !*r.Active {
		e.demoted <- struct{}{} // only this method sends
	}
}

// handOver lets another pod take over. It returns when another pod has become active, after handOverTimeout, or at once
// if no takeover can be expected.
func (e *elector) handOver(ctx context.Context) {
	if !e.member.Leave() {
		return
	}
	slog.Info("Waiting for another pod to take over")
	timeout := time.NewTimer(handOverTimeout)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
	case <-e.demoted:
	case <-timeout.C:
		slog.Warn("No other pod has taken over", "timeout", handOverTimeout)
	}
}

// view reads the caches.
func (e *elector) view() (v takeover.View) {
	select {
	case <-e.synced:
	default:
		return v
	}
	gate, endpoint, err := e.options.readGateway(context.Background(), e.reader)
	if err != nil || gate == nil {
		return v
	}
	lease, err := e.readLease(context.Background(), e.reader)
	if err != nil {
		return v
	}
	v.Known = true
	if endpoint != nil && endpoint.IP != nil {
		v.Endpoint, _ = netip.ParseAddr(string(*endpoint.IP))
	}
	if lease != nil {
		v.Version, v.Holder = lease.ResourceVersion, holderOf(lease)
	}
	return v
}

// claim takes the Lease. If it succeeds, it writes the endpoint.
func (e *elector) claim(ctx context.Context, v takeover.View, step takeover.Step) (won bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, electionWriteTimeout)
	defer cancel()
	gate, _, err := e.options.readGateway(ctx, e.reader)
	if err != nil || gate == nil {
		return false, err
	}
	if won, err = e.takeLease(ctx, v, gate); !won || err != nil {
		return false, err
	}
	e.reporter.takeovers.WithLabelValues(string(step.Reason)).Inc()
	slog.Info("This pod was elected", "reason", step.Reason, "before", v.Holder)
	if step.Delayed {
		const text = "the pod %s has taken over from %s, which does not answer its probes, soon after an earlier takeover: if both are running, let the pods of the gateway reach each other at UDP port %d, which a NetworkPolicy may block"
		e.warn(takeoversReason, fmt.Sprintf(text, e.own, v.Holder, takeover.Port))
	}
	return true, e.writeEndpoint(ctx, gate)
}

// takeLease writes this pod to the Lease, unless another one has changed it since the view.
func (e *elector) takeLease(ctx context.Context, v takeover.View, gate client.Object) (taken bool, err error) {
	lease, err := e.readLease(ctx, e.reader)
	switch {
	case err != nil:
		return false, err
	case lease == nil && v.Version == "":
		lease = e.newLease(gate)
		err = e.writer.Create(ctx, lease)
	case lease != nil && lease.ResourceVersion == v.Version:
		desired := e.newLease(gate)
		transitions := ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1
		lease.OwnerReferences, lease.Spec = desired.OwnerReferences, desired.Spec
		lease.Spec.LeaseTransitions = &transitions
		err = e.writer.Update(ctx, lease)
	default:
		return false, nil
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("taking Lease %s, %w", client.ObjectKeyFromObject(lease), err)
	}
	return true, nil
}

// publish writes the endpoint if this pod still holds the Lease. This is checked because the cache may contain the
// endpoint of another pod before it contains the new holder of the Lease.
func (e *elector) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, electionWriteTimeout)
	defer cancel()
	gate, _, err := e.options.readGateway(ctx, e.reader)
	if err != nil || gate == nil {
		return err
	}
	lease, err := e.readLease(ctx, e.writer)
	if err != nil || lease == nil || holderOf(lease) != e.own {
		return err
	}
	return e.writeEndpoint(ctx, gate)
}

// writeEndpoint writes the address of this pod and its node to the status of the gateway.
func (e *elector) writeEndpoint(ctx context.Context, gate client.Object) error {
	endpoint := map[string]any{"ip": e.own.String(), "node": nil}
	if e.options.node != "" {
		endpoint["node"] = e.options.node
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"internalEndpoint": endpoint}})
	if err != nil {
		panic(err) // encoding strings cannot fail
	}
	if err := e.writer.Status().Patch(ctx, gate, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("writing status.internalEndpoint of the gateway %s, %w", client.ObjectKeyFromObject(gate), err)
	}
	return nil
}

// confirmActive reads from the API server whether nodes send their packets to this pod.
func (e *elector) confirmActive(ctx context.Context) bool {
	gate, endpoint, err := e.options.readGateway(ctx, e.writer)
	isActive := err == nil && gate != nil && !e.options.isStandby(endpoint)
	slog.Warn("The peer knows another active pod of this gateway", "confirmed", isActive, "err", err)
	return isActive
}

// logOutcome logs the first of several consecutive failures.
func (e *elector) logOutcome(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if err != nil && !e.failing {
		slog.Error("Taking over failed, it is tried again", "err", err)
	}
	e.failing = err != nil
}

// readLease returns the Lease, or nil if there is none.
func (e *elector) readLease(ctx context.Context, reader client.Reader) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: e.options.namespace, Name: wire.GatewayElection}
	err := reader.Get(ctx, key, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Lease %s, %w", key, err)
	}
	return lease, nil
}

// newLease returns a Lease that this pod holds. It is deleted with the gateway. It has no duration, because it is not renewed.
func (e *elector) newLease(gate client.Object) *coordinationv1.Lease {
	holder, now, isController := e.own.String(), metav1.NewMicroTime(time.Now()), true
	kind := networking.GatewayServerKind
	if _, ok := gate.(*networking.GatewayClient); ok {
		kind = networking.GatewayClientKind
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: gate.GetNamespace(), Name: wire.GatewayElection,
			Labels: map[string]string{wire.RemoteClusterIDLabel: gate.GetLabels()[wire.RemoteClusterIDLabel]},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: networking.GroupVersion.String(), Kind: kind, Name: gate.GetName(), UID: gate.GetUID(), Controller: &isController,
			}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &now},
	}
}

// holderOf returns the address of the pod that holds the Lease. It is not valid if there is none, or if another client
// has written something else to the Lease.
func holderOf(lease *coordinationv1.Lease) netip.Addr {
	if lease.Spec.HolderIdentity == nil {
		return netip.Addr{}
	}
	address, _ := netip.ParseAddr(*lease.Spec.HolderIdentity)
	return address
}
