// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/plugins"
	"github.com/refract-project/refract/vk/reflection"
)

var (
	certificates = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}
	limitRanges  = schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}
)

// withEngine replaces the recorder with a real reflection.Manager with the default plugins and the given kinds.
func (l *lab) withEngine(kinds ...reflection.Kind) *lab {
	l.Helper()
	wasm := must(host.New(l.Context(), host.NewConfig()))(l.T)
	registry := host.NewRegistry(nil)
	chains := must(source.NewChains(l.Context(), source.ChainsConfig{Host: wasm, Registry: registry, Defaults: must(source.ReadFS(plugins.FS))(l.T)}))(l.T)
	l.extendTo(map[string]string{l.shop: l.remoteNamespace})
	manager := must(reflection.New(reflection.Options{
		Local: l.options.Local, Remote: l.options.Remote, LocalClusterID: "rome", RemoteClusterID: "milan", NodeName: l.node,
		TenantNamespace: l.tenant, Registry: registry, Kinds: append([]reflection.Kind{}, kinds...), ProbeEvery: 100 * time.Millisecond, Log: l.options.Log,
	}))(l.T)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = manager.Run(ctx) }()
	l.Cleanup(func() {
		cancel()
		<-ended
		assert.NoError(l, errors.Join(chains.Close(context.Background()), wasm.Close(context.Background())))
	})
	l.options.Engine, l.options.Chains = manager, chains
	return l
}

// extendTo writes the objects of offloaded namespaces, as the controllers of both clusters do.
func (l *lab) extendTo(remoteNamespaces map[string]string) {
	l.Helper()
	l.create(l.local, offloadingv1beta1.VirtualNodeGVR, l.tenant, fmt.Sprintf(`
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata: {name: %s}
spec: {clusterID: milan, offloadingPatch: {labelsNotReflected: [internal.example.org/cost]}}`, l.node))
	l.create(l.local, offloadingv1beta1.NamespaceMapGVR, l.tenant, `
{apiVersion: offloading.liqo.io/v1beta1, kind: NamespaceMap, metadata: {name: milan, labels: {liqo.io/remote-cluster-id: milan, liqo.io/remoteID: milan, liqo.io/replication: "true"}}}`)
	l.extend(remoteNamespaces)
}

// extend replaces the set of offloaded namespaces.
func (l *lab) extend(remoteNamespaces map[string]string) {
	l.Helper()
	var mapping, desired strings.Builder
	for local, remoteNamespace := range remoteNamespaces {
		fmt.Fprintf(&mapping, "%s: {remoteNamespace: %s, phase: Accepted}, ", local, remoteNamespace)
		fmt.Fprintf(&desired, "%s: %s, ", local, remoteNamespace)
	}
	l.patch(l.local, offloadingv1beta1.NamespaceMapGVR, l.tenant, "milan", "spec: {desiredMapping: {"+desired.String()+"}}")
	l.patch(l.local, offloadingv1beta1.NamespaceMapGVR, l.tenant, "milan", "status: {currentMapping: {"+mapping.String()+"}}", "status")
}

func (l *lab) patch(c *cluster, gvr schema.GroupVersionResource, namespace, name, change string, subresources ...string) {
	l.Helper()
	body := must(yaml.YAMLToJSON([]byte(change)))(l.T)
	must(c.dynamic.Resource(gvr).Namespace(namespace).Patch(l.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...))(l.T)
}

