// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// state contains the relevant content of each object of a kind in a cluster, by namespace and name.
type state map[string]string

// examine compares the provider's objects with the objects that it expects according to the consumer's state and the
// documented rules. In the other direction, it compares the statuses of pods. It shares no code with reflection.
func (g *game) examine(ctx context.Context) (wrong []string, err error) {
	extended, err := g.extended(ctx)
	if err != nil {
		return nil, err
	}
	for _, kind := range []struct {
		name            string
		expected, there func(context.Context, string) (state, error)
	}{
		{"configmap", g.expectedConfigMaps, g.configMapsThere},
		{"secret", g.expectedSecrets, g.secretsThere},
		{"service", g.expectedServices, g.servicesThere},
		{"shadowpod", g.expectedShadows, g.shadowsThere},
		{"pod", g.podsHere, g.podsThere},
		{"their configmap", g.expectedTheirs, g.theirsThere},
	} {
		for _, namespace := range extended {
			expected, err := kind.expected(ctx, namespace)
			if err != nil {
				return nil, err
			}
			found, err := kind.there(ctx, namespace)
			if err != nil {
				return nil, err
			}
			if kind.name == "pod" || kind.name == "shadowpod" {
				if err := g.leaveOutFinished(ctx, namespace, expected, found); err != nil {
					return nil, err
				}
			}
			wrong = append(wrong, differences(kind.name, namespace, expected, found)...)
		}
	}
	left, err := g.leftNamespaces(ctx, extended)
	return append(wrong, left...), err
}

// leaveOutFinished removes finished pods from the states if a cluster was restored. The provider may have lost these
// pods, or may have deleted them before the consumer lost the request for their deletion. They are not run again.
func (g *game) leaveOutFinished(ctx context.Context, namespace string, states ...state) error {
	if !g.witness.wasPutBack(lab.ProviderID) && !g.witness.wasPutBack(lab.ConsumerID) {
		return nil
	}
	list, err := g.Consumer.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if list.Items[i].Status.Phase == corev1.PodSucceeded {
			for _, s := range states {
				delete(s, list.Items[i].Name)
			}
		}
	}
	return nil
}

func differences(kind, namespace string, expected, found state) (wrong []string) {
	for name, want := range expected {
		switch got, there := found[name]; {
		case !there:
			wrong = append(wrong, fmt.Sprintf("%s %s/%s (%s) is missing", kind, namespace, name, want))
		case got != want:
			wrong = append(wrong, fmt.Sprintf("%s %s/%s is %q, not %q", kind, namespace, name, got, want))
		}
	}
	for name := range found {
		if _, known := expected[name]; !known {
			wrong = append(wrong, fmt.Sprintf("%s %s/%s is left", kind, namespace, name))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// extended returns the namespaces of the consumer that are offloaded and are not being withdrawn.
func (g *game) extended(ctx context.Context) (names []string, err error) {
	list, err := g.Consumer.Dynamic.Resource(offloadings).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() == nil {
			names = append(names, list.Items[i].GetNamespace())
		}
	}
	return names, nil
}

// leftNamespaces returns the remote namespaces of namespaces that are no longer offloaded.
func (g *game) leftNamespaces(ctx context.Context, extended []string) (left []string, err error) {
	list, err := g.Provider.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: wire.RemoteClusterIDLabel + "=" + lab.ConsumerID + ",!" + wire.TenantNamespaceLabel})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if local, _ := strings.CutSuffix(list.Items[i].Name, "-"+lab.ConsumerID); !slices.Contains(extended, local) {
			left = append(left, "namespace "+list.Items[i].Name+" is left")
		}
	}
	return left, nil
}

func content(data map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		pairs = append(pairs, key+"="+data[key])
	}
	return strings.Join(pairs, ",")
}

// expectedConfigMaps returns all ConfigMaps in the consumer's namespace, because all of them are reflected. The
// ConfigMap with the root certificates has another name on the provider.
func (g *game) expectedConfigMaps(ctx context.Context, namespace string) (state, error) {
	list, err := g.Consumer.Client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	found := state{}
	if err == nil {
		for i := range list.Items {
			name := list.Items[i].Name
			if name == "kube-root-ca.crt" {
				name += "." + lab.ConsumerID[:min(len(lab.ConsumerID), 5)]
			}
			found[name] = content(list.Items[i].Data)
		}
	}
	return found, err
}

// configMapsThere returns the ConfigMaps on the provider, without the provider's own root certificates and the objects
// of the provider's users.
func (g *game) configMapsThere(ctx context.Context, namespace string) (state, error) {
	list, err := g.Provider.Client.CoreV1().ConfigMaps(remote(namespace)).List(ctx, metav1.ListOptions{})
	found := state{}
	if err == nil {
		for i := range list.Items {
			if name := list.Items[i].Name; name != "kube-root-ca.crt" && !strings.HasPrefix(name, theirsPrefix) {
				found[list.Items[i].Name] = content(list.Items[i].Data)
			}
		}
	}
	return found, err
}

