// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package join tests joining two empty clusters with only refractctl, and separating them again. It also tests errors
// that users may make. It follows a page of the documentation; package test/nodes follows the same page on real nodes.
// The control planes are real, including signers and garbage collectors. The nodes are simulated: the Deployments of
// the chart and of the controllers run as processes on this machine, with the arguments and the ServiceAccount of the
// pods.
package join

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/doctor"
	"github.com/refract-project/refract/test/deployments"
	"github.com/refract-project/refract/test/page"
	"github.com/refract-project/refract/test/support/permissions"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// side is one of the clusters.
type side struct {
	*deployments.Cluster
	client kubernetes.Interface
}

// world contains the clusters and the state of a test.
type world struct {
	*testing.T
	rome, milan *side
	sides       map[string]*side // keyed by the name of the context
	kubeconfig  string
	kubectl     string
	page        []string // lines of the page that have not been run yet
}

// replicas sets the number of replicas to one, because this machine runs only one process for each Deployment.
const replicas = "--set=controllerManager.replicas=1,virtualKubelet.replicas=1"

// begin starts rome, milan and the given additional clusters.
func begin(t *testing.T, others ...string) *world {
	t.Helper()
	return beginWith(t, func(*testenv.Options) {}, others...)
}

// beginWith starts clusters as begin does, but changes the options of the control planes.
func beginWith(t *testing.T, change func(*testenv.Options), others ...string) *world {
	t.Helper()
	log.SetLogger(logr.Discard())
	kubectl, err := tools.Kubectl()
	require.NoError(t, err)
	w := &world{T: t, kubectl: kubectl, kubeconfig: filepath.Join(t.TempDir(), "config"), sides: map[string]*side{}}
	merged := clientcmdapi.NewConfig()
	names := append([]string{"rome", "milan"}, others...)
	var options []testenv.Options
	for _, name := range names {
		own := testenv.Options{Name: name, KwokNodes: 1, AuditWritesOf: permissions.Groups("liqo", names...)}
		change(&own)
		options = append(options, own)
	}
	for i, cluster := range testenv.ForTest(t, options...) {
		client, err := kubernetes.NewForConfig(cluster.Config())
		require.NoError(t, err)
		s := &side{Cluster: &deployments.Cluster{Cluster: cluster, Client: client}, client: client}
		t.Cleanup(func() { assert.NoError(t, written.AddFile(cluster.AuditLogPath())) })
		w.sides[names[i]] = s
		own, err := clientcmd.LoadFromFile(cluster.Kubeconfig())
		require.NoError(t, err)
		name := names[i]
		context := own.Contexts[own.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = own.Clusters[context.Cluster], own.AuthInfos[context.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	w.rome, w.milan = w.sides["rome"], w.sides["milan"]
	stranger := filepath.Join(t.TempDir(), "stranger")
	require.NoError(t, w.milan.KubeconfigFor(stranger, "stranger"))
	own, err := clientcmd.LoadFromFile(stranger)
	require.NoError(t, err)
	merged.AuthInfos["stranger"] = own.AuthInfos["stranger"]
	merged.Contexts["stranger"] = &clientcmdapi.Context{Cluster: "milan", AuthInfo: "stranger"}
	merged.CurrentContext = "rome"
	require.NoError(t, clientcmd.WriteToFile(*merged, w.kubeconfig))
	return w
}

// refractctl runs a command line and returns its output.
func (w *world) refractctl(args ...string) (output string, err error) {
	w.Helper()
	var out bytes.Buffer
	command := cli.NewCommand("refractctl")
	command.SetArgs(append(args, "--kubeconfig="+w.kubeconfig))
	command.SetOut(&out)
	command.SetErr(&out)
	err = command.ExecuteContext(w.Context())
	w.Logf("refractctl %s\n%s", strings.Join(args, " "), out.String())
	return out.String(), err
}

// read reads the command lines from a page of the documentation.
func (w *world) read(path string) {
	w.Helper()
	var err error
	w.page, err = page.Commands(path)
	require.NoError(w, err)
}

// follow runs the next lines of the page, up to the line with the given prefix (exclusive) or to the end. It adds the
// options that are necessary because the API servers use loopback addresses and because there is only one process for
// each Deployment.
func (w *world) follow(until string) {
	w.Helper()
	besides := map[string][]string{"install": {replicas}, "peer": {"--remote-api-server-url=" + w.milan.Config().Host}}
	for ; len(w.page) > 0 && (until == "" || !strings.HasPrefix(w.page[0], until)); w.page = w.page[1:] {
		words := strings.Fields(w.page[0])
		switch words[0] {
		case "refractctl":
			w.must(append(words[1:], besides[words[1]]...)...)
		case "kubectl":
			out, err := exec.CommandContext(w.Context(), w.kubectl, append(words[1:], "--kubeconfig="+w.kubeconfig)...).CombinedOutput()
			w.Logf("%s\n%s", w.page[0], out)
			require.NoError(w, err, "%s: %s", w.page[0], out)
		default:
			w.Fatalf("nobody knows how to run %q", w.page[0])
		}
	}
	require.True(w, until == "" || len(w.page) > 0, "the page has no %q", until)
}

// must runs a command. If the command fails, the test ends.
func (w *world) must(args ...string) string {
	w.Helper()
	output, err := w.refractctl(args...)
	require.NoError(w, err)
	return output
}

// refused checks that a command fails, and that its error contains all of the given words.
func (w *world) refused(args []string, words ...string) {
	w.Helper()
	_, err := w.refractctl(args...)
	require.Error(w, err)
	for _, word := range words {
		assert.ErrorContains(w, err, word)
	}
}

// inventory lists all persistent objects of a cluster, one per line, with a digest of their desired state.
func (w *world) inventory(s *side) string {
	w.Helper()
	var lines []string
	w.each(s, func(resource string, object *unstructured.Unstructured) {
		lines = append(lines, fmt.Sprintf("%s %s/%s %s", resource, object.GetNamespace(), object.GetName(), w.digest(resource, object)))
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// each calls do for all persistent objects of a cluster.
func (w *world) each(s *side, do func(resource string, object *unstructured.Unstructured)) {
	w.Helper()
	config := s.Config()
	config.WarningHandler = rest.NoWarnings{}
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	require.NoError(w, err)
	client := dynamic.NewForConfigOrDie(config)
	for _, group := range resources {
		for _, resource := range group.APIResources {
			if resource.Kind == "Event" || resource.Name == "componentstatuses" || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			gv, err := schema.ParseGroupVersion(group.GroupVersion)
			require.NoError(w, err)
			list, err := client.Resource(gv.WithResource(resource.Name)).List(w.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // the resource is no longer served, because its CRD was deleted
			}
			require.NoError(w, err)
			for i := range list.Items {
				do(resource.Name, &list.Items[i])
			}
		}
	}
}

// restless lists the resources that controllers change all the time, including the spec.
var restless = []string{"leases", "nodes", "pods", "endpoints", "endpointslices"}

// digest returns a digest of the spec, labels and annotations of an object, without the parts that controllers change
// on their own.
func (w *world) digest(resource string, object *unstructured.Unstructured) string {
	w.Helper()
	if slices.Contains(restless, resource) {
		return "-"
	}
	annotations := object.GetAnnotations()
	delete(annotations, "deployment.kubernetes.io/revision")
	text, err := json.Marshal([]any{object.Object["spec"], object.GetLabels(), annotations})
	require.NoError(w, err)
	return fmt.Sprintf("%.4x", sha256.Sum256(text))
}

// unchanged waits until the inventory of a cluster is equal to before.
func (w *world) unchanged(s *side, before string) {
	w.Helper()
	testenv.Eventually(w, func() error {
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(w.inventory(s), "\n")); diff != "" {
			return fmt.Errorf("before (-) and after (+) differ:\n%s", diff)
		}
		return nil
	})
}

// explainOnFailure logs the pods and the Events of a cluster if the test has failed.
func (w *world) explainOnFailure(s *side) {
	if !w.Failed() {
		return
	}
	pods, err := s.client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err == nil {
		for _, pod := range pods.Items {
			w.Logf("%s: pod %s/%s on %q: %s %s %v", s.Name(), pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Reason, pod.Status.Conditions)
		}
	}
	events, err := s.client.CoreV1().Events("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.Log(err)
		return
	}
	for _, e := range events.Items {
		w.Logf("%s %s/%s: %s %s", e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
}

func TestTwoClustersBecomeOne(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.read("../../docs/joining.md")
	bin := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, testenv.BuildCommands(t.Context(), bin, "controller-manager", "virtual-kubelet"))
	romeEmpty, milanEmpty := w.inventory(w.rome), w.inventory(w.milan)
	server := "--remote-api-server-url=" + w.milan.Config().Host
	install := []string{"install", "--registry=registry.example.com/refract", replicas}

	w.refused(install, "discovery.config.clusterID is required")
	w.refused(append(install, "--cluster-id=Rome"), "--cluster-id")
	w.refused(append(install, "--cluster-id=rome", "--set=controllerManager.replica=2"), "additional properties 'replica' not allowed")
	w.refused([]string{"peer", "--remote-context=milan", server}, "cluster rome: found no installation of Refract", "cluster milan: found no installation of Refract", "refractctl install")
	manifest := w.must(append(install, "--cluster-id=rome", "--dry-run")...)
	assert.Contains(t, manifest, "--cluster-id=rome")
	w.unchanged(w.rome, romeEmpty)

	begun := time.Now()
	w.follow("refractctl peer")
	installed := time.Since(begun)
	w.refused([]string{"peer", "--remote-context=rome"}, "are the same cluster")
	w.refused([]string{"peer", "--remote-context=milan"}, "which pods of rome cannot reach", "--remote-api-server-url")
	w.refused([]string{"peer"}, "--remote-context")
	w.refused([]string{"peer", "--remote-context=milan", server, "--cpu=many"}, `--cpu is "many"`)
	w.refused([]string{"peer", "--remote-context=milan", server, "--virtual-node=rome-kwok-1"}, "there is a node rome-kwok-1")
	w.refused([]string{"peer", "--remote-context=milan", server, "--virtual-node=" + wire.ConsumerServiceAccount}, "cannot be called refract-consumer")
	w.refused([]string{"peer", "--remote-context=stranger", server}, "cluster stranger", "cannot list resource")
	w.refused([]string{"install", "--release=other"}, "the cluster already has Refract, as release refract in namespace liqo")
	w.must("install", "--cluster-id=rome", "--context=milan") // all other values are kept
	w.refused([]string{"peer", "--remote-context=milan", server}, `both clusters have the id "rome"`)
	w.must("install", "--cluster-id=milan", "--context=milan", pullSecret, "--set=tenants.ingressHosts={*.rome.example}",
		`--set-json=offloading.reflection.ingress.ingressClasses=[{"name":"nginx","default":true}]`)
	w.overlap(server)
	// other is applied as another program would apply it, such as kubectl-refract. refractctl install must still succeed.
	const other = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"refract-controller-manager","labels":{"app.kubernetes.io/version":"other"}}}`
	_, err := w.rome.client.AppsV1().Deployments("liqo").Patch(t.Context(), "refract-controller-manager", types.ApplyPatchType, []byte(other), metav1.PatchOptions{FieldManager: "kubectl-refract", Force: ptr.To(true)})
	require.NoError(t, err)
	w.must("install", "--set=networkPolicies.enabled=true", pullSecret)
	assert.Contains(t, w.must("peer", "--remote-context=milan", server, "--dry-run"), "warning: image pull secret liqo/registry does not exist: create it")
	for _, s := range []*side{w.rome, w.milan} {
		_, err := s.client.CoreV1().Secrets("liqo").Create(t.Context(), forImages("of rome and milan"), metav1.CreateOptions{})
		require.NoError(t, err)
	}

	for _, s := range []*side{w.rome, w.milan} {
		redirectWebhooks(t, s)
		stop := runPods(t, s, bin)
		defer stop()
		defer w.explainOnFailure(s)
	}
	w.controllersWork()
	romeInstalled, milanInstalled := w.inventory(w.rome), w.inventory(w.milan)
	w.must("peer", "--remote-context=milan", server, "--dry-run")
	assert.Equal(t, milanInstalled, w.inventory(w.milan))

	begun = time.Now()
	w.follow("refractctl test")
	w.page = w.page[1:] // this line needs containers, so only test/nodes runs it
	w.follow("kubectl --context=milan --namespace=shop-rome get pods")
	t.Logf("from two clusters to the first offloaded pods: %.0f s of refractctl install, %.0f s from refractctl peer to Running", installed.Seconds(), time.Since(begun).Seconds())
	secret := w.secret()
	w.must("peer", "--remote-context=milan", server, "--cpu=3", "--memory=4Gi")
	assert.Equal(t, secret.Data, w.secret().Data, "the token is renewed before its time")
	testenv.Eventually(t, func() error {
		node, err := w.rome.client.CoreV1().Nodes().Get(t.Context(), "milan", metav1.GetOptions{})
		if err == nil && node.Status.Capacity.Cpu().Value() != 3 {
			err = fmt.Errorf("its capacity is still %v", node.Status.Capacity)
		}
		return err
	})
	w.offered()
	w.reflected()
	w.pullSecrets(server)
	w.examine()
	w.uncalled()
	w.impostor()
	w.bothWays()
	w.byCertificate(server)
	w.refused([]string{"delete", "peering-user", "rome", "--context=milan"}, "milan still has namespaces of rome: shop-rome")
	pods, err := w.milan.client.CoreV1().Pods("shop-rome").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
	require.NoError(t, err)
	assert.Len(t, pods.Items, 2)

	w.refused([]string{"uninstall"}, "nothing was removed", "NamespaceOffloading shop/offloading", "VirtualNode liqo-tenant-milan/milan")
	w.refused([]string{"uninstall", "--context=milan"}, "nothing was removed", "NamespaceMap liqo-tenant-rome/", "ShadowPod shop-rome/web-")
	w.follow("refractctl install")
	// The next line of the page requires pods that restart, so only package test/nodes runs it.
	w.page = w.page[1:]
	w.follow("refractctl unoffload")
	require.NoError(t, w.rome.client.AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.another()
	// Ending a peering removes all its virtual nodes.
	w.must("create", "virtualnode", "milan-b", "--provider=milan", "--cpu=1", "--memory=1Gi")
	w.follow("refractctl uninstall")
	w.must("unpeer", "--remote-context=milan") // runs the command again, as a user would after an interruption
	w.invited(server)
	w.forced(server)
	require.NoError(t, w.rome.client.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
	w.unchanged(w.rome, romeInstalled)
	w.unchanged(w.milan, milanInstalled)

	w.follow("")
	for name, s := range map[string]*side{"rome": w.rome, "milan": w.milan} {
		w.must("uninstall", "--crds", "--context="+name)
		require.NoError(t, s.client.CoreV1().Namespaces().Delete(t.Context(), "liqo", metav1.DeleteOptions{}))
	}
	w.unchanged(w.rome, romeEmpty)
	w.unchanged(w.milan, milanEmpty)
}

// overlap checks that overlapping pod ranges are refused, unless a network translates addresses or no network is
// expected.
func (w *world) overlap(server string) {
	w.Helper()
	for name, s := range map[string]*side{"10.9.0.0/24": w.rome, "10.9.0.0/16": w.milan} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: corev1.NodeSpec{PodCIDR: name, PodCIDRs: []string{name}}}
		_, err := s.client.CoreV1().Nodes().Create(w.Context(), node, metav1.CreateOptions{})
		require.NoError(w, err)
		defer func() {
			require.NoError(w, s.client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{}))
		}()
	}
	peer := []string{"peer", "--remote-context=milan", server, "--dry-run"}
	w.refused(peer, "the pod ranges overlap, 10.9.0.0/24 of rome and 10.9.0.0/16 of milan", "--network=none", "--overlapping-ranges")
	w.must(append(peer, "--network=none")...)
	w.must(append(peer, "--pod-cidrs=10.8.0.0/16")...)
	w.refused(append(peer, "--remote-pod-cidrs=10.9"), `--remote-pod-cidrs: "10.9" is not an address range`)
	w.refused(append(peer, "--network=vpn"), `--network is "vpn": use gateway, reachable or none`)
	w.must(append(peer, "--overlapping-ranges")...)
	w.must("install", "--set=networking.reflectIPs=false")
	w.must(peer...)
	w.must("install", "--set=networking.reflectIPs=true")
}

// offered checks that the virtual node has what milan offers: the ingress class of milan's installation, and the
// requested resources.
func (w *world) offered() {
	w.Helper()
	testenv.Eventually(w, func() error {
		shown, err := w.refractctl("get", "virtualnode", "milan", "-o", "json")
		for _, want := range []string{`"offer": "Accepted"`, `"requested": "cpu=3,memory=4Gi,pods=110"`, `"nginx (default)"`} {
			if err == nil && !strings.Contains(shown, want) {
				err = fmt.Errorf("%s is not in %s", want, shown)
			}
		}
		return err
	})
	assert.Contains(w, w.must("info"), "Accepted")
}

// another creates a second virtual node with its own resource request to milan, and deletes both.
func (w *world) another() {
	w.Helper()
	asked := func() []string {
		list, err := dynamic.NewForConfigOrDie(w.milan.Config()).Resource(auth.GroupVersion.WithResource("resourceslices")).Namespace("liqo-tenant-rome").List(w.Context(), metav1.ListOptions{})
		require.NoError(w, err)
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
		return names
	}
	create := []string{"create", "virtualnode", "milan-c", "--cpu=1", "--memory=1Gi", "--remote-context=milan"}
	w.refused(append(create, "--provider=turin"), `has the id "milan", not "turin"`)
	w.must(append(create, "--provider=milan")...)
	assert.Equal(w, []string{"milan", "milan-c"}, asked())
	w.must("delete", "virtualnode", "milan-c", "--remote-context=milan")
	assert.Equal(w, []string{"milan"}, asked())
}

// controllersWork waits until the controller managers are leaders and have their certificates, and the webhooks have
// the CA.
func (w *world) controllersWork() {
	w.Helper()
	testenv.Eventually(w, func() error {
		for _, s := range w.sides {
			configuration, err := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(w.Context(), rbac.WebhookName, metav1.GetOptions{})
			if err == nil && len(configuration.Webhooks[0].ClientConfig.CABundle) == 0 {
				err = errors.New("the webhook has no certificate yet")
			}
			if err != nil {
				return err
			}
			if leases, err := s.client.CoordinationV1().Leases("liqo").List(w.Context(), metav1.ListOptions{}); err != nil || len(leases.Items) == 0 {
				return errors.Join(errors.New("nobody leads yet"), err)
			}
		}
		return nil
	})
}

// examine runs the doctor on the clusters. It finds no problems until the test breaks a part of the installation.
func (w *world) examine() {
	w.Helper()
	for _, name := range []string{"rome", "milan"} {
		found := w.must("doctor", "--context="+name)
		assert.NotContains(w, found, "Error")
	}
	found := w.must("doctor", "-o", "json")
	for _, want := range []string{`"node milan"`, `"Deployment liqo-tenant-milan/vk-milan"`, `"Deployment liqo/refract-controller-manager"`, `"Secret liqo-tenant-milan/kubeconfig-controlplane-milan"`, `"Secret liqo-tenant-milan/registry"`, `"namespace shop"`, `"webhook"`, `"ForeignCluster milan"`} {
		assert.Contains(w, found, want)
	}
	secret := w.secret()
	secrets := w.rome.client.CoreV1().Secrets(secret.Namespace)
	require.NoError(w, secrets.Delete(w.Context(), secret.Name, metav1.DeleteOptions{}))
	found, err := w.refractctl("doctor")
	assert.ErrorContains(w, err, "errors were found")
	assert.Contains(w, found, "it is missing: it holds the kubeconfig of cluster milan, recreate it with refractctl peer")
	// This is the remedy that refractctl doctor suggests.
	w.must("peer", "--remote-context=milan", "--remote-api-server-url="+w.milan.Config().Host, "--cpu=3", "--memory=4Gi")
	assert.NotEqual(w, secret.Data, w.secret().Data)
	testenv.Eventually(w, func() error { // the test also waits until the controller has observed the change
		_, err := w.refractctl("doctor")
		return err
	})
}

// uncalled tests a webhook that the API server does not call. New pods would stay on the consumer, and the commands
// report this.
func (w *world) uncalled() {
	w.Helper()
	offload := []string{"offload", "namespace", "shop", "--pod-offloading-strategy=Remote"}
	assert.NotContains(w, w.must(offload...), "warning")
	configurations := w.rome.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	point := func(port int) {
		configuration, err := configurations.Get(w.Context(), rbac.WebhookName, metav1.GetOptions{})
		require.NoError(w, err)
		for i := range configuration.Webhooks {
			at, err := url.Parse(*configuration.Webhooks[i].ClientConfig.URL)
			require.NoError(w, err)
			at.Host = fmt.Sprintf("localhost:%d", port)
			configuration.Webhooks[i].ClientConfig.URL = ptr.To(at.String())
		}
		_, err = configurations.Update(w.Context(), configuration, metav1.UpdateOptions{})
		require.NoError(w, err)
	}
	point(1)
	testenv.Eventually(w, func() error {
		found, err := w.refractctl("doctor")
		if err == nil || !strings.Contains(found, doctor.NotCalled) {
			return fmt.Errorf("the doctor has not noticed: %s (%w)", found, err)
		}
		return nil
	})
	assert.Contains(w, w.must(offload...), "warning: "+doctor.NotCalled)
	point(w.rome.WebhookPort)
	testenv.Eventually(w, func() error {
		_, err := w.refractctl("doctor")
		return err
	})
}

// impostor checks that peer refuses a cluster that uses the ID of another cluster. The error names the tenant namespace
// that belongs to the other cluster.
func (w *world) impostor() {
	w.Helper()
	for _, s := range []*side{w.rome, w.milan} {
		namespaces := s.client.CoreV1().Namespaces()
		tenant := wire.TenantNamespace(map[*side]string{w.rome: "milan", w.milan: "rome"}[s])
		namespace, err := namespaces.Get(w.Context(), tenant, metav1.GetOptions{})
		require.NoError(w, err)
		genuine := namespace.Annotations[wire.ClusterUIDAnnotation]
		annotate := func(uid string) {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wire.ClusterUIDAnnotation, uid)
			_, err := namespaces.Patch(w.Context(), tenant, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			require.NoError(w, err)
		}
		annotate("another")
		w.refused([]string{"peer", "--remote-context=milan", "--remote-api-server-url=" + w.milan.Config().Host}, "namespace "+tenant+" is the tenant namespace of a different cluster")
		annotate(genuine)
	}
}

// pullSecret is a chart value with which virtual kubelets pull their image using the Secret registry.
const pullSecret = "--set=common.imagePullSecrets[0].name=registry"

func forImages(password string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"registry.example.com":{"password":%q}}}`, password)}}
}

// pullSecrets checks that the image pull Secrets are copied to the virtual kubelet's namespace, and are not copied to
// another cluster.
func (w *world) pullSecrets(server string) {
	w.Helper()
	const namespace = "liqo-tenant-milan"
	secrets := w.rome.client.CoreV1().Secrets
	found, err := secrets(namespace).Get(w.Context(), "registry", metav1.GetOptions{})
	require.NoError(w, err)
	assert.Equal(w, forImages("of rome and milan").Data, found.Data)

	_, err = secrets("liqo").Update(w.Context(), forImages("another"), metav1.UpdateOptions{})
	require.NoError(w, err)
	assert.Contains(w, w.must("doctor"), "Secret liqo/registry has changed since it was copied from there: copy it again with refractctl peer")
	w.must("peer", "--remote-context=milan", server, "--cpu=3", "--memory=4Gi")
	found, err = secrets(namespace).Get(w.Context(), "registry", metav1.GetOptions{})
	require.NoError(w, err)
	assert.Equal(w, forImages("another").Data, found.Data, "what has changed is copied again")
	assert.Equal(w, corev1.SecretTypeDockerConfigJson, found.Type)
	assert.NotContains(w, w.inventory(w.milan), "liqo-tenant-rome/registry")
}

// bothWays makes each cluster a virtual node of the other one, and then ends one of the peerings. The other peering
// must remain.
func (w *world) bothWays() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	w.must("peer", "--context=milan", "--remote-context=rome", "--remote-api-server-url="+w.rome.Config().Host, "--virtual-node=to-rome")
	w.must("unpeer", "--context=milan", "--remote-context=rome")
	w.refused([]string{"unpeer", "--context=milan", "--remote-context=rome"}, "milan is not a consumer of rome", "the peering in the other direction remains")
	found := w.must("doctor")
	assert.Contains(w, found, "node milan")
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, milan)
}