// sees waits until an object exists and check returns an empty text for it.
func (l *lab) sees(c *cluster, gvr schema.GroupVersionResource, namespace, name string, check func(*unstructured.Unstructured) string) {
	l.Helper()
	l.eventually(func() error {
		object, err := c.dynamic.Resource(gvr).Namespace(namespace).Get(l.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if complaint := check(object); complaint != "" {
			return fmt.Errorf("%s in %s: %s", name, c.Name(), complaint)
		}
		return nil
	})
}

// TestCertificatesCross checks that a Certificate of cert-manager is reflected, and that its status is reflected back.
func TestCertificatesCross(t *testing.T) {
	l := newLab(t).withEngine().start()
	const name = "certificates.cert-manager.io"
	shop, remoteNamespace := l.shop, l.remoteNamespace
	l.define(l.local, string(must(os.ReadFile("testdata/certificates.yaml"))(t)))
	t.Cleanup(func() { l.undefine(l.remote, name) })
	l.eventually(func() error {
		_, err := l.local.dynamic.Resource(certificates).List(t.Context(), metav1.ListOptions{})
		return err
	})
	l.create(l.local, certificates, shop, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: tls, labels: {app: shop, internal.example.org/cost: "7"}}
spec:
  secretName: tls
  dnsNames: [shop.example.org, "*.shop.example.org"]
  privateKey: {algorithm: ECDSA, size: 256}
  usages: [server auth, digital signature]
  issuerRef: {name: letters, kind: ClusterIssuer}`)
	l.create(l.local, certificates, shop, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: at-home, annotations: {liqo.io/skip-reflection: "true"}}
spec: {secretName: home, issuerRef: {name: letters}}`)

	l.reflect(name, "{group: cert-manager.io, version: v1, resource: certificates, copyDefinition: true, statusBack: true}")
	l.follow(l.condition(name, pluginsv1alpha1.MissingPermissionReason, "copy CustomResourceDefinition").Message)
	l.follow(l.condition(name, pluginsv1alpha1.MissingPermissionReason, "list, watch certificates").Message)
	l.condition(name, pluginsv1alpha1.ReflectingReason)

	original := must(l.local.dynamic.Resource(certificates).Namespace(shop).Get(t.Context(), "tls", metav1.GetOptions{}))(t)
	l.sees(l.remote, certificates, remoteNamespace, "tls", func(copied *unstructured.Unstructured) string {
		labels := copied.GetLabels()
		if labels["app"] != "shop" || labels["internal.example.org/cost"] != "" {
			return fmt.Sprintf("labels %v", labels)
		}
		return cmp.Diff(original.Object["spec"], copied.Object["spec"])
	})

	l.patch(l.remote, certificates, remoteNamespace, "tls", `status: {revision: 1, conditions: [
		{type: Ready, status: "True", reason: Ready, message: issued, observedGeneration: 1, lastTransitionTime: "2026-11-20T10:00:00Z"}]}`, "status")
	l.sees(l.local, certificates, shop, "tls", func(o *unstructured.Unstructured) string {
		revision, _, _ := unstructured.NestedInt64(o.Object, "status", "revision")
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if revision != 1 || len(conditions) != 1 {
			return fmt.Sprintf("status %v", o.Object["status"])
		}
		return ""
	})

	l.patch(l.local, certificates, shop, "tls", "spec: {dnsNames: [shop.example.org], duration: 2160h0m0s, privateKey: null}")
	l.sees(l.remote, certificates, remoteNamespace, "tls", func(copied *unstructured.Unstructured) string {
		spec, _ := copied.Object["spec"].(map[string]any)
		if names, _ := spec["dnsNames"].([]any); len(names) != 1 || spec["duration"] != "2160h0m0s" || spec["privateKey"] != nil {
			return fmt.Sprintf("spec %v", spec)
		}
		return ""
	})
	if _, err := l.remote.dynamic.Resource(certificates).Namespace(remoteNamespace).Get(t.Context(), "at-home", metav1.GetOptions{}); err == nil {
		t.Error("an object crossed that was to stay")
	}

	// After the ReflectedResource is deleted, no other object may be reflected, and the remote objects must be kept.
	// The test waits for an object of another resource, which shows that the engine has had enough time.
	const other = "limitranges"
	l.reflect(other, "{version: v1, resource: limitranges}")
	l.follow(l.condition(other, pluginsv1alpha1.MissingPermissionReason).Message)
	l.condition(other, pluginsv1alpha1.ReflectingReason)
	cross := func(limits string) {
		t.Helper()
		l.create(l.local, limitRanges, shop, "{apiVersion: v1, kind: LimitRange, metadata: {name: "+limits+"}, spec: {limits: [{type: Pod, max: {cpu: 1}}]}}")
		l.sees(l.remote, limitRanges, remoteNamespace, limits, func(*unstructured.Unstructured) string { return "" })
	}
	cross("before")
	copied := must(l.remote.dynamic.Resource(certificates).Namespace(remoteNamespace).Get(t.Context(), "tls", metav1.GetOptions{}))(t)
	require.NoError(t, l.local.dynamic.Resource(reflectedResources).Delete(t.Context(), name, metav1.DeleteOptions{}))
	l.eventually(func() error {
		l.follower.mu.Lock()
		defer l.follower.mu.Unlock()
		if p, runs := l.follower.running[name]; runs {
			return errors.New("the reflection runs on: " + p.kind)
		}
		return nil
	})
	require.NoError(t, l.local.dynamic.Resource(certificates).Namespace(shop).Delete(t.Context(), "tls", metav1.DeleteOptions{}))
	cross("after")
	stayed, err := l.remote.dynamic.Resource(certificates).Namespace(remoteNamespace).Get(t.Context(), "tls", metav1.GetOptions{})
	if err != nil || stayed.GetUID() != copied.GetUID() || stayed.GetDeletionTimestamp() != nil {
		t.Errorf("the copy did not stay: %v, %v", stayed, err)
	}
}

// TestNamespaceInTrouble checks that a default kind that the virtual kubelet may not read does not delay other kinds,
// and that another offloaded namespace is detected at once.
func TestNamespaceInTrouble(t *testing.T) {
	kinds := reflection.DefaultKinds()
	unreadable := kinds[slices.IndexFunc(kinds, func(k reflection.Kind) bool { return k.Name == reflection.ConfigMapKind })]
	unreadable.Source.Resource = "limitranges" // no role of the virtual kubelet contains this resource
	l := newLab(t).withEngine(unreadable)
	l.options.RecheckEvery = time.Hour
	l.start()
	l.both("trouble.example.org", "Namespaced")
	const name = "widgets.trouble.example.org"
	l.reflect(name, "{group: trouble.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	if manager, ok := l.options.Engine.(*reflection.Manager); !ok || manager.Synced() {
		t.Error("there was no trouble")
	}

	local, remoteNamespace := l.another("mail")
	l.extend(map[string]string{l.shop: l.remoteNamespace, local: remoteNamespace})
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "in namespace "+remoteNamespace)
}
