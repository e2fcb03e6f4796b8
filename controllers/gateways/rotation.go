// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

const (
	// acceptTimeout is how long the peer has to accept new keys. Then they are made again, because they may have been lost before they
	// were stored. Gateways of Liqo never accept any. A shorter time causes more writes for them.
	acceptTimeout = 24 * time.Hour
	// replacedKeysGrace is how long replaced keys are kept. With a shorter time, a pod that has not seen the change yet cannot connect.
	replacedKeysGrace = 10 * time.Minute
)

// rotation is the progress of the replacement of a gateway's keys, in an annotation of its Deployment.
//
// The gateway alternates between two Secrets. The pods announce the keys of both to the peer. Once it accepts the new ones, the status of
// the gateway names the other Secret, so that all pods change their key at the same time. The controller cannot read the Secrets, so the
// annotation contains what it must know about them.
type rotation struct {
	// Replaced is the time when the keys in use replaced others. If it is zero, they are the first keys.
	Replaced metav1.Time `json:"replaced,omitzero"`
	// Next is the Secret with the next keys, PublicKey their public key, and Created the time when they were made. They are empty if there are
	// none.
	Next      string      `json:"next,omitempty"`
	PublicKey []byte      `json:"publicKey,omitempty"`
	Created   metav1.Time `json:"created,omitzero"`
	// Unused is the Secret with the replaced keys, until it is deleted.
	Unused string `json:"unused,omitempty"`
}

// rotateKeys makes new keys when those in use are old, uses them when the peer accepts them, and then deletes the old ones. again is the
// time until the next step. It is 0 if there is none.
func (c *Controller) rotateKeys(ctx context.Context, g gateway, deployment *appsv1.Deployment) (again time.Duration, why verdict, err error) {
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
	since := state.Replaced.Time
	if since.IsZero() {
		since = deployment.CreationTimestamp.Time
	}
	switch {
	case state.Next != "":
		isAccepted, err := c.isAccepted(ctx, g, state.PublicKey)
		if err != nil {
			return 0, verdict{}, err
		}
		if isAccepted {
			return replacedKeysGrace, verdict{}, c.useNextKeys(ctx, g, deployment, state)
		}
		if left := acceptTimeout - time.Since(state.Created.Time); left > 0 {
			return left, verdict{}, nil
		}
	case state.Unused != "":
		if left := replacedKeysGrace - time.Since(since); left > 0 {
			return left, verdict{}, nil
		}
		if why, err := c.deleteSecret(ctx, g, state.Unused); err != nil || why.reason != "" {
			return 0, why, err
		}
		state.Unused = ""
		return c.options.KeyRotationInterval, verdict{}, c.writeRotation(ctx, deployment, state)
	default:
		if left := c.options.KeyRotationInterval - time.Since(since); left > 0 {
			return left, verdict{}, nil
		}
	}
	why, err = c.makeNextKeys(ctx, g, deployment, state)
	return acceptTimeout, why, err
}

// makeNextKeys replaces the Secret that is not in use with new keys.
func (c *Controller) makeNextKeys(ctx context.Context, g gateway, deployment *appsv1.Deployment, state rotation) (verdict, error) {
	name := g.unusedSecret()
	if why, err := c.deleteSecret(ctx, g, name); err != nil || why.reason != "" {
		return why, err
	}
	secret, err := forgeKeys(g, name)
	if err != nil {
		return verdict{}, err
	}
	state.Next, state.PublicKey, state.Created = name, secret.Data[wire.PublicKeyField], metav1.Now()
	if err := c.writeRotation(ctx, deployment, state); err != nil {
		return verdict{}, err
	}
	_, why, err := c.create(ctx, secret)
	return why, err
}

// isAccepted reports whether the peer accepts a public key of the gateway.
func (c *Controller) isAccepted(ctx context.Context, g gateway, key []byte) (bool, error) {
	keys := &api.PublicKeyList{}
	selector := []client.ListOption{client.InNamespace(g.object().GetNamespace()), client.MatchingLabels{wire.RemoteClusterIDLabel: g.peer()}}
	if err := c.client.List(ctx, keys, selector...); err != nil {
		return false, fmt.Errorf("listing the PublicKeys of namespace %s, %w", g.object().GetNamespace(), err)
	}
	return slices.ContainsFunc(keys.Items, func(k api.PublicKey) bool {
		return slices.ContainsFunc(wire.ParseKeys(k.Annotations[wire.AcceptedKeysAnnotation]), func(accepted []byte) bool {
			return bytes.Equal(accepted, key)
		})
	}), nil
}

// useNextKeys makes all pods of the gateway change to the next keys. If it is interrupted, it repeats the same writes.
func (c *Controller) useNextKeys(ctx context.Context, g gateway, deployment *appsv1.Deployment, state rotation) error {
	before := g.object().DeepCopyObject().(client.Object)
	used, _ := g.secretName()
	if used != state.Next {
		g.secretRef().Name = state.Next
		if err := c.client.Status().Patch(ctx, g.object(), client.MergeFrom(before), fieldOwner); err != nil {
			return fmt.Errorf("writing the status of %s in namespace %s, %w", g, before.GetNamespace(), err)
		}
		const text = "The peer accepts the new keys in Secret %s: they replace those in Secret %s, which is deleted later"
		c.report.Tell(g.object(), nil, keysReplacedReason, runAction, fmt.Sprintf(text, state.Next, used))
	}
	return c.writeRotation(ctx, deployment, rotation{Replaced: metav1.Now(), Unused: g.unusedSecret()})
}

// deleteSecret deletes one of the two Secrets with keys of the gateway, if it exists.
func (c *Controller) deleteSecret(ctx context.Context, g gateway, name string) (verdict, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: g.object().GetNamespace(), Name: name}}
	return c.explainRefusal(secret, client.IgnoreNotFound(c.client.Delete(ctx, secret)))
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
