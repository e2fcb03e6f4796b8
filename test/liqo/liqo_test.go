// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package liqo tests Refract together with Liqo itself. Two clusters with real nodes are joined with Liqo's own chart,
// controllers and command. Liqo's components are replaced by Refract's components one after the other, and then
// restored. Liqo is built from its sources: `make test-liqo`.
package liqo

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/charts"
	"github.com/refract-project/refract/hack"
	"github.com/refract-project/refract/internal/image"
	"github.com/refract-project/refract/test/page"
	"github.com/refract-project/refract/test/support/nodelab"
	"github.com/refract-project/refract/test/support/testenv"
)

// images maps the names of Liqo's images in its chart to the names of the commands in these images.
var images = map[string]string{
	"liqo-controller-manager": "liqo-controller-manager", "crd-replicator": "crd-replicator", "webhook": "liqo-webhook", "virtual-kubelet": "liqo-virtual-kubelet",
	"uninstaller": "uninstaller",
}

// values disable parts of Liqo's chart that are not needed for joining and offloading.
const values = "networking.enabled=false,ipam.internal.enabled=false,metricAgent.enabled=false,telemetry.enabled=false,proxy.enabled=false,offloading.disableNetworkCheck=true,storage.enabled=false"

// world contains the clusters and the state of a test.
type world struct {
	*testing.T
	lab   *nodelab.Lab
	tools string // folder with Liqo's commands
}

func begin(t *testing.T) *world {
	t.Helper()
	return beginWith(t, nodelab.Options{})
}

func beginWith(t *testing.T, options nodelab.Options) *world {
	t.Helper()
	if os.Getenv("REFRACT_LIQO") == "" {
		t.Skip("Liqo takes minutes to build: run `make test-liqo`")
	}
	testenv.NeedNodes(t)
	tools, err := hack.ToolDir("liqo")
	require.NoError(t, err)
	options.Log = t.Logf
	lab, err := nodelab.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Stop()) })
	for name, command := range images {
		binary, err := os.ReadFile(filepath.Join(tools, command))
		require.NoError(t, err)
		require.NoError(t, lab.Registry.PushFiles(t.Context(), "liqotech/"+name+":"+hack.Version("liqo"), v1.Config{Env: []string{"PATH=/usr/bin"}},
			image.File{Path: "usr/bin/" + name, Mode: 0o755, Content: binary}))
	}
	require.NoError(t, os.Symlink(filepath.Join(tools, "liqoctl"), lab.Path("bin/liqoctl")))
	return &world{T: t, lab: lab, tools: tools}
}

// run runs a command line in the administrator's shell, and returns its output.
func (w *world) run(format string, args ...any) string {
	w.Helper()
	out, err := w.try(format, args...)
	require.NoError(w, err)
	return strings.TrimSpace(out)
}

func (w *world) try(format string, args ...any) (string, error) {
	w.Helper()
	line, begun := fmt.Sprintf(format, args...), time.Now()
	out, err := w.lab.Run(line)
	w.Logf("$ %s (%.1f s)\n%s", line, time.Since(begun).Seconds(), out)
	return out, err
}

// eventually repeats a command line until it prints exactly the wanted output.
func (w *world) eventually(want, format string, args ...any) {
	w.Helper()
	line := fmt.Sprintf(format, args...)
	testenv.Eventually(w.T, func() error {
		out, err := w.lab.Run(line)
		if out = strings.TrimSpace(out); err == nil && out != want {
			err = fmt.Errorf("%s prints %q, not %q", line, out, want)
		}
		return err
	})
}

// explain logs the state of the clusters if the test has failed.
func (w *world) explain() {
	if !w.Failed() {
		return
	}
	for _, cluster := range w.lab.Clusters() {
		context := cluster.Name()
		for _, line := range []string{"get pods -A -o wide", "get events -A --sort-by=.lastTimestamp | tail -n 40", "-n liqo logs deployment/liqo-controller-manager --tail=40",
			"-n liqo logs deployment/liqo-crd-replicator --tail=20", "-n liqo logs deployment/liqo-webhook --tail=20",
			"get foreignclusters,tenants,resourceslices.authentication.liqo.io,quotas,virtualnodes,namespacemaps,shadowpods -A", "-n liqo logs deployment/refract-controller-manager --tail=40", "get identities -A", "-n liqo-tenant-milan logs deployment/vk-milan --tail=30"} {
			out, err := w.lab.Run(fmt.Sprintf("kubectl --context=%s %s", context, line))
			w.Logf("%s: %s\n%s %v", context, line, out, err)
		}
	}
}