// byCertificate changes the type of rome's credentials and changes it back. Objects that do not depend on the type must
// not change.
func (w *world) byCertificate(server string) {
	w.Helper()
	before := w.inventory(w.milan)
	peer := []string{"peer", "--remote-context=milan", server, "--cpu=3", "--memory=4Gi"}
	for _, kind := range []string{"certificate", "token"} {
		w.must(append(peer, "--credentials="+kind)...)
		kubeconfig := string(w.secret().Data[wire.KubeconfigSecretKey])
		assert.Equal(w, kind == "certificate", strings.Contains(kubeconfig, "client-certificate-data"), "%s", kind)
		assert.Equal(w, kind == "token", strings.Contains(kubeconfig, "token: "), "%s", kind)
	}
	w.refused(append(peer, "--credentials=password"), `"password" is unknown: use token or certificate`)
	w.unchanged(w.milan, before)
}

// invited joins the clusters again, with no user who has permissions in both. It also tests errors that users may make.
func (w *world) invited(remote string) {
	w.Helper()
	server := strings.TrimPrefix(remote, "--remote-api-server-url=")
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	generate := []string{"generate", "peering-user", "rome", "--context=milan", "--cpu=2", "--memory=4Gi"}
	w.refused(append(generate, "--api-server-url="+server, "--expires-in=1s"), "--expires-in is 1s: use 10m0s at least")
	w.refused([]string{"generate", "peering-user", "Rome", "--context=milan"}, "Rome")
	w.refused([]string{"generate", "peering-user", "milan", "--context=milan", "--api-server-url=" + server}, "name the consumer")
	w.refused(generate, "which pods of rome cannot reach", "with --api-server-url")
	w.unchanged(w.milan, milan)

	invite := func(consumer string) string {
		file := filepath.Join(w.TempDir(), "milan-for-"+consumer)
		require.NoError(w, os.WriteFile(file, nil, 0o644))
		w.must("generate", "peering-user", consumer, "--context=milan", "--cpu=2", "--memory=4Gi", "--api-server-url="+server, "--output-file="+file)
		written, err := os.Stat(file)
		require.NoError(w, err)
		assert.Equal(w, os.FileMode(0o600), written.Mode())
		return "--remote-kubeconfig=" + file
	}
	w.refused([]string{"peer", invite("turin"), remote}, `the invitation of milan is for cluster "turin", and rome is "rome"`)
	w.must("delete", "peering-user", "turin", "--context=milan")
	file := invite("rome")
	w.refused([]string{"peer", file, remote, "--cpu=3"}, "--cpu is 3, but milan gives 2")
	w.anonymous(file, remote)
	w.must("peer", file, remote, "--cpu=1", "--network=none", "--pod-cidrs=10.1.0.0/16", "--remote-pod-cidrs=10.2.0.0/16,10.3.0.0/16")
	w.withoutNetwork()
	testenv.Eventually(w, func() error {
		node, err := w.rome.client.CoreV1().Nodes().Get(w.Context(), "milan", metav1.GetOptions{})
		if err == nil && (node.Status.Capacity.Cpu().Value() != 1 || node.Status.Capacity.Memory().String() != "4Gi") {
			err = fmt.Errorf("its capacity is %v", node.Status.Capacity)
		}
		return err
	})
	w.must("doctor")
	w.further()
	w.adopted()
	w.must("unpeer", file)
	w.unchanged(w.rome, rome)
	w.must("delete", "peering-user", "rome", "--context=milan")
	w.unchanged(w.milan, milan)
	w.awaitRejected(file)
	w.refused([]string{"peer", file, remote}, "the invitation was withdrawn", "refractctl generate peering-user rome")
}

