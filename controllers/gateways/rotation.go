// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

const (
	// acceptTimeout is how long the peer has to accept new keys. Then they are made again, because they may have been lost before they
	// were stored. A shorter time causes more writes while the peer is unavailable.
	acceptTimeout = 24 * time.Hour
	// replacedKeysGrace is how long replaced keys are kept at least. With a shorter time, a pod that does not have the new ones yet cannot
	// connect.
	replacedKeysGrace = 10 * time.Minute
)

// rotation is the progress of the replacement of a gateway's keys, in an annotation of its Deployment.
//
// The gateway alternates between two Secrets. The pods announce the keys of both to the peer. Once it accepts the new ones, the status of
// the gateway names the other Secret, so that all pods change their key. The controller cannot read the Secrets, so the annotation contains
// what it must know about them.
type rotation struct {
	// Replaced is the time when the keys in use replaced others. If it is zero, they are the first keys.
	Replaced metav1.Time `json:"replaced,omitzero"`
	// Next is the Secret with the next keys, and Created the time when they were made. They are empty if there are none.
	Next    string      `json:"next,omitempty"`
	Created metav1.Time `json:"created,omitzero"`
	// PublicKey is the public key in Next. If there are no next keys, it is the public key in use, which has replaced the key in
	// Unused.
	PublicKey []byte `json:"publicKey,omitempty"`
	// Unused is the Secret with the replaced keys, until it is deleted.
	Unused string `json:"unused,omitempty"`
}

// rotateKeys makes new keys when those in use are old, uses them when the peer accepts them, and deletes the old ones when the connection
// is established with the new ones. again is the time until the next step. It is 0 if there is none.
func (c *Controller) rotateKeys(
	ctx context.Context, g gateway, deployment *appsv1.Deployment,
) (again time.Duration, why verdict, err error) {
	if _, isGiven := g.primarySecret(); isGiven || c.options.KeyRotationInterval == 0 || !g.hasKeys() {
		return 0, verdict{}, nil
	}
	state := rotation{}
	if text := deployment.Annotations[wire.KeyRotationAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			const text = "annotation %s of Deployment %s cannot be read, so the keys are not replaced: remove it"
			return 0, verdict{invalidReason, fmt.Sprintf(text, wire.KeyRotationAnnotation, deployment.Name)}, nil
		}
	}
	used, _ := g.secretName()
	switch {
	case state.Next != "" && state.Next == used: // an earlier process has changed the status, and nothing else
		return replacedKeysGrace, verdict{}, c.recordUse(ctx, g, deployment, state)
	case state.Next != "":
		return c.awaitAcceptance(ctx, g, deployment, state)
	case state.Unused == used: // another version or another tool has changed the status
		state.Unused = ""
		return replacedKeysGrace, verdict{}, c.writeRotation(ctx, deployment, state)
	case state.Unused != "":
		return c.deleteReplaced(ctx, g, deployment, state)
	}
	since := state.Replaced.Time
	if since.IsZero() {
		since = deployment.CreationTimestamp.Time
	}
	if left := c.keyLifetime(g) - time.Since(since); left > 0 {
		return left, verdict{}, nil
	}
	accepted, err := c.acceptedKeys(ctx, g)
	if err != nil || len(accepted) == 0 { // the peer runs Liqo, or has not answered yet
		return 0, verdict{}, err
	}
	// Secrets of other tools stay, and so do the keys in them.
	if why, err := c.deleteSecret(ctx, g, used, client.DryRunAll); err != nil || why.reason != "" {
		return 0, verdict{}, err
	}
	why, err = c.makeNextKeys(ctx, g, deployment, state)
	return acceptTimeout, why, err
}

// keyLifetime returns the age at which the keys of a gateway are replaced: the interval, or up to a tenth less. So not all gateways replace
// their keys at the same time, and seldom both ends of a tunnel.
func (c *Controller) keyLifetime(g gateway) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(g.object().GetUID()))
	const steps = 1000
	return c.options.KeyRotationInterval - c.options.KeyRotationInterval/10/steps*time.Duration(hash.Sum32()%steps)
}