// flags returns the flags of liqoctl install for a cluster.
func (w *world) flags(cluster *testenv.Cluster) string {
	return fmt.Sprintf("--cluster-id=%s --local-chart-path=%s --version=%s --pod-cidr=%s --service-cidr=%s --api-server-url=%s"+
		" --disable-telemetry --disable-kernel-version-check --skip-validation --set=%s --timeout=90s",
		cluster.Name(), filepath.Join(w.tools, "chart"), hack.Version("liqo"), cluster.PodCIDR(), cluster.ServiceCIDR(), cluster.Server(), values)
}

// shop installs Liqo in both clusters, joins them, and runs an application of rome in milan. Refract is not used.
func (w *world) shop() {
	w.Helper()
	w.run("liqoctl install --context=rome %s", w.flags(w.lab.Rome))
	w.run("liqoctl install --context=milan %s", w.flags(w.lab.Milan))
	w.run("liqoctl peer --context=rome --remote-context=milan --networking-disabled --skip-confirm --timeout=2m")
	w.open()
}

// open creates the application shop in the two joined clusters.
func (w *world) open() {
	w.Helper()
	w.run("kubectl create namespace shop")
	w.run("liqoctl offload namespace shop --pod-offloading-strategy=Remote --skip-confirm")
	w.run("kubectl --namespace=shop create deployment web --image=registry.example.com/web:1 --replicas=2")
	w.run("kubectl --namespace=shop rollout status deployment/web --timeout=2m")
}

// same returns a function that checks that the shop still has the pods that it has now, in both clusters.
func (w *world) same() func() {
	w.Helper()
	uids := func() []string {
		return strings.Fields(w.run("kubectl --namespace=shop get pods --output=jsonpath='{.items[*].metadata.uid}'") + " " +
			w.run("kubectl --context=milan --namespace=shop-rome get pods --output=jsonpath='{.items[*].metadata.uid}'"))
	}
	before := uids()
	return func() {
		w.Helper()
		assert.ElementsMatch(w, before, uids(), "the pods are others")
	}
}

// TestVirtualKubeletBesideLiqo replaces the virtual kubelet of one of Liqo's virtual nodes with Refract's, and then
// restores Liqo's. Both times, the pods must stay the same, and all operations must work. In the end, no permissions of
// Refract may be left.
func TestVirtualKubeletBesideLiqo(t *testing.T) {
	w := begin(t)
	defer w.explain()
	w.shop()
	same := w.same()

	w.run("refractctl liqo check")
	w.run("refractctl liqo adopt milan --image=registry.example.com/refract/virtual-kubelet:%s --timeout=2m", charts.AppVersion())
	w.run("refractctl liqo check")
	same()
	w.works("after adopting")

	w.run("refractctl liqo revert --timeout=2m")
	same()
	w.works("after reverting")
	assert.NotContains(w, w.run("kubectl get clusterroles,clusterrolebindings --output=name"), "refract", "what was granted is taken back")
}

// TestProviderBesideLiqo replaces the offloading part of Liqo's controller manager on the provider with Refract. The
// consumer uses Liqo's virtual kubelet, and the clusters are joined by Liqo. The pods must stay the same. Finally
// Refract is removed, and Liqo must work as before.
func TestProviderBesideLiqo(t *testing.T) {
	w := begin(t)
	defer w.explain()
	w.shop()
	same := w.same()
	w.run("liqoctl install --context=milan %s --set=offloading.enabled=false", w.flags(w.lab.Milan))
	w.run("refractctl install --context=milan --cluster-id=milan --registry=registry.example.com/refract --set=adoptLiqo=true")
	same()
	w.works("with Refract on the provider")
	w.grows()

	out, err := w.try("refractctl uninstall --context=milan")
	require.ErrorContains(w, err, "exit status", out)
	w.run("refractctl uninstall --context=milan --force")
	w.run("liqoctl install --context=milan %s --set=offloading.enabled=true", w.flags(w.lab.Milan))
	same()
	w.works("with Liqo on the provider")
}