// awaitRejected waits until milan rejects the token of a withdrawn invitation. API servers cache valid tokens for ten
// seconds. Until then, the token is accepted, but has no permissions.
func (w *world) awaitRejected(file string) {
	w.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimPrefix(file, "--remote-kubeconfig="))
	require.NoError(w, err)
	invited := kubernetes.NewForConfigOrDie(config)
	testenv.Eventually(w, func() error {
		_, err := invited.AuthenticationV1().SelfSubjectReviews().Create(w.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token is not rejected: %w", err)
		}
		return nil
	})
}

// anonymous checks that an invitation without the UID of its cluster is refused, because another cluster that uses the
// ID of the provider could have created it.
func (w *world) anonymous(file, remote string) {
	w.Helper()
	text, err := os.ReadFile(strings.TrimPrefix(file, "--remote-kubeconfig="))
	require.NoError(w, err)
	uid := regexp.MustCompile(`ProviderUID: \S+`)
	require.Regexp(w, uid, string(text))
	hidden := filepath.Join(w.TempDir(), "hidden")
	require.NoError(w, os.WriteFile(hidden, uid.ReplaceAll(text, []byte(`ProviderUID: ""`)), 0o600))
	w.refused([]string{"peer", "--remote-kubeconfig=" + hidden, remote}, "does not say which clusters it is for")
}