// makeNextKeys replaces the Secret that is not in use with new keys. The new keys are recorded first, so that keys of an
// earlier process no longer count, even if the peer accepts them.
func (c *Controller) makeNextKeys(ctx context.Context, g gateway, deployment *appsv1.Deployment, state rotation) (verdict, error) {
	name := g.unusedSecret()
	secret, err := forgeKeys(g, name)
	if err != nil {
		return verdict{}, err
	}
	state.Next, state.PublicKey, state.Created = name, secret.Data[wire.PublicKeyField], metav1.Now()
	if err := c.writeRotation(ctx, deployment, state); err != nil {
		return verdict{}, err
	}
	if why, err := c.deleteSecret(ctx, g, name); err != nil || why.reason != "" {
		return why, err
	}
	_, why, err := c.create(ctx, secret)
	return why, err
}

// awaitAcceptance uses the next keys if the peer accepts them, and makes others if it has not done so for a long time.
func (c *Controller) awaitAcceptance(
	ctx context.Context, g gateway, deployment *appsv1.Deployment, state rotation,
) (time.Duration, verdict, error) {
	accepted, err := c.acceptedKeys(ctx, g)
	if err != nil {
		return 0, verdict{}, err
	}
	if !slices.ContainsFunc(accepted, func(key []byte) bool { return bytes.Equal(key, state.PublicKey) }) {
		if left := acceptTimeout - time.Since(state.Created.Time); left > 0 {
			return left, verdict{}, nil
		}
		why, err := c.makeNextKeys(ctx, g, deployment, state)
		return acceptTimeout, why, err
	}
	isThere, err := c.exists(ctx, g, state.Next)
	if err != nil {
		return 0, verdict{}, err
	}
	if !isThere {
		return replacedKeysGrace, verdict{}, c.writeRotation(ctx, deployment, rotation{Replaced: state.Replaced, Unused: state.Unused})
	}
	before, used := g.object().DeepCopyObject().(client.Object), g.secretRef().Name
	g.secretRef().Name = state.Next
	if err := c.client.Status().Patch(ctx, g.object(), client.MergeFrom(before), fieldOwner); err != nil {
		return 0, verdict{}, fmt.Errorf("writing the status of %s in namespace %s, %w", g, before.GetNamespace(), err)
	}
	const text = "The peer accepts the new keys in Secret %s: they replace those in Secret %s, which is deleted later"
	c.report.Tell(g.object(), nil, keysReplacedReason, runAction, fmt.Sprintf(text, state.Next, used))
	return replacedKeysGrace, verdict{}, c.recordUse(ctx, g, deployment, state)
}

// recordUse records that the next keys are in use.
func (c *Controller) recordUse(ctx context.Context, g gateway, deployment *appsv1.Deployment, state rotation) error {
	return c.writeRotation(ctx, deployment, rotation{Replaced: metav1.Now(), PublicKey: state.PublicKey, Unused: g.unusedSecret()})
}

// deleteReplaced deletes the replaced keys. Until the peer has answered for a while since they were replaced, and the active pod uses the
// new ones, they stay: the connection may still need them.
func (c *Controller) deleteReplaced(
	ctx context.Context, g gateway, deployment *appsv1.Deployment, state rotation,
) (time.Duration, verdict, error) {
	accepted, err := c.acceptedKeys(ctx, g)
	if err != nil {
		return 0, verdict{}, err
	}
	answered, err := c.lastAnswer(ctx, g)
	if err != nil {
		return 0, verdict{}, err
	}
	isInUse := len(accepted) > 0 && bytes.Equal(accepted[0], state.PublicKey)
	if !isInUse || answered.Before(state.Replaced.Add(replacedKeysGrace)) {
		return replacedKeysGrace, verdict{}, nil
	}
	if why, err := c.deleteSecret(ctx, g, state.Unused); err != nil || why.reason != "" {
		return 0, why, err
	}
	return 0, verdict{}, c.writeRotation(ctx, deployment, rotation{Replaced: state.Replaced})
}