// TestConsumerOfLiqo joins a consumer that runs Liqo with a provider that runs only Refract, using Liqo's command. Pods
// must run, certificates must be renewed, and a cordon must take effect. After the end of the peering, no objects of it
// may be left on the provider.
func TestConsumerOfLiqo(t *testing.T) {
	w := begin(t)
	defer w.explain()
	w.run("liqoctl install --context=rome %s", w.flags(w.lab.Rome))
	w.run("refractctl install --context=milan --cluster-id=milan --registry=registry.example.com/refract --set=authentication.enabled=true,tenants.unlimitedResources=true")
	before := w.objects()
	w.run("liqoctl peer --context=rome --remote-context=milan --networking-disabled --skip-confirm --timeout=2m")
	w.open()
	w.works("with Liqo on the consumer")
	w.grows()
	w.renews("resourceslice-milan", "identity", ".spec.authParams.signedCRT")
	// Liqo requests this certificate, but does not store it.
	w.renews("controlplane-milan", "renew", ".status.authParams.signedCRT")
	w.works("with renewed certificates")

	w.run("kubectl --context=milan --namespace=liqo-tenant-rome patch tenant rome --type=merge --patch='{\"spec\":{\"tenantCondition\":\"Cordoned\"}}'")
	w.eventually("true", "kubectl --context=milan --namespace=liqo-tenant-rome get quotas --output=jsonpath='{.items[*].spec.cordoned}'")
	w.run("kubectl --context=milan --namespace=liqo-tenant-rome patch tenant rome --type=merge --patch='{\"spec\":{\"tenantCondition\":\"Active\"}}'")
	w.works("after a cordon")

	w.run("liqoctl unoffload namespace shop --skip-confirm")
	w.run("kubectl --namespace=liqo-tenant-milan delete resourceslices.authentication.liqo.io --all")
	w.eventually("", "kubectl get nodes --selector=liqo.io/type=virtual-node --output=name")
	w.run("liqoctl unauthenticate --context=rome --remote-context=milan --skip-confirm --timeout=1m")
	w.run("kubectl --context=milan delete namespace liqo-tenant-rome")
	w.eventually(before, "%s", listing)
}

// TestProviderOfLiqo joins a consumer that runs only Refract with a provider that runs Liqo. Pods must run, and
// continue to run when more resources are requested. After the end of the peering, no objects of it may be left in
// either cluster.
func TestProviderOfLiqo(t *testing.T) {
	w := begin(t)
	defer w.explain()
	w.run("liqoctl install --context=milan %s", w.flags(w.lab.Milan))
	w.run("refractctl install --context=rome --cluster-id=rome --registry=registry.example.com/refract")
	before, here := w.objects(), w.run("%s", consumerListing)
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=2 --memory=2Gi --dry-run")
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=2 --memory=2Gi")
	w.run("kubectl create namespace shop")
	w.run("refractctl offload namespace shop --pod-offloading-strategy=Remote")
	w.run("kubectl --namespace=shop create deployment web --image=registry.example.com/web:1 --replicas=2")
	w.run("kubectl --namespace=shop rollout status deployment/web --timeout=2m")
	w.works("with Liqo on the provider")
	same := w.same()
	// The second run of the command requests other resources.
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=3 --memory=2Gi")
	w.eventually("3", "kubectl --context=milan --namespace=liqo-tenant-rome get quotas --output=jsonpath='{.items[0].spec.resources.cpu}'")
	w.eventually("3", "kubectl get node milan --output=jsonpath='{.status.allocatable.cpu}'")
	same()
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=1 --memory=1Gi --virtual-node=milan-b")
	out, err := w.try("refractctl create virtualnode milan-c --context=rome --provider=milan")
	require.Error(w, err, out)
	assert.Contains(w, out, "--virtual-node=milan-c")
	w.run("refractctl info --context=rome")
	w.works("with a second virtual node")
	w.run("liqoctl drain tenant rome --context=milan --skip-confirm")
	w.eventually("", "kubectl --context=milan --namespace=liqo-tenant-rome get resourceslices.authentication.liqo.io --output=name")
	w.run("kubectl --context=milan wait --for=delete namespace/shop-rome --timeout=2m")
	w.run("liqoctl activate tenant rome --context=milan --skip-confirm")
	w.eventually("milan milan-b", "kubectl --context=milan --namespace=liqo-tenant-rome get resourceslices.authentication.liqo.io --output=jsonpath='{.items[*].metadata.name}'")
	w.eventually("2", "kubectl --context=milan --namespace=shop-rome get pods --field-selector=status.phase=Running --output=name | wc -l")
	w.works("after a drain by Liqo")

	w.run("kubectl delete namespace shop")
	w.run("refractctl unpeer --context=rome --remote-context=milan")
	w.eventually(before, "%s", listing)
	w.eventually(here, "%s", consumerListing)
}