// withoutNetwork checks a peering without a network between the clusters' pods. The virtual kubelet reflects no
// addresses of pods, and both the PeerNetwork and the status of the peer show that no network connects the pods.
func (w *world) withoutNetwork() {
	w.Helper()
	kubelet, err := w.rome.client.AppsV1().Deployments(wire.TenantNamespace("milan")).Get(w.Context(), "vk-milan", metav1.GetOptions{})
	require.NoError(w, err)
	arguments := kubelet.Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--disable-ip-reflection", "--foreign-cidrs=10.2.0.0/16,10.3.0.0/16", "--node-check-network=false"} {
		assert.Contains(w, arguments, want)
	}
	testenv.Eventually(w, func() error {
		shown := w.must("info", "milan")
		if !strings.Contains(shown, "PeerNetwork liqo-tenant-milan/milan says that no network connects the pods") {
			return errors.New(shown)
		}
		return nil
	})
	out, err := exec.CommandContext(w.Context(), w.kubectl, "get", "peernetwork", "-n", "liqo-tenant-milan", "milan", "-o", "jsonpath={.spec.mode} {.spec.local.podCIDRs} {.spec.remote.podCIDRs}", "--kubeconfig="+w.kubeconfig).CombinedOutput()
	require.NoError(w, err, "%s", out)
	assert.Equal(w, `None ["10.1.0.0/16"] ["10.2.0.0/16","10.3.0.0/16"]`, string(out))
}

