// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway"
)

const (
	// minKeyWriteInterval is the pause after a request that writes the PublicKey. A peer announces its keys as often as it likes, so a
	// shorter pause would let it cause more requests.
	minKeyWriteInterval = 5 * time.Second
	// keyCompareInterval is how often the PublicKey is compared although the peer announces the same keys. With a longer interval, a
	// PublicKey that another client has replaced is completed later.
	keyCompareInterval = time.Minute
	// otherKeyGrace is how long a peer must announce a single key until its other key is no longer accepted. It is longer
	// than Kubernetes needs to mount a Secret in all pods of its gateway: with a shorter time, a pod that takes over could
	// not connect.
	otherKeyGrace = 10 * time.Minute
	// keyWriteTimeout limits one request.
	keyWriteTimeout = 10 * time.Second
)

// usesAlternateKeys reports whether the gateway has changed to its second Secret with keys.
func (o *runOptions) usesAlternateKeys(server *networking.GatewayServer, gatewayClient *networking.GatewayClient) bool {
	var secret *corev1.ObjectReference
	switch {
	case server != nil:
		secret = server.Status.SecretRef
	case gatewayClient != nil:
		secret = gatewayClient.Status.SecretRef
	}
	return secret != nil && secret.Name == wire.AlternateKeysName(o.name)
}

// acceptedKeys returns the public keys with which the peer may connect: spec.publicKey first, and then the key in the annotation.
func acceptedKeys(key *networking.PublicKey) [][]byte {
	accepted := [][]byte{key.Spec.PublicKey}
	annotated := networking.ParseKeys(key.Annotations[wire.OtherPublicKeyAnnotation])
	if len(annotated) == 2 && bytes.Equal(annotated[0], key.Spec.PublicKey) && len(annotated[1]) == wgtypes.KeyLen {
		accepted = append(accepted, annotated[1])
	}
	return accepted
}

// acceptAnnounced changes a PublicKey so that the peer may connect with the keys that it announces, first the one in use. Each
// announcement must contain a key that is already accepted. So a key that an administrator has replaced cannot announce others.
// A new key first becomes the other key, because the API server lets a gateway change spec.publicKey only to such a key.
//
// The other key is dropped only when the peer has announced a single key for a while (isSettled). Another pod of its gateway
// may not have both keys yet.
func acceptAnnounced(key *networking.PublicKey, announced [][]byte, isSettled bool) {
	accepted := acceptedKeys(key)
	isAccepted := func(k []byte) bool {
		return slices.ContainsFunc(accepted, func(a []byte) bool { return bytes.Equal(a, k) })
	}
	first := slices.IndexFunc(announced, isAccepted)
	if first < 0 || len(announced) == 1 && !isSettled {
		return
	}
	ordered := append([][]byte{announced[first]}, slices.Delete(slices.Clone(announced), first, first+1)...)
	if isSame := bytes.Equal(ordered[0], key.Spec.PublicKey); len(ordered) == 1 && !isSame {
		ordered = append(ordered, key.Spec.PublicKey) // it is dropped when the new order has lasted, too
	} else if len(ordered) == 1 {
		delete(key.Annotations, wire.OtherPublicKeyAnnotation)
		return
	}
	key.Spec.PublicKey = ordered[0]
	setAnnotation(key, wire.OtherPublicKeyAnnotation, networking.FormatKeys(ordered))
}

func setAnnotation(object client.Object, name, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	object.SetAnnotations(annotations)
}

// keyKeeper updates the PublicKey of the peer: with the keys that the peer announces, and with the keys of this gateway that the peer
// accepts.
type keyKeeper struct {
	writer  client.Client
	peering *peering
	// changed receives a value when the peer announces or accepts other keys.
	changed chan struct{}

	mutex               sync.Mutex
	active              bool
	announced, accepted [][]byte
	since               time.Time // when the peer began to announce these keys
}

func newKeyKeeper(writer client.Client, p *peering) *keyKeeper {
	return &keyKeeper{writer: writer, peering: p, changed: make(chan struct{}, 1)}
}