// TestMigration runs the documented commands for migrating two clusters from Liqo to Refract and back. Offloading must
// work before, between and after the migrations. The test only adds timeouts to some commands of liqoctl.
func TestMigration(t *testing.T) {
	w := begin(t)
	defer w.explain()
	w.shop()
	w.works("with Liqo")
	lines, err := page.CommandsOf("../../docs/liqo.md", "A pair of clusters")
	require.NoError(t, err)
	besides := map[string]string{"liqoctl uninstall": " --timeout=2m", "liqoctl unpeer": " --timeout=2m"}
	follow := func(from, to string) {
		t.Helper()
		followed := 0
		for ; len(lines) > 0 && (to == "" || !strings.HasPrefix(lines[0], to)); lines = lines[1:] {
			words := strings.Fields(lines[0])
			require.GreaterOrEqual(t, len(words), 2, lines[0])
			line := lines[0] + besides[words[0]+" "+words[1]]
			if strings.HasPrefix(line, "liqoctl uninstall") {
				w.uninstalls(line)
			} else {
				w.run("%s", line)
			}
			followed++
		}
		require.Positive(t, followed, "the page has no commands from %s to %s", from, to)
	}
	follow("liqoctl unoffload", "refractctl install")
	assert.Empty(t, w.run("kubectl get nodes --selector=liqo.io/type=virtual-node --output=name"))
	// With the strategy Remote, the pods would be pending until the namespace is offloaded again, so they are removed
	// in the meantime.
	w.run("kubectl --namespace=shop scale deployment/web --replicas=0")
	follow("refractctl install", "refractctl unoffload")
	w.run("kubectl --namespace=shop scale deployment/web --replicas=2")
	w.run("kubectl --namespace=shop rollout status deployment/web --timeout=2m")
	w.works("with Refract")
	w.run("kubectl --namespace=shop scale deployment/web --replicas=0")
	follow("refractctl unoffload", "")
	for _, context := range []string{"rome", "milan"} {
		assert.NotContains(t, w.run("kubectl --context=%s get clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingadmissionpolicies --output=name", context), "refract", "in %s", context)
	}
	w.run("kubectl delete namespace shop")
	w.shop()
	w.works("with Liqo again")
}

// uninstalls uninstalls Liqo. After liqoctl unpeer, Liqo's ForeignCluster may still report an active peering until
// Liqo's controller manager is restarted. The documentation describes this.
func (w *world) uninstalls(line string) {
	w.Helper()
	if _, err := w.try("%s", line); err == nil {
		return
	}
	context := strings.Fields(line)[2]
	w.run("kubectl %s --namespace=liqo rollout restart deployment/liqo-controller-manager", context)
	w.run("kubectl %s --namespace=liqo rollout status deployment/liqo-controller-manager --timeout=2m", context)
	testenv.Eventually(w.T, func() error { _, err := w.try("%s", line); return err })
}