// further checks that an additional virtual node of the same provider gets its own settings, that its objects are
// removed with it, and that invalid virtual nodes are refused.
func (w *world) further() {
	w.Helper()
	w.refused([]string{"create", "virtualnode", "turin-gpu", "--provider=turin"}, "join turin first with refractctl peer")
	w.refused([]string{"create", "virtualnode", "milan-gpu"}, "provider")
	w.refused([]string{"create", "virtualnode", "rome-kwok-1", "--provider=milan"}, "there is a node rome-kwok-1")
	w.must("create", "virtualnode", "milan-gpu", "--provider=milan", "--cpu=1", "--memory=1Gi", "--label=tier=gpu", "--node-selector=gpu=true", "--storage-class=nvme", "--storage-class=disk")
	node, err := w.rome.client.CoreV1().Nodes().Get(w.Context(), "milan-gpu", metav1.GetOptions{})
	require.NoError(w, err)
	assert.Equal(w, "gpu", node.Labels["tier"])
	assert.Equal(w, "true", node.Labels["storage.liqo.io/available"])
	shown := w.must("get", "virtualnode", "-o", "wide")
	assert.Contains(w, shown, "milan-gpu")
	assert.Contains(w, w.printed("get", "virtualnode", "milan-gpu", "-o", "json"), `"node": "Ready"`)
	w.refused([]string{"get", "virtualnode", "turin"}, "this cluster has milan, milan-gpu")
	deleted := w.result("delete", "virtualnode", "milan-gpu", "-o", "yaml")
	assert.Equal(w, []reported{{Kind: "VirtualNode", Namespace: "liqo-tenant-milan", Name: "milan-gpu"}}, deleted.Objects)
	// The Lease of the node is deleted when the peering ends.
	testenv.Eventually(w, func() error {
		var left []string
		for line := range strings.Lines(w.inventory(w.rome)) {
			if strings.Contains(line, "milan-gpu") && !strings.HasPrefix(line, "leases ") {
				left = append(left, line)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("there is still %q", left)
		}
		return nil
	})
}

// adopted checks that refractctl liqo adopts and reverts a virtual kubelet whose whole Deployment is in its
// VirtualNode, as Liqo's webhook writes it. Refract's controller reconciles the Deployment. After the revert, the
// permissions that were granted are gone.
func (w *world) adopted() {
	w.Helper()
	namespace := wire.TenantNamespace("milan")
	deployments := w.rome.client.AppsV1().Deployments(namespace)
	kubelet, err := deployments.Get(w.Context(), "vk-milan", metav1.GetOptions{})
	require.NoError(w, err)
	former := kubelet.Spec.Template.Spec.Containers[0].Image
	template, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{}, "spec": kubelet.Spec}}})
	require.NoError(w, err)
	out, err := exec.CommandContext(w.Context(), w.kubectl, "patch", "virtualnode", "-n", namespace, "milan", "--type=merge", "--patch="+string(template), "--kubeconfig="+w.kubeconfig).CombinedOutput()
	require.NoError(w, err, "%s", out)
	before := w.inventory(w.rome)

	const ours = "registry.example.com/refract/virtual-kubelet:adopted"
	runs := func() string {
		kubelet, err := deployments.Get(w.Context(), "vk-milan", metav1.GetOptions{})
		require.NoError(w, err)
		return kubelet.Spec.Template.Spec.Containers[0].Image + " " + strings.Join(kubelet.Spec.Template.Spec.Containers[0].Args, " ")
	}
	w.must("liqo", "adopt", "milan", "--image="+ours)
	assert.Contains(w, runs(), ours)
	assert.Contains(w, runs(), "--ignore-unknown-flags")
	assert.Contains(w, w.must("liqo", "check"), "it was adopted: it runs "+ours+", and ran "+former)
	w.must("liqo", "revert")
	assert.Contains(w, runs(), former+" ")
	assert.NotContains(w, runs(), "--ignore-unknown-flags")
	testenv.Eventually(w, func() error { // waits until the granted permissions are revoked
		if now := w.inventory(w.rome); strings.Contains(now, "refract-adopted") && !strings.Contains(before, "refract-adopted") {
			return errors.New(now)
		}
		return nil
	})
}

