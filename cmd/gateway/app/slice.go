// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

const (
	// sliceWriteTimeout limits a write of the EndpointSlice.
	sliceWriteTimeout = 5 * time.Second
	// sliceRetryInterval is the pause after a write that has failed. With a longer pause, the Service stays without the
	// active pod for longer.
	sliceRetryInterval = time.Second
)

// sliceKeeper makes the Service of a server route to the active pod. The controller manager creates the EndpointSlice;
// the active pod writes its endpoint, so that the Service follows the active pod even while the controller manager is
// down.
type sliceKeeper struct {
	options *runOptions
	reader  client.Reader
	writer  client.Client
	// changed receives a value when objects have changed.
	changed chan struct{}
}

func newSliceKeeper(writer client.Client, o *runOptions, reader client.Reader) *sliceKeeper {
	return &sliceKeeper{options: o, reader: reader, writer: writer, changed: make(chan struct{}, 1)}
}

// requestUpdate triggers a comparison of the EndpointSlice. It does not block.
func (k *sliceKeeper) requestUpdate() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// keepSlice writes the EndpointSlice until ctx is done.
func (k *sliceKeeper) keepSlice(ctx context.Context, synced <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return nil
	case <-synced:
	}
	for isFailing := false; ; {
		err := k.updateSlice(ctx)
		if err != nil && !isFailing && ctx.Err() == nil {
			slog.Error("Writing the EndpointSlice failed, it is tried again", "err", err)
		}
		isFailing = err != nil
		var retry <-chan time.Time
		if isFailing {
			retry = time.After(sliceRetryInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-retry:
		}
	}
}

// updateSlice writes this pod's endpoint to the EndpointSlice if the pod is active and the EndpointSlice differs.
func (k *sliceKeeper) updateSlice(ctx context.Context) error {
	o := k.options
	_, endpoint, err := o.readGateway(ctx, k.reader)
	if err != nil || endpoint == nil || o.isStandby(endpoint) {
		return err
	}
	slice, err := getObject(ctx, k.reader, o.namespace, wire.GatewayElection, &discoveryv1.EndpointSlice{})
	if err != nil || slice == nil {
		return err
	}
	own := o.ownEndpoint()
	if len(slice.Endpoints) == 1 && slices.Equal(slice.Endpoints[0].Addresses, own.Addresses) && ptr.Deref(slice.Endpoints[0].Conditions.Ready, false) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"endpoints": []discoveryv1.Endpoint{own}})
	if err != nil {
		panic(err) // this cannot happen, because the type can always be encoded
	}
	ctx, cancel := context.WithTimeout(ctx, sliceWriteTimeout)
	defer cancel()
	if err := k.writer.Patch(ctx, slice, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("writing EndpointSlice %s, %w", client.ObjectKeyFromObject(slice), err)
	}
	slog.Info("The Service leads to this pod")
	return nil
}

// ownEndpoint returns the endpoint of this pod.
func (o *runOptions) ownEndpoint() discoveryv1.Endpoint {
	own := discoveryv1.Endpoint{
		Addresses: []string{netip.MustParseAddr(o.podIP).String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
	}
	if o.node != "" {
		own.NodeName = ptr.To(o.node)
	}
	if o.pod != "" { // some load balancers send packets to pods, and find them by this reference
		own.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: o.namespace, Name: o.pod}
	}
	return own
}