// consumerListing is a command line that prints the objects of a peering on the consumer.
const consumerListing = "kubectl get namespaces,nodes,clusterroles,clusterrolebindings,foreignclusters --output=name && " +
	"kubectl get secrets,serviceaccounts,roles,rolebindings,deployments,virtualnodes,namespacemaps --all-namespaces --output=name"

// listing is a command line that prints the objects of a peering on the provider.
const listing = "kubectl --context=milan get namespaces,clusterrolebindings --output=name && " +
	"kubectl --context=milan get tenants,resourceslices.authentication.liqo.io,renews,quotas,namespacemaps,rolebindings --all-namespaces --output=name"

func (w *world) objects() string { w.Helper(); return w.run("%s", listing) }

// renews makes Liqo request a new certificate for an identity, and waits until a field of a resource on the consumer
// has changed. where is the JSONPath of the field.
func (w *world) renews(identity, resource, where string) {
	w.Helper()
	certificate := fmt.Sprintf("kubectl --namespace=liqo-tenant-milan get %s %s --ignore-not-found --output=jsonpath='{%s}' | md5sum", resource, identity, where)
	before := w.run("%s", certificate)
	w.run("kubectl --namespace=liqo-tenant-milan annotate identity %s liqo.io/renew=true", identity)
	testenv.Eventually(w.T, func() error {
		after, err := w.lab.Run(certificate)
		if err == nil && strings.TrimSpace(after) == before {
			err = fmt.Errorf("%s %s has no other certificate", resource, identity)
		}
		return err
	})
	w.run("kubectl --namespace=liqo-tenant-milan annotate identity %s liqo.io/renew-", identity)
}

// grows requests more resources from the provider. The provider must grant them, and enforce the additional Quota even
// while it is cordoned.
func (w *world) grows() {
	w.Helper()
	w.run("liqoctl create resourceslice more --remote-cluster-id=milan --cpu=1 --memory=1Gi --pods=2")
	w.eventually("more 2", "kubectl --context=milan --namespace=liqo-tenant-rome get quotas --output=jsonpath='{range .items[?(@.metadata.ownerReferences[0].name==\"more\")]}{.metadata.ownerReferences[0].name} {.spec.resources.pods}{end}'")
	w.eventually("True", "kubectl get node more --output=jsonpath='{.status.conditions[?(@.type==\"Ready\")].status}'")
	w.run(`kubectl --namespace=shop create deployment more --image=registry.example.com/web:1 --replicas=0`)
	w.run(`kubectl --namespace=shop patch deployment more --patch='{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"more"}}}}}'`)
	w.run("kubectl --namespace=shop scale deployment/more --replicas=2")
	w.run("kubectl --namespace=shop rollout status deployment/more --timeout=1m")
	w.run("kubectl --context=milan --namespace=liqo-tenant-rome annotate resourceslices.authentication.liqo.io more liqo.io/cordon=true")
	// The cordon of the ResourceSlice also applies to its Quota.
	w.eventually("true", "kubectl --context=milan --namespace=liqo-tenant-rome get quota %s --output=jsonpath='{.spec.cordoned}'", auth.ResourceSliceUser("more", "rome"))
	w.run("kubectl --namespace=shop delete pods --selector=app=more --wait=false")
	w.eventually("", "kubectl --context=milan --namespace=shop-rome get pods --selector=app=more --output=name")
	w.run("kubectl --context=milan --namespace=liqo-tenant-rome annotate resourceslices.authentication.liqo.io more liqo.io/cordon-")
	w.run("kubectl --namespace=shop rollout status deployment/more --timeout=1m")
	w.run("kubectl --namespace=shop delete deployment more")
	w.eventually("2", "kubectl --context=milan --namespace=shop-rome get pods --output=name | wc -l")
	w.run("kubectl --namespace=liqo-tenant-milan delete resourceslices.authentication.liqo.io more")
	w.eventually("1", "kubectl --context=milan --namespace=liqo-tenant-rome get quotas --output=name | wc -l")
	w.eventually("", "kubectl get node more --ignore-not-found --output=name")
}