// forced checks that unpeer --force ends a peering without access to the provider, and that the provider's
// administrator can remove the remaining objects. Afterwards both clusters are in the same state as before the peering.
func (w *world) forced(server string) {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	w.must("peer", "--remote-context=milan", server, "--cpu=1")
	policy, err := w.rome.client.NetworkingV1().NetworkPolicies(wire.TenantNamespace("milan")).Get(w.Context(), "vk-milan", metav1.GetOptions{})
	require.NoError(w, err)
	assert.Equal(w, "milan", policy.Spec.PodSelector.MatchLabels[wire.VirtualNodeLabel])
	w.refused([]string{"unpeer", "milan"}, "a provider is named only with --force")
	w.refused([]string{"unpeer", "milan", "--force", "--remote-context=milan"}, "--force does not contact the provider")
	w.must("unpeer", "milan", "--force")
	w.unchanged(w.rome, rome)
	w.must("delete", "peering-user", "rome", "--context=milan")
	w.unchanged(w.milan, milan)
}

// printed runs a command and returns its standard output.
func (w *world) printed(args ...string) string {
	w.Helper()
	var out bytes.Buffer
	command := cli.NewCommand("refractctl")
	command.SetArgs(append(args, "--kubeconfig="+w.kubeconfig))
	command.SetOut(&out)
	command.SetErr(io.Discard)
	require.NoError(w, command.ExecuteContext(w.Context()))
	return out.String()
}

func (w *world) secret() *corev1.Secret {
	w.Helper()
	secret, err := w.rome.client.CoreV1().Secrets(wire.TenantNamespace("milan")).Get(w.Context(), "kubeconfig-controlplane-milan", metav1.GetOptions{})
	require.NoError(w, err)
	return secret
}
