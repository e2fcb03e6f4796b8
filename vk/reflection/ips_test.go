// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// ipCRD is the part of Liqo's IP resource that reflection reads.
const ipCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ips.ipam.liqo.io}
spec:
  group: ipam.liqo.io
  scope: Namespaced
  names: {kind: IP, plural: ips, singular: ip, listKind: IPList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}`

// defineIPs installs the CRD and grants the manager permission to read its objects.
func (l *lab) defineIPs() {
	l.Helper()
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crd := &unstructured.Unstructured{}
	require.NoError(l, yaml.Unmarshal([]byte(ipCRD), &crd.Object))
	if _, err := l.Local.Dynamic.Resource(definitions).Create(l.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		l.Fatal(err)
	}
	l.Eventually(func() error {
		_, err := l.Local.Dynamic.Resource(ipsResource).List(l.Context(), metav1.ListOptions{})
		return err
	})
	l.Allow("ipam.liqo.io", "ips")
}

func ip(name, from, to string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"ip": from}, "status": map[string]any{"ip": to}}}
}

// TestSlicesFollowIPs checks that addresses outside of the pod range are translated with the IP resources of the
// namespace. An IP resource that is created late, changes, or moves to another endpoint has an effect at once.
func TestSlicesFollowIPs(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) {
		o.FollowIPs = true
		o.LocalPodCIDRs, _ = ipmap.ParseRanges("--local-podcidr", []string{"10.1.0.0/16"})
	})
	l.defineIPs()
	l.Chains.Swap("EndpointSlice.discovery.k8s.io", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		var mapped []string
		for _, address := range []string{"10.1.2.3", "172.16.0.5"} {
			if ip, ok := env.RemapIP(address); ok {
				mapped = append(mapped, ip)
			}
		}
		return &host.Outcome{}, doc.SetString("metadata.annotations.mapped", strings.Join(mapped, " "))
	})
	l.Local.Create(t, l.Namespace, slice("web", "web", "10.1.2.3"))
	l.Start()
	mapped := func(want string) {
		t.Helper()
		l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/mapped", want))
	}
	mapped("10.1.2.3")
	ips := l.Local.Dynamic.Resource(ipsResource).Namespace(l.Namespace)
	created := reflectiontest.Must(ips.Create(t.Context(), ip("a", "172.16.0.5", "10.70.0.5"), metav1.CreateOptions{}))(t)
	mapped("10.1.2.3 10.70.0.5")
	created.Object["status"] = map[string]any{"ip": "10.70.0.6"}
	reflectiontest.Must(ips.Update(t.Context(), created, metav1.UpdateOptions{}))(t)
	mapped("10.1.2.3 10.70.0.6")
	require.NoError(t, ips.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	mapped("10.1.2.3")
}

// TestProviderThatHangs checks that a provider that accepts connections and never responds blocks neither local work
// nor the shutdown of the manager.
func TestProviderThatHangs(t *testing.T) {
	t.Parallel()
	listener := reflectiontest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	l := newLab(t, func(o *reflection.Options) {
		o.CallTimeout = time.Second
		remote := *o.Remote
		remote.Host = "https://" + listener.Addr().String()
		o.Remote = &remote
	})
	for i := range 30 {
		l.Local.Create(t, l.Namespace, service(fmt.Sprintf("web-%d", i), ""))
	}
	l.StartUnready()
	l.Eventually(func() error {
		if !l.Manager.Synced() {
			return errors.New("this cluster's side is not read")
		}
		return nil
	})
	l.Local.CreateNamespace(t, l.Namespace+"-not-extended")
	l.Local.Create(t, l.Namespace+"-not-extended", fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: stray}, spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`, l.Node))
	l.Present(l.Local, "Pod", l.Namespace+"-not-extended", "stray", reflectiontest.Field("status.reason", "OffloadingBackOff"))
	if l.Manager.Ready() {
		t.Error("a namespace is ready although nothing is known about its remote namespace")
	}
	began := time.Now()
	l.Stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %s", took)
	}
}