// works checks the usual operations on a virtual node: pods are created and deleted, a Service is reflected, and logs
// and exec work.
func (w *world) works(when string) {
	w.Helper()
	w.Log(when)
	w.eventually("shop", "kubectl --namespace=shop exec deployment/web -- sh -c 'echo shop'")
	w.run("kubectl --namespace=shop logs deployment/web")
	w.run("kubectl --namespace=shop scale deployment/web --replicas=3")
	w.run("kubectl --namespace=shop rollout status deployment/web --timeout=1m")
	w.eventually("3", "kubectl --context=milan --namespace=shop-rome get pods --field-selector=status.phase=Running --output=name | wc -l")
	w.run("kubectl --namespace=shop expose deployment web --port=8080")
	w.eventually("service/web", "kubectl --context=milan --namespace=shop-rome get service web --output=name")
	w.eventually("3", "kubectl --context=milan --namespace=shop-rome get endpointslices --selector=kubernetes.io/service-name=web --output=jsonpath='{range .items[*].endpoints[*]}{.addresses[0]}{\"\\n\"}{end}' | wc -l")
	w.run("kubectl --namespace=shop delete service web")
	w.eventually("", "kubectl --context=milan --namespace=shop-rome get service --output=name")
	w.run("kubectl --namespace=shop scale deployment/web --replicas=2")
	w.eventually("2", "kubectl --context=milan --namespace=shop-rome get pods --output=name | wc -l")
}

// TestToolsOfLiqo checks that liqoctl works with two clusters that run Refract. All commands and flags in the help of
// liqoctl must be documented.
func TestToolsOfLiqo(t *testing.T) {
	w := begin(t)
	defer w.explain()
	w.documented(t)
	for _, cluster := range []*testenv.Cluster{w.lab.Rome, w.lab.Milan} {
		w.run("refractctl install --context=%[1]s --cluster-id=%[1]s --registry=registry.example.com/refract --cluster-labels=tier=%[1]s --api-server-url=%[2]s"+
			" --set=authentication.enabled=true,authentication.peeringUsers=true,tenants.unlimitedResources=true --skip-confirm", cluster.Name(), cluster.Server())
	}
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=2 --memory=2Gi --networking-disabled --skip-confirm")
	assert.Contains(t, w.run("liqoctl version --context=rome"), "Server version: "+charts.AppVersion())
	for query, want := range map[string]string{"local.clusterid": "rome", "local.version": charts.AppVersion(), "local.apiserveraddr": w.lab.Rome.Server(), "health.healthy": "true"} {
		assert.Equal(t, want, w.run("liqoctl info --context=rome --get=%s 2>/dev/null", query), query)
	}
	assert.Contains(t, w.run("liqoctl info --context=milan --get=local.labels 2>/dev/null"), "tier")
	assert.Contains(t, w.run("liqoctl info --context=rome --get=peerings.peers 2>/dev/null"), "milan")
	assert.Contains(t, w.run("liqoctl info peer milan --context=rome 2>/dev/null"), "milan")
	kubeconfig := w.run("liqoctl generate peering-user --context=milan --consumer-cluster-id=turin 2>/dev/null")
	assert.Contains(t, kubeconfig, "client-certificate-data")

	w.run("liqoctl create virtualnode more --remote-cluster-id=milan --kubeconfig-secret-name=kubeconfig-controlplane-milan --cpu=1 --memory=1Gi --output=yaml 2>/dev/null | kubectl apply --filename=-")
	w.eventually("ServiceAccountNotFound", "kubectl --namespace=liqo-tenant-milan get virtualnode more --output=jsonpath='{.status.conditions[?(@.type==\"VirtualKubelet\")].reason}'")
	w.run("refractctl create virtualnode more --context=rome --provider=milan")
	w.eventually("1", "kubectl get node more --output=jsonpath='{.status.allocatable.cpu}'")
	w.run("liqoctl create resourceslice unsent --remote-cluster-id=milan --output=yaml 2>/dev/null | kubectl apply --filename=-")
	w.eventually("NotSent", "kubectl --namespace=liqo-tenant-milan get resourceslices.authentication.liqo.io unsent --output=jsonpath='{.status.conditions[?(@.type==\"Resources\")].reason}'")
	w.run("kubectl --namespace=liqo-tenant-milan delete resourceslices.authentication.liqo.io unsent")

	w.open()
	w.works("offloaded by liqoctl")
	w.run("liqoctl cordon tenant rome --context=milan --skip-confirm")
	w.eventually("true", "kubectl --context=milan --namespace=liqo-tenant-rome get quotas.offloading.liqo.io rome --output=jsonpath='{.spec.cordoned}'")
	w.run("liqoctl uncordon tenant rome --context=milan --skip-confirm")
	w.eventually("", "kubectl --context=milan --namespace=liqo-tenant-rome get quotas.offloading.liqo.io rome --output=jsonpath='{.spec.cordoned}'")
	for drain, activate := range map[string]string{"refractctl drain tenant rome --context=milan --timeout=2m": "liqoctl activate tenant rome --context=milan --skip-confirm", "liqoctl drain tenant rome --context=milan --skip-confirm": "refractctl activate tenant rome --context=milan"} {
		w.run("%s", drain)
		w.run("kubectl --context=milan wait --for=delete namespace/shop-rome --timeout=1m")
		w.run("%s", activate)
		w.eventually("2", "kubectl --context=milan --namespace=shop-rome get pods --field-selector=status.phase=Running --output=name | wc -l")
		w.works("after " + drain)
	}
	w.run("liqoctl unoffload namespace shop --skip-confirm")
	w.run("refractctl delete virtualnode more --context=rome")
	w.run("refractctl unpeer --context=rome --remote-context=milan --skip-confirm")
	w.eventually("", "kubectl --context=milan get tenants.authentication.liqo.io --all-namespaces --output=name")
}