// recordReport processes a Report of package gateway. It does not block.
func (k *keyKeeper) recordReport(r gateway.Report) {
	if r.Active == nil && r.AnnouncedKeys == nil && r.AcceptedKeys == nil {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if r.Active != nil {
		k.active, k.announced, k.accepted = *r.Active, nil, nil
	}
	if r.AnnouncedKeys != nil {
		k.announced, k.since = r.AnnouncedKeys, time.Now()
	}
	if r.AcceptedKeys != nil {
		k.accepted = r.AcceptedKeys
	}
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// keepKeys updates the PublicKey until ctx is done. It makes at most one request in minKeyWriteInterval.
func (k *keyKeeper) keepKeys(ctx context.Context, synced <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return nil
	case <-synced:
	}
	timer := time.NewTicker(keyCompareInterval)
	defer timer.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-timer.C:
		}
		for {
			again, err := k.updateKey(ctx)
			if err != nil && !failing {
				slog.Error("Writing the PublicKey of the peer failed, it is tried again", "err", err)
			}
			failing = err != nil
			if !again && err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(minKeyWriteInterval):
			}
		}
	}
}

// updateKey writes the PublicKey if necessary. It returns true if it must be compared again.
func (k *keyKeeper) updateKey(ctx context.Context) (again bool, err error) {
	k.mutex.Lock()
	active, announced, accepted, since := k.active, k.announced, k.accepted, k.since
	k.mutex.Unlock()
	if !active {
		return false, nil
	}
	before, err := k.peering.readPublicKey(ctx)
	if err != nil || before == nil {
		return false, err
	}
	after := before.DeepCopy()
	if len(announced) > 0 {
		acceptAnnounced(after, announced, time.Since(since) >= otherKeyGrace)
	}
	if len(accepted) > 0 {
		setAnnotation(after, wire.AcceptedKeysAnnotation, networking.FormatKeys(k.peering.sortAccepted(accepted)))
	}
	isSameKey := bytes.Equal(before.Spec.PublicKey, after.Spec.PublicKey)
	if isSameKey && before.Annotations[wire.OtherPublicKeyAnnotation] == after.Annotations[wire.OtherPublicKeyAnnotation] &&
		before.Annotations[wire.AcceptedKeysAnnotation] == after.Annotations[wire.AcceptedKeysAnnotation] {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyWriteTimeout)
	defer cancel()
	// Another client may replace the key at the same time, which must not be undone.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := k.writer.Patch(ctx, after, patch); err != nil {
		return true, fmt.Errorf("writing PublicKey %s, %w", client.ObjectKeyFromObject(before), err)
	}
	if !isSameKey {
		slog.Info("The peer has replaced the key of its gateway", "publicKey", client.ObjectKeyFromObject(before))
	}
	return true, nil
}

// readPublicKey returns the PublicKey of the peer from the cache, or nil unless there is exactly one.
func (p *peering) readPublicKey(ctx context.Context) (*networking.PublicKey, error) {
	gate, _, err := p.options.readGateway(ctx, p.reader)
	if err != nil || gate == nil {
		return nil, err
	}
	keys, peer := &networking.PublicKeyList{}, gate.GetLabels()[wire.RemoteClusterIDLabel]
	selector := []client.ListOption{client.InNamespace(p.options.namespace), client.MatchingLabels{wire.RemoteClusterIDLabel: peer}}
	if err := p.reader.List(ctx, keys, selector...); err != nil {
		return nil, err
	}
	found, _ := findOnly("PublicKey", p.options.namespace, peer, keys.Items)
	return found, nil
}

// sortAccepted returns the keys of this gateway that the peer accepts, first the one in use.
func (p *peering) sortAccepted(accepted [][]byte) [][]byte {
	used := p.usedKey.Load()
	return slices.SortedStableFunc(slices.Values(accepted), func(a, b []byte) int {
		switch {
		case used == nil || bytes.Equal(a, *used) == bytes.Equal(b, *used):
			return 0
		case bytes.Equal(a, *used):
			return -1
		}
		return 1
	})
}
