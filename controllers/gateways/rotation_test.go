// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// complete makes all pods of a gateway available.
func complete(t *testing.T, deployment *appsv1.Deployment) {
	t.Helper()
	controllertest.Eventually(t, "the pods of the gateway", func() error {
		pods := &corev1.PodList{}
		if err := rome.Client.List(t.Context(), pods, client.InNamespace(deployment.Namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			if len(pods.Items[i].Status.Conditions) == 0 {
				rome.PatchStatus(t, &pods.Items[i], `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
			}
		}
		if err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
			return err
		}
		if s := deployment.Status; s.ObservedGeneration < deployment.Generation || s.UpdatedReplicas < 2 || s.AvailableReplicas < 2 {
			return fmt.Errorf("the status of the Deployment is %+v", s)
		}
		return nil
	})
}

// progress returns the annotation about the replacement of keys.
func progress(t *testing.T, deployment *appsv1.Deployment) (fields map[string]any) {
	t.Helper()
	rome.Get(t, deployment, deployment.Namespace, deployment.Name)
	if text := deployment.Annotations[wire.KeyRotationAnnotation]; text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &fields))
	}
	return fields
}

// backdate sets a time in the annotation to two days ago.
func backdate(t *testing.T, deployment *appsv1.Deployment, field string) {
	t.Helper()
	fields := progress(t, deployment)
	fields[field] = time.Now().Add(-48 * time.Hour).UTC().Format(time.RFC3339)
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	rome.Patch(t, deployment, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wire.KeyRotationAnnotation, text))
}

// TestKeyRotation checks all steps of the replacement of keys, with the permissions and the policies of the chart.
func TestKeyRotation(t *testing.T) {
	startRotating(t, time.Nanosecond)
	namespace := tenant(t, "milan")
	server := serverOf(namespace, "milan", corev1.ServiceTypeClusterIP)
	rome.Create(t, server)
	rome.Create(t, &api.PublicKey{ObjectMeta: metaOf(namespace, "milan"), Spec: api.PublicKeySpec{PublicKey: make([]byte, 32)}})
	deployment := awaitDeployment(t, namespace, "milan")
	awaitServer(t, server, "keys", func(s api.GatewayServerStatus) bool { return s.SecretRef != nil })
	assert.Equal(t, "gw-milan", server.Status.SecretRef.Name)
	first, second := &corev1.Secret{}, &corev1.Secret{}
	rome.Get(t, first, namespace, "gw-milan")
	assert.Empty(t, progress(t, deployment), "no keys are replaced before the pods are available")

	accept := func(keys ...[]byte) {
		t.Helper()
		rome.Patch(t, &api.PublicKey{ObjectMeta: metaOf(namespace, "milan")},
			fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wire.AcceptedKeysAnnotation, api.FormatKeys(keys)))
	}
	accept(first.Data["publicKey"])
	complete(t, deployment)
	awaitSecret := func(name string, than types.UID, into *corev1.Secret) {
		t.Helper()
		controllertest.Eventually(t, "new keys in "+name, func() error {
			err := rome.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into)
			if err == nil && into.UID == than {
				return fmt.Errorf("the keys are the former ones")
			}
			return err
		})
	}
	awaitSecret("gw-milan-alternate", "", second)
	assert.NotEqual(t, first.Data, second.Data)
	assert.Equal(t, base64.StdEncoding.EncodeToString(second.Data["publicKey"]), progress(t, deployment)["publicKey"])
	assert.Equal(t, first.OwnerReferences, second.OwnerReferences)

	// If the peer does not accept them, others are made after a day.
	accept(first.Data["publicKey"], make([]byte, 32))
	lost := second.UID
	backdate(t, deployment, "created")
	awaitSecret("gw-milan-alternate", lost, second)
	rome.Get(t, server, namespace, "milan")
	assert.Equal(t, "gw-milan", server.Status.SecretRef.Name)

	accept(first.Data["publicKey"], second.Data["publicKey"])
	awaitServer(t, server, "the new keys", func(s api.GatewayServerStatus) bool { return s.SecretRef.Name == "gw-milan-alternate" })
	rome.AwaitEvent(t, namespace, api.GatewayServerKind, "milan", "KeysReplaced")
	awaitUnused := func(want any) {
		t.Helper()
		controllertest.Eventually(t, "the record of the replaced keys", func() error {
			if unused := progress(t, deployment)["unused"]; unused != want {
				return fmt.Errorf("the Secret not in use is %v", unused)
			}
			return nil
		})
	}
	awaitUnused("gw-milan")
	// The replaced keys stay until the peer has answered for a while, and the active pod uses the new ones.
	stay := func() {
		t.Helper()
		backdate(t, deployment, "replaced")
		assert.Never(t, func() bool {
			return rome.Client.Get(t.Context(), client.ObjectKeyFromObject(first), &corev1.Secret{}) != nil
		}, time.Second, 100*time.Millisecond)
	}
	accept(second.Data["publicKey"], first.Data["publicKey"])
	stay()
	connection := &api.Connection{ObjectMeta: metaOf(namespace, "gw-milan"), Spec: api.ConnectionSpec{Type: api.ServerConnection,
		GatewayRef: corev1.ObjectReference{Kind: api.GatewayServerKind, Name: "milan"}}}
	connection.Labels = map[string]string{wire.RemoteClusterIDLabel: "milan"}
	rome.Create(t, connection)
	rome.PatchStatus(t, connection, fmt.Sprintf(`{"status":{"value":"Connected","latency":{"value":"1ms","timestamp":%q}}}`,
		time.Now().UTC().Format(time.RFC3339)))
	accept(first.Data["publicKey"], second.Data["publicKey"])
	stay()
	accept(second.Data["publicKey"], first.Data["publicKey"])
	backdate(t, deployment, "replaced")
	replaced := first.UID
	// The keys are old already, so the Secret is used for the next ones as soon as it is deleted.
	awaitSecret("gw-milan", replaced, first)
	assert.NotEqual(t, second.Data, first.Data)
	rome.Get(t, server, namespace, "milan")
	assert.Equal(t, "gw-milan-alternate", server.Status.SecretRef.Name)

	// The next keys disappear before they are used: the gateway does not change to them.
	rome.Delete(t, first)
	accept(second.Data["publicKey"], first.Data["publicKey"])
	awaitSecret("gw-milan", first.UID, first)
	rome.Get(t, server, namespace, "milan")
	assert.Equal(t, "gw-milan-alternate", server.Status.SecretRef.Name)
	accept(second.Data["publicKey"], first.Data["publicKey"])
	awaitServer(t, server, "the first Secret again", func(s api.GatewayServerStatus) bool { return s.SecretRef.Name == "gw-milan" })

	// Another version has changed back to the replaced keys: they are not deleted.
	awaitUnused("gw-milan-alternate")
	rome.PatchStatus(t, server, `{"status":{"secretRef":{"name":"gw-milan-alternate"}}}`)
	accept(first.Data["publicKey"], second.Data["publicKey"])
	backdate(t, deployment, "replaced")
	awaitUnused(nil)
	rome.Get(t, second, namespace, "gw-milan-alternate")

	// A damaged record is not guessed.
	rome.Patch(t, deployment, fmt.Sprintf(`{"metadata":{"annotations":{%q:"{"}}}`, wire.KeyRotationAnnotation))
	rome.AwaitEvent(t, namespace, api.GatewayServerKind, "milan", "InvalidGateway")
}

// TestKeysThatAreNotReplaced checks that keys of a user stay, and all keys where replacing them is disabled.
func TestKeysThatAreNotReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		interval time.Duration
		given    string
		isKnown  bool
	}{
		"disabled": {0, "", true}, "given": {time.Nanosecond, "own-keys", true}, "new": {time.Hour, "", true},
		"the peer runs Liqo": {time.Nanosecond, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			startRotating(t, c.interval)
			namespace := tenant(t, "milan")
			gatewayClient := clientOf(namespace, "milan")
			gatewayClient.Spec.SecretRef.Name = c.given
			key := &api.PublicKey{ObjectMeta: metaOf(namespace, "milan"), Spec: api.PublicKeySpec{PublicKey: make([]byte, 32)}}
			if c.isKnown {
				key.Annotations = map[string]string{wire.AcceptedKeysAnnotation: api.FormatKeys([][]byte{make([]byte, 32)})}
			}
			rome.Create(t, key)
			rome.Create(t, gatewayClient)
			deployment := awaitDeployment(t, namespace, "milan")
			complete(t, deployment)
			assert.Never(t, func() bool {
				err := rome.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gw-milan-alternate"}, &corev1.Secret{})
				return !apierrors.IsNotFound(err)
			}, time.Second, 100*time.Millisecond)
			assert.Empty(t, progress(t, deployment))
		})
	}
}

// TestPoliciesOfKeys checks that a compromised controller manager deletes no other Secrets, and that a compromised gateway gives the key
// of its peer to nobody else.
func TestPoliciesOfKeys(t *testing.T) {
	start(t)
	namespace, other := tenant(t, "milan"), rome.Namespace(t)
	rome.Create(t, clientOf(namespace, "milan"))
	awaitDeployment(t, namespace, "milan")
	access, err := rome.ConfigFor(controllertest.ManagerUser)
	require.NoError(t, err)
	manager, err := client.New(access, client.Options{Scheme: rome.Client.Scheme()})
	require.NoError(t, err)
	labels := map[string]string{wire.ComponentLabel: wire.GatewayComponent}
	for name, meta := range map[string]metav1.ObjectMeta{
		"without the label": {Namespace: namespace, Name: "gw-turin"},
		"another name":      {Namespace: namespace, Name: "password", Labels: labels},
		"another namespace": {Namespace: other, Name: "gw-milan", Labels: labels},
		"a kubeconfig":      {Namespace: other, Name: "kubeconfig-admin"},
	} {
		secret := &corev1.Secret{ObjectMeta: meta}
		rome.Create(t, secret)
		assert.ErrorContains(t, manager.Delete(t.Context(), secret), "deletes only Secrets with the keys of gateways", name)
	}

	key := func(n byte) string {
		raw := make([]byte, 32)
		raw[0] = n
		return base64.StdEncoding.EncodeToString(raw)
	}
	public := &api.PublicKey{ObjectMeta: metaOf(namespace, "milan"), Spec: api.PublicKeySpec{PublicKey: make([]byte, 32)}}
	public.Annotations = map[string]string{"example.com/owner": "platform"}
	rome.Create(t, public)
	config := rest.CopyConfig(rome.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":refract-gateway",
		Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	gateway, err := client.New(config, client.Options{Scheme: rome.Client.Scheme()})
	require.NoError(t, err)
	patch := func(text string) error {
		return gateway.Patch(t.Context(), public.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	annotate := func(name, value string) error {
		return patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value))
	}
	controllertest.Eventually(t, "the permissions of the gateway", func() error { return annotate(wire.AcceptedKeysAnnotation, key(9)) })
	assert.ErrorContains(t, patch(`{"spec":{"publicKey":"`+key(1)+`"}}`), "only to one that was announced before")
	require.NoError(t, annotate(wire.OtherPublicKeyAnnotation, key(0)+","+key(1)))
	assert.ErrorContains(t, patch(`{"spec":{"publicKey":"`+key(2)+`"}}`), "only to one that was announced before")
	assert.ErrorContains(t, patch(`{"spec":{"publicKey":null}}`), "only to one that was announced before")
	require.NoError(t, patch(`{"spec":{"publicKey":"`+key(1)+`"}}`))
	for name, text := range map[string]string{
		"an annotation": `{"annotations":{"example.com/owner":"eve"}}`, "a new annotation": `{"annotations":{"example.com/new":"eve"}}`,
		"no annotations": `{"annotations":null}`, "labels": `{"labels":{"liqo.io/remote-cluster-id":"turin"}}`,
		"finalizers": `{"finalizers":["example.com/mine"]}`,
		"owners":     `{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"1"}]}`,
	} {
		assert.ErrorContains(t, patch(`{"metadata":`+text+`}`), "changes only the key of its peer", name)
	}
}