// documented compares the help of liqoctl with the table in the documentation.
func (w *world) documented(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../docs/liqo.md")
	require.NoError(t, err)
	commands, problems := compareTable(string(page), func(path string) string {
		help, err := w.lab.Run("liqoctl " + path + " --help 2>/dev/null")
		require.NoError(t, err, path)
		return help
	})
	assert.Empty(t, problems)
	assert.Greater(t, commands, 50, "the help was not understood")
}

// compareTable compares the table of commands and flags on a page with the help of liqoctl, in both directions. It
// returns the number of commands that occur in both.
func compareTable(page string, help func(path string) string) (commands int, problems []string) {
	rows := map[string]string{}
	_, table, _ := strings.Cut(page, "\n| liqoctl |")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(line, "| `") {
			rows[name] = rest
		}
	}
	missing := maps.Clone(rows)
	delete(missing, "(all)")
	everywhere := rows["(all)"]
	var visit func(path string)
	visit = func(path string) {
		text := help(path)
		children := sectionOf(text, "Available Commands:")
		for _, child := range children {
			if name := strings.Fields(child)[0]; name != "help" {
				visit(strings.TrimSpace(path + " " + name))
			}
		}
		row, ok := rows[path]
		if !ok {
			if len(children) == 0 {
				problems = append(problems, "docs/liqo.md has no row for liqoctl "+path)
			}
			return
		}
		commands++
		delete(missing, path)
		if !strings.Contains(row, "`") && strings.HasPrefix(row, " | |") && len(row) > len(" | | |\n") {
			return // the command has a replacement, so its flags need no rows
		}
		existing := map[string]bool{}
		for _, line := range slices.Concat(sectionOf(text, "Flags:"), sectionOf(text, "Global Flags:")) {
			existing[longFlag.FindString(line)] = true
		}
		for _, line := range sectionOf(text, "Flags:") {
			if flag := longFlag.FindString(line); flag != "" && flag != "--help" && !strings.Contains(everywhere+row, "`"+flag+"`") {
				problems = append(problems, fmt.Sprintf("docs/liqo.md does not say what liqoctl %s %s is", path, flag))
			}
		}
		for _, found := range quotedFlag.FindAllStringSubmatch(renamedTo.ReplaceAllString(row, ""), -1) {
			if !existing[found[1]] {
				problems = append(problems, fmt.Sprintf("docs/liqo.md has liqoctl %s %s, which does not exist", path, found[1]))
			}
		}
	}
	visit("")
	for _, path := range slices.Sorted(maps.Keys(missing)) {
		problems = append(problems, "docs/liqo.md has a row for liqoctl "+path+", which does not exist")
	}
	return commands, problems
}

