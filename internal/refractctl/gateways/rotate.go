// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// rotationRights are the permissions to replace keys.
var rotationRights = []cluster.Right{{Verbs: []string{"get", "delete"}, Resource: "secrets"}, {Verbs: []string{"deletecollection"}, Resource: "pods"}}

// CheckRotation returns an error if the keys of the gateways cannot be replaced.
func (l *Link) CheckRotation(ctx context.Context) error {
	var problems []error
	for _, e := range []*end{l.consumer, l.provider} {
		switch {
		case !e.hasAccess():
			problems = append(problems, fmt.Errorf("cluster %s: the keys of both gateways are replaced together: use the credentials of an administrator", e.Name))
		case e.server == nil && e.client == nil:
			problems = append(problems, fmt.Errorf("cluster %s: there is no gateway to %s: run refractctl network connect first", e.Name, e.peer))
		default:
			problems = append(problems, e.checkKeys(), e.RequireRights(ctx, rotationRights))
		}
	}
	return errors.Join(problems...)
}

// checkKeys returns an error if the spec of the gateway names the Secret with the keys. The controllers make no keys for such a gateway,
// so that its keys must not be deleted.
func (e *end) checkKeys() error {
	given := ""
	if e.server != nil {
		given = e.server.Spec.SecretRef.Name
	} else {
		given = e.client.Spec.SecretRef.Name
	}
	if given == "" {
		return nil
	}
	const text = "cluster %s: spec.secretRef of the gateway to %s names Secret %s/%s, whose keys only its owner replaces: " +
		"replace them there, and run refractctl network connect"
	return fmt.Errorf(text, e.Name, e.peer, e.namespace(), given)
}

// Rotate replaces the keys of both gateways, for keys that others may know. It deletes the Secrets and the pods of the
// gateways, so that the controllers make new keys in their own cluster, and gives each cluster the new public key of the
// other one. The connection is down meanwhile. Rotate may be called again after an interruption.
func (l *Link) Rotate(ctx context.Context, atConsumer, atProvider *cluster.Writer) error {
	writers := map[*end]*cluster.Writer{l.consumer: atConsumer, l.provider: atProvider}
	keys := map[*end][]byte{}
	for e := range writers {
		key, err := l.replaceKeys(ctx, e)
		if err != nil {
			return err
		}
		keys[e] = key
	}
	return errors.Join(l.consumer.applyKey(ctx, writers[l.consumer], keys[l.provider]), l.provider.applyKey(ctx, writers[l.provider], keys[l.consumer]))
}

// replaceKeys deletes the Secret with the keys and the pods of the cluster's gateway, and returns the new public key.
func (l *Link) replaceKeys(ctx context.Context, e *end) ([]byte, error) {
	if err := e.find(ctx); err != nil { // its keys may have been replaced since
		return nil, err
	}
	name, err := e.secretName()
	if err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: e.namespace(), Name: name}
	before := &corev1.Secret{}
	if err := e.Client.Get(ctx, key, before); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cluster %s: getting Secret %s, %w", e.Name, key, err)
	}
	l.Report("%s: replacing the keys of its gateway, in Secret %s", e.ID(), key)
	// The other Secret contains keys that have replaced others, or will replace them. The peer may accept them, too.
	for _, name := range e.secretNames(key.Name) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}}
		if err := e.Client.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cluster %s: deleting Secret %s/%s, %w", e.Name, key.Namespace, name, err)
		}
	}
	// Pods that run keep the connection with the old keys, and the controller manager makes no others while they do.
	pods := []client.DeleteAllOfOption{client.InNamespace(e.namespace()), client.MatchingLabels{wire.GatewayComponentLabel: wire.GatewayComponent}}
	if err := e.Client.DeleteAllOf(ctx, &corev1.Pod{}, pods...); err != nil {
		return nil, fmt.Errorf("cluster %s: deleting the pods of the gateway in namespace %s, %w", e.Name, e.namespace(), err)
	}
	var public []byte
	err = l.Await(ctx, "keys of "+e.ID(), func(ctx context.Context) (string, error) {
		secret := &corev1.Secret{}
		switch err := e.Client.Get(ctx, key, secret); {
		case apierrors.IsNotFound(err):
			return "waiting for new ones: the pods of the gateway end first", nil
		case err != nil:
			return "", fmt.Errorf("cluster %s: getting Secret %s, %w", e.Name, key, err)
		case secret.UID == before.UID || len(secret.Data[wire.PublicKeyField]) != keyLength:
			return "waiting for new ones", nil
		case bytes.Equal(secret.Data[wire.PublicKeyField], before.Data[wire.PublicKeyField]):
			return "", fmt.Errorf("cluster %s: another tool has restored the old keys in Secret %s: replace them there", e.Name, key)
		}
		public = secret.Data[wire.PublicKeyField]
		return "", nil
	})
	return public, err
}

// secretNames returns the names of all Secrets with keys of the cluster's gateway: used, which other controllers than those of Refract
// may have named, and the two between which Refract alternates.
func (e *end) secretNames(used string) []string {
	name := ""
	if e.server != nil {
		name = e.server.Name
	} else {
		name = e.client.Name
	}
	names := []string{wire.GatewayObjectName(name), wire.AlternateKeysName(name)}
	if !slices.Contains(names, used) {
		names = append(names, used)
	}
	return names
}

// secretName returns the name of the Secret with the keys in use of the cluster's gateway.
func (e *end) secretName() (string, error) {
	reference := (*corev1.ObjectReference)(nil)
	if e.server != nil {
		reference = e.server.Status.SecretRef
	} else {
		reference = e.client.Status.SecretRef
	}
	if reference == nil {
		return "", fmt.Errorf("cluster %s: the gateway to %s has no keys yet: check its Events with refractctl doctor", e.Name, e.peer)
	}
	return reference.Name, nil
}