// acceptedKeys returns the public keys of the gateway that the peer accepts, first the one that the active pod uses.
func (c *Controller) acceptedKeys(ctx context.Context, g gateway) ([][]byte, error) {
	keys := &api.PublicKeyList{}
	ofPeer := client.MatchingLabels{wire.RemoteClusterIDLabel: g.peer()}
	if err := c.client.List(ctx, keys, client.InNamespace(g.object().GetNamespace()), ofPeer); err != nil {
		return nil, fmt.Errorf("listing the PublicKeys of namespace %s, %w", g.object().GetNamespace(), err)
	}
	if len(keys.Items) != 1 {
		return nil, nil
	}
	return api.ParseKeys(keys.Items[0].Annotations[wire.AcceptedKeysAnnotation]), nil
}

// lastAnswer returns when the peer last answered, according to the clock of this cluster. It is zero if it does not answer now.
func (c *Controller) lastAnswer(ctx context.Context, g gateway) (time.Time, error) {
	connection := &api.Connection{}
	key := client.ObjectKey{Namespace: g.object().GetNamespace(), Name: g.objectName()}
	err := c.client.Get(ctx, key, connection)
	switch {
	case apierrors.IsNotFound(err):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("getting Connection %s, %w", key, err)
	case connection.Status.Value != api.Connected:
		return time.Time{}, nil
	}
	return connection.Status.Latency.Timestamp.Time, nil
}

// exists reports whether a Secret exists. The controller may create Secrets, but not read them.
func (c *Controller) exists(ctx context.Context, g gateway, name string) (bool, error) {
	secret, err := forgeKeys(g, name)
	if err != nil {
		return false, err
	}
	err = c.client.Create(ctx, secret, fieldOwner, client.DryRunAll)
	if err == nil || apierrors.IsAlreadyExists(err) {
		return err != nil, nil
	}
	return false, fmt.Errorf("looking for Secret %s, %w", client.ObjectKeyFromObject(secret), err)
}

// deleteSecret deletes one of the two Secrets with keys of the gateway, if it exists. Unless it is a dry run, the Secret must
// not be in use.
func (c *Controller) deleteSecret(ctx context.Context, g gateway, name string, options ...client.DeleteOption) (verdict, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: g.object().GetNamespace(), Name: name}}
	if len(options) == 0 {
		current := gateway{}
		if g.server != nil {
			current.server = &api.GatewayServer{}
		} else {
			current.client = &api.GatewayClient{}
		}
		if err := c.live.Get(ctx, client.ObjectKeyFromObject(g.object()), current.object()); err != nil {
			return verdict{}, fmt.Errorf("getting %s in namespace %s, %w", g, secret.Namespace, err)
		}
		if used, _ := current.secretName(); used == name {
			return verdict{}, fmt.Errorf("deleting Secret %s, it is in use meanwhile", client.ObjectKeyFromObject(secret))
		}
	}
	return c.explainRefusal(secret, client.IgnoreNotFound(c.client.Delete(ctx, secret, options...)))
}

// writeRotation records the progress. It writes only if the Deployment has not changed meanwhile.
func (c *Controller) writeRotation(ctx context.Context, deployment *appsv1.Deployment, state rotation) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	before := deployment.DeepCopy()
	deployment.Annotations = merge(deployment.Annotations, map[string]string{wire.KeyRotationAnnotation: string(text)})
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, deployment, patch, fieldOwner); err != nil {
		return fmt.Errorf("recording the replacement of keys on Deployment %s, %w", client.ObjectKeyFromObject(deployment), err)
	}
	return nil
}