var (
	// quotedFlag matches a flag of liqoctl in a row of the table.
	quotedFlag = regexp.MustCompile("`(--[a-z][a-z0-9-]*)`")
	// renamedTo matches the name of a flag of refractctl in a row of the table.
	renamedTo = regexp.MustCompile("is also called `--[a-z-]+`")
)

// TestTheTableIsComparedInBothDirections checks that differences are found in both directions.
func TestTheTableIsComparedInBothDirections(t *testing.T) {
	t.Parallel()
	help := func(path string) string {
		return map[string]string{
			"":     "\nAvailable Commands:\n  peer   join\n  help   help\n\n",
			"peer": "\nFlags:\n      --mtu int     size\n      --help     help\n      --verbose   more\n\nGlobal Flags:\n      --context string  name\n\n",
		}[path]
	}
	const head = "\n| liqoctl | same |\n|---|---|\n| `(all)` | `--verbose` |\n"
	for table, want := range map[string][]string{
		head + "| `peer` | `--mtu` is also called `--size`, `--context` |\n\n| `--other` | a table |\n": nil,
		head + "| `peer` | `--context` |\n\n":           {"docs/liqo.md does not say what liqoctl peer --mtu is"},
		head + "| `peer` | `--mtu`, `--gone` |\n\n":     {"docs/liqo.md has liqoctl peer --gone, which does not exist"},
		head + "| `peer` | `--mtu` |\n| `meet` | |\n\n": {"docs/liqo.md has a row for liqoctl meet, which does not exist"},
		head + "\n": {"docs/liqo.md has no row for liqoctl peer"},
	} {
		_, problems := compareTable(table, help)
		assert.Equal(t, want, problems, table)
	}
}

var longFlag = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// sectionOf returns the lines between a heading and the next empty line.
func sectionOf(help, heading string) (lines []string) {
	_, section, found := strings.Cut(help, "\n"+heading+"\n")
	if !found {
		return nil
	}
	section, _, _ = strings.Cut(section, "\n\n")
	return strings.Split(strings.TrimSpace(section), "\n")
}

// TestRenewalAtLiqo checks that another run of peer renews certificates with a very short lifetime, and does not leave
// a Renew behind. The certificates are due for renewal from the beginning, because their validity starts five minutes
// before they are signed.
func TestRenewalAtLiqo(t *testing.T) {
	w := beginWith(t, nodelab.Options{CertificateLife: 2 * time.Minute})
	defer w.explain()
	w.run("liqoctl install --context=milan %s", w.flags(w.lab.Milan))
	w.run("refractctl install --context=rome --cluster-id=rome --registry=registry.example.com/refract")
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=2 --memory=2Gi")
	secrets := []string{"kubeconfig-controlplane-milan", "kubeconfig-resourceslice-milan"}
	certificate := func(secret string) string {
		encoded := w.run("kubectl --namespace=liqo-tenant-milan get secret %s --output=jsonpath='{.data.kubeconfig}'", secret)
		kubeconfig, err := base64.StdEncoding.DecodeString(encoded)
		require.NoError(w, err)
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		require.NoError(w, err)
		return string(config.CertData)
	}
	before := map[string]string{}
	for _, secret := range secrets {
		before[secret] = certificate(secret)
	}
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=2 --memory=2Gi")
	for _, secret := range secrets {
		assert.NotEqual(w, before[secret], certificate(secret), "%s was not renewed", secret)
	}
	w.eventually("", "kubectl --context=milan get renews --all-namespaces --output=name")
	w.run("refractctl unpeer --context=rome --remote-context=milan")
}
