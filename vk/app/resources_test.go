// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/lab"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
)

// testResource checks that a kind is reflected without a restart if it is declared after the virtual kubelet has
// started. The namespace shop must be offloaded.
func testResource(ctx context.Context, t *testing.T, l *lab.Lab) {
	for _, side := range []*lab.Side{l.Consumer, l.Provider} {
		create(ctx, t, side, definitions, "", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]`)
	}
	create(ctx, t, l.Consumer, pluginsv1alpha1.ReflectedResourceGVR, "", `
apiVersion: plugins.refract.io/v1alpha1
kind: ReflectedResource
metadata: {name: widgets.example.org}
spec: {group: example.org, version: v1, resource: widgets}`)
	awaitStatus(ctx, t, l, "Add to ClusterRole acme-virtual-kubelet-extended here")
	for side, role := range map[*lab.Side]rbac.Role{l.Consumer: rbac.VirtualKubeletExtended(), l.Provider: rbac.VirtualKubeletRemote()} {
		roles := side.Client.RbacV1().ClusterRoles()
		present, err := roles.Get(ctx, role.Named(""), metav1.GetOptions{})
		require.NoError(t, err)
		present.Rules = append(present.Rules, rbacv1.PolicyRule{APIGroups: []string{"example.org"}, Resources: []string{"widgets"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}})
		_, err = roles.Update(ctx, present, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	awaitStatus(ctx, t, l, "reason:Reflecting")
	create(ctx, t, l.Consumer, widgets, "shop", "{apiVersion: example.org/v1, kind: Widget, metadata: {name: w}, size: 7}")
	require.NoError(t, l.Wait(ctx, "the widget to cross", func(ctx context.Context) (string, error) {
		object, err := l.Provider.Dynamic.Resource(widgets).Namespace("shop-home").Get(ctx, "w", metav1.GetOptions{})
		if err != nil || fmt.Sprint(object.Object["size"]) != "7" {
			return fmt.Sprint(object), err
		}
		return "", nil
	}))
}

// awaitStatus waits until the status of the ReflectedResource contains the given words.
func awaitStatus(ctx context.Context, t *testing.T, l *lab.Lab, words string) {
	t.Helper()
	require.NoError(t, l.Wait(ctx, "the ReflectedResource to say "+words, func(ctx context.Context) (string, error) {
		object, err := l.Consumer.Dynamic.Resource(pluginsv1alpha1.ReflectedResourceGVR).Get(ctx, "widgets.example.org", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if text := fmt.Sprint(object.Object["status"]); !strings.Contains(text, words) {
			return text, nil
		}
		return "", nil
	}))
}

func create(ctx context.Context, t *testing.T, side *lab.Side, gvr schema.GroupVersionResource, namespace, text string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	_, err := side.Dynamic.Resource(gvr).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	require.NoError(t, err)
}