// expectedTheirs returns the objects that a user of the provider has created in the remote namespace. They must not be
// changed.
func (g *game) expectedTheirs(_ context.Context, namespace string) (state, error) {
	found := state{}
	// The withdrawal has deleted these objects, even if the consumer lost the withdrawal in a restore.
	if g.witness.isWithdrawn(namespace) {
		return found, nil
	}
	g.users.mu.Lock()
	defer g.users.mu.Unlock()
	for _, name := range g.users.theirs[namespace] {
		found[name] = "value=" + name
	}
	return found, nil
}

func (g *game) theirsThere(ctx context.Context, namespace string) (state, error) {
	expected, err := g.expectedTheirs(ctx, namespace)
	if err != nil {
		return nil, err
	}
	list, err := g.Provider.Client.CoreV1().ConfigMaps(remote(namespace)).List(ctx, metav1.ListOptions{})
	found := state{}
	if err == nil {
		for i := range list.Items {
			// An object may exist even if the response to its creation was lost.
			if name := list.Items[i].Name; expected[name] != "" {
				found[name] = content(list.Items[i].Data)
			}
		}
	}
	return found, err
}

func secrets(list *corev1.SecretList) state {
	found := state{}
	for i := range list.Items {
		if list.Items[i].Type != corev1.SecretTypeServiceAccountToken {
			found[list.Items[i].Name] = string(list.Items[i].Data["value"])
		}
	}
	return found
}

func (g *game) expectedSecrets(ctx context.Context, namespace string) (state, error) {
	list, err := g.Consumer.Client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return secrets(list), nil
}

func (g *game) secretsThere(ctx context.Context, namespace string) (state, error) {
	list, err := g.Provider.Client.CoreV1().Secrets(remote(namespace)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return secrets(list), nil
}

func services(list *corev1.ServiceList) state {
	found := state{}
	for i := range list.Items {
		found[list.Items[i].Name] = fmt.Sprint(list.Items[i].Spec.Ports[0].Port)
	}
	return found
}

func (g *game) expectedServices(ctx context.Context, namespace string) (state, error) {
	list, err := g.Consumer.Client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return services(list), nil
}

func (g *game) servicesThere(ctx context.Context, namespace string) (state, error) {
	list, err := g.Provider.Client.CoreV1().Services(remote(namespace)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return services(list), nil
}

// expectedShadows returns the expected ShadowPods with their images. Each pod that is bound to the virtual node has a
// ShadowPod until the pod is gone.
func (g *game) expectedShadows(ctx context.Context, namespace string) (state, error) {
	list, err := g.Consumer.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	found := state{}
	if err == nil {
		for i := range list.Items {
			found[list.Items[i].Name] = list.Items[i].Spec.Containers[0].Image
		}
	}
	return found, err
}

func (g *game) shadowsThere(ctx context.Context, namespace string) (state, error) {
	list, err := g.Provider.Dynamic.Resource(schema.GroupVersionResource(offloading.GroupVersion.WithResource("shadowpods"))).Namespace(remote(namespace)).List(ctx, metav1.ListOptions{})
	found := state{}
	if err == nil {
		for i := range list.Items {
			containers, _, _ := unstructured.NestedSlice(list.Items[i].Object, "spec", "pod", "containers")
			image := ""
			if len(containers) == 1 {
				container, _ := containers[0].(map[string]any)
				image, _ = container["image"].(string)
			}
			found[list.Items[i].GetName()] = image
		}
	}
	return found, err
}

// statuses returns the statuses of pods in a form that can be compared. They must be the same in both clusters, except
// for the addresses.
func statuses(list *corev1.PodList) state {
	found := state{}
	for i := range list.Items {
		pod := &list.Items[i]
		ready := corev1.ConditionUnknown
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady {
				ready = condition.Status
			}
		}
		going := pod.DeletionTimestamp != nil
		found[pod.Name] = fmt.Sprintf("%s ready=%s containers=%d going=%t", pod.Status.Phase, ready, len(pod.Status.ContainerStatuses), going)
	}
	return found
}

func (g *game) podsHere(ctx context.Context, namespace string) (state, error) {
	list, err := g.Consumer.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return statuses(list), nil
}

func (g *game) podsThere(ctx context.Context, namespace string) (state, error) {
	list, err := g.Provider.Client.CoreV1().Pods(remote(namespace)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return statuses(list), nil
}
