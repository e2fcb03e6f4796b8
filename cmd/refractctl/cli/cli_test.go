// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/wattest"
)

var testCluster *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if isProcess() {
		return 0
	}
	return testenv.Main(m, &testCluster, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})
}

// refractctl runs a command line and returns its output.
func refractctl(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err = execute(t, &stdout, &stderr, args)
	return stdout.String(), stderr.String(), err
}

// refractctlTo runs a command line and writes its progress to the given writer.
func refractctlTo(t *testing.T, progress io.Writer, args ...string) error {
	t.Helper()
	return execute(t, io.Discard, progress, args)
}

func execute(t *testing.T, out, progress io.Writer, args []string) error {
	t.Helper()
	command := NewCommand("refractctl")
	command.SetArgs(args)
	command.SetOut(out)
	command.SetErr(progress)
	return command.ExecuteContext(t.Context())
}

// onCluster adds the flag that selects the test's cluster.
func onCluster(args ...string) []string {
	return append(args, "--kubeconfig="+testCluster.Kubeconfig())
}

func accessTo(kubeconfig string) *invocation.Access {
	access := invocation.NewAccess()
	access.Flags.KubeConfig = &kubeconfig
	return access
}

func admin(t *testing.T) client.Client {
	t.Helper()
	c, err := accessTo(testCluster.Kubeconfig()).NewClient(invocation.RequestTimeout)
	require.NoError(t, err)
	return c
}

func create(t *testing.T, obj client.Object) {
	t.Helper()
	require.NoError(t, admin(t).Create(t.Context(), obj))
}

// report acts as the controller: it waits for a NamespaceOffloading with the given strategy, and then sets each of
// the phases in its status.
func report(t *testing.T, namespace string, strategy offloading.PodOffloadingStrategyType, phases ...offloading.OffloadingPhaseType) <-chan error {
	t.Helper()
	c, done := admin(t), make(chan error, 1)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	go func() {
		defer stop()
		done <- invocation.AwaitOne(ctx, &bytes.Buffer{}, "namespace", namespace, 0, func(ctx context.Context) (bool, string, error) {
			nso := &offloading.NamespaceOffloading{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "offloading"}, nso); err != nil {
				return false, "", client.IgnoreNotFound(err)
			}
			if nso.Spec.PodOffloadingStrategy != strategy {
				return false, "", nil
			}
			phase := phases[0]
			phases = phases[1:]
			status := fmt.Sprintf(`{"status":{"offloadingPhase":%q,"observedGeneration":%d,"remoteNamespaceName":"shop-remote","remoteNamespacesConditions":{"cloud":[
				{"type":"OffloadingRequired","status":"True"},{"type":"Ready","status":"False","reason":"Creating","message":"wait for it"}]}}}`, phase, nso.Generation)
			err := c.Status().Patch(ctx, nso, client.RawPatch(types.MergePatchType, []byte(status)))
			return len(phases) == 0, "", err
		})
	}()
	return done
}

func TestOffloadAndUnoffload(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	done := report(t, "shop", "Remote", offloading.InProgressOffloadingPhaseType, offloading.ReadyOffloadingPhaseType)
	_, progress, err := refractctl(t, onCluster("offload", "namespace", "shop", "--pod-offloading-strategy=Remote", "-l", "zone in (a,b),!edge", "-l", "tier=gold")...)
	if err != nil || <-done != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress, "shop: Ready as shop-remote on cloud; new pods run there only") {
		t.Errorf("progress = %q", progress)
	}
	nso := &offloading.NamespaceOffloading{}
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "offloading"}, nso))
	terms := nso.Spec.ClusterSelector.NodeSelectorTerms
	if nso.Spec.PodOffloadingStrategy != "Remote" || len(terms) != 2 || len(terms[0].MatchExpressions) != 2 {
		t.Errorf("spec = %+v", nso.Spec)
	}

	// A second run does not change settings for which no flag is set.
	done = report(t, "shop", "Local", offloading.ReadyOffloadingPhaseType)
	if _, _, err := refractctl(t, onCluster("offload", "namespace", "shop", "--pod-offloading-strategy=Local")...); err != nil || <-done != nil {
		t.Fatal(err)
	}
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(nso), nso))
	if nso.Spec.PodOffloadingStrategy != "Local" || len(nso.Spec.ClusterSelector.NodeSelectorTerms) != 2 {
		t.Errorf("spec = %+v, want the new strategy and the old selector", nso.Spec)
	}
	_, _, err = refractctl(t, onCluster("offload", "namespace", "shop", "--namespace-mapping-strategy=EnforceSameName")...)
	if err == nil || !strings.Contains(err.Error(), "unoffload it first") {
		t.Errorf("error = %v, want the remedy", err)
	}

	_, progress, err = refractctl(t, onCluster("unoffload", "namespace", "shop")...)
	if err != nil || !strings.Contains(progress, "shop: on this cluster only") {
		t.Errorf("progress = %q, error = %v", progress, err)
	}
}

// TestNamespacesThatAreNotOffloaded checks that a tenant namespace and the namespace of the installation are refused
// before anything is created, because they contain credentials, and that offloading a namespace of Kubernetes itself
// gives a warning.
func TestNamespacesThatAreNotOffloaded(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-lecce", Labels: map[string]string{wire.TenantNamespaceLabel: "true"}}})
	manager(t, admin(t), "own-namespace", "rome", "1.0.0")
	for name, want := range map[string]string{"liqo-tenant-lecce": "it is the tenant namespace of a peer", "own-namespace": "Refract itself is installed there"} {
		_, _, err := refractctl(t, onCluster("offload", "namespace", name)...)
		require.ErrorContains(t, err, want)
		assert.Error(t, admin(t).Get(t.Context(), client.ObjectKey{Namespace: name, Name: "offloading"}, &offloading.NamespaceOffloading{}), name)
	}
	_, said, err := refractctl(t, onCluster("offload", "namespace", "kube-public", "--timeout=1s")...)
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err), "no controller runs here: %v", err)
	assert.Contains(t, said, "warning: namespace kube-public belongs to Kubernetes")
	require.NoError(t, admin(t).Delete(t.Context(), &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "offloading"}}))
}

// TestOffloadComputesTheRemoteName checks that a namespace whose remote namespace would have a name of more than 63
// characters is refused before anything is created, unless another mapping strategy is set.
func TestOffloadComputesTheRemoteName(t *testing.T) {
	id := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "clusterid-configmap", Labels: map[string]string{"app.kubernetes.io/name": "clusterid-configmap"}},
		Data:       map[string]string{"CLUSTER_ID": "trieste"},
	}
	create(t, id)
	t.Cleanup(func() { assert.NoError(t, admin(t).Delete(context.Background(), id)) })
	fits, tooLong := strings.Repeat("a", 62-len("trieste")), strings.Repeat("b", 63-len("trieste"))
	for _, name := range []string{fits, tooLong} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	exists := func(namespace string) bool {
		err := admin(t).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "offloading"}, &offloading.NamespaceOffloading{})
		require.NoError(t, client.IgnoreNotFound(err))
		return err == nil
	}
	_, _, err := refractctl(t, onCluster("offload", "namespace", tooLong, "--timeout=1s")...)
	require.ErrorContains(t, err, "the remote namespace of "+tooLong+" cannot be named "+tooLong+"-trieste: must be no more than 63")
	require.ErrorContains(t, err, "EnforceSameName")
	assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err))
	assert.False(t, exists(tooLong))
	for _, args := range [][]string{{fits}, {tooLong, "--namespace-mapping-strategy=EnforceSameName"}} {
		_, _, err = refractctl(t, onCluster(append([]string{"offload", "namespace", "--timeout=3s"}, args...)...)...)
		assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err), "no controller answers: %v", err)
		assert.True(t, exists(args[0]))
		offloaded := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: args[0], Name: "offloading"}}
		require.NoError(t, admin(t).Delete(t.Context(), offloaded))
	}
	_, _, err = refractctl(t, onCluster("offload", "namespace", "shop", "--namespace-mapping-strategy=SelectedName", "--remote-namespace-name="+tooLong+"-trieste")...)
	require.ErrorContains(t, err, "--remote-namespace-name is")
}

func TestAWaitThatIsTooLongTellsWhatIsMissing(t *testing.T) {
	failed := &offloading.NamespaceOffloading{Status: offloading.NamespaceOffloadingStatus{
		OffloadingPhase: offloading.SomeFailedOffloadingPhaseType,
		RemoteNamespacesConditions: map[string]offloading.RemoteNamespaceConditions{
			"cloud": {{Type: offloading.NamespaceReady, Status: corev1.ConditionFalse, Reason: "Creating", Message: "wait for it"}},
			"other": {{Type: offloading.NamespaceReady, Status: corev1.ConditionTrue}},
		},
	}}
	for state, want := range map[string]string{
		invocation.NoController:     "waiting for the controller manager of this cluster, which does not answer (does it run?)",
		progress.Offloading(failed): "SomeFailed; cloud: Creating, wait for it",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var progress bytes.Buffer
		err := invocation.AwaitOne(ctx, &progress, "namespace", "stuck", time.Millisecond, func(context.Context) (bool, string, error) { return false, state, nil })
		if err == nil || !strings.Contains(err.Error(), "namespace stuck: not done after 1ms: "+want) || progress.String() != "stuck: "+state+"\n" {
			t.Errorf("error = %v, progress = %q, want %q", err, progress.String(), want)
		}
	}
}

func TestAnInterruptionEndsTheWaitAndSaysSo(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hasty"}})
	ctx, interrupt := context.WithCancel(t.Context())
	command := NewCommand("refractctl")
	command.SetArgs(onCluster("offload", "namespace", "hasty", "absent"))
	command.SetErr(writerFunc(func(text []byte) {
		if bytes.Contains(text, []byte(invocation.NoController)) {
			interrupt()
		}
	}))
	err := command.ExecuteContext(ctx)
	if err == nil || !strings.Contains(err.Error(), "namespace hasty: no longer waiting") || !strings.Contains(err.Error(), `"absent" not found`) {
		t.Errorf("error = %v, want both what was not waited for and what is not there", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(text []byte) (int, error) { f(text); return len(text), nil }

func TestOffloadPrints(t *testing.T) {
	out, _, err := refractctl(t, "offload", "namespace", "shop", "-o", "yaml", "--namespace-mapping-strategy=SelectedName", "--remote-namespace-name=shop-remote")
	want := `apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceOffloading
metadata:
  name: offloading
  namespace: shop
spec:
  namespaceMappingStrategy: SelectedName
  podOffloadingStrategy: LocalAndRemote
  remoteNamespaceName: shop-remote
`
	if err != nil || out != want {
		t.Errorf("output = %s, error = %v, want\n%s", out, err, want)
	}
}

func TestInfo(t *testing.T) {
	create(t, &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "cloud"}, Spec: core.ForeignClusterSpec{ClusterID: "cloud"}})
	create(t, &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "node-cloud"}, Spec: offloading.VirtualNodeSpec{ClusterID: "cloud"}})
	create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-cloud", Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType}}})
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bank"}})
	create(t, &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "offloading"}})
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "teller"}})
	create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "web", Labels: map[string]string{wire.OffloadedPodLabel: "true"}},
		Spec:       corev1.PodSpec{NodeName: "node-cloud", ServiceAccountName: "teller", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	})
	text, _, err := refractctl(t, onCluster("info")...)
	require.NoError(t, err)
	for _, want := range []string{"cloud", "node-cloud", "Unknown", "bank", "LocalAndRemote", "Pending 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("output lacks %q:\n%s", want, text)
		}
	}
	text, _, err = refractctl(t, onCluster("info", "cloud")...)
	require.NoError(t, err)
	for _, want := range []string{"node-cloud", "CONDITION OF cloud", "Pending 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("of the peer, output lacks %q:\n%s", want, text)
		}
	}
	create(t, &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: core.ForeignClusterSpec{ClusterID: "other"}})
	text, _, err = refractctl(t, onCluster("info", "other")...)
	require.NoError(t, err)
	if strings.Contains(text, "cloud") || strings.Contains(text, "Pending") {
		t.Errorf("of another peer, output has more:\n%s", text)
	}
	_, _, err = refractctl(t, onCluster("info", "stranger")...)
	require.ErrorContains(t, err, "there is no peer stranger: this cluster knows cloud, other")
	for _, tc := range []struct{ namespace, format, want string }{
		{"", "json", `"node": "node-cloud"`},
		{"", "yaml", "kind: Info"},
		{"", "jsonpath={.virtualNodes[0].name}", "node-cloud"},
		{"", "name", "foreigncluster.core.liqo.io/cloud\nforeigncluster.core.liqo.io/other\nvirtualnode.offloading.liqo.io/node-cloud\nnamespace/bank\n"},
		{"", "wide", "OTHER RESOURCES"},
		{"elsewhere", "go-template={{len .namespaces}} and {{len .pods}}", "0 and 0"},
	} {
		out, _, err := refractctl(t, onCluster("info", "-o", tc.format, "-n", tc.namespace)...)
		if err != nil || !strings.Contains(out, tc.want) {
			t.Errorf("-o %s: output = %s, error = %v, want %q", tc.format, out, err, tc.want)
		}
	}
}

func TestMistakesNameThemselvesAndTheRemedy(t *testing.T) {
	for args, want := range map[string]string{
		"offload namespace": "name a namespace, or set --ns-selector",
		"offload namespace a --pod-offloading-strategy=Everywhere":      "--pod-offloading-strategy is \"Everywhere\": use one of Local, Remote, LocalAndRemote",
		"offload namespace a --namespace-mapping-strategy=SelectedName": "needs --remote-namespace-name",
		"offload namespace a --remote-namespace-name=b":                 "needs --namespace-mapping-strategy=SelectedName",
		"offload namespace a --selector==x":                             "--selector \"=x\"",
		"offload namespace a -o table":                                  "--output is \"table\": use one of go-template",
		"offload namespace missing":                                     "getting namespace missing",
		"offload namespace --ns-selector=no=where":                      "matches no namespace",
		"info -o table":                               "--output is \"table\": use one of",
		"info -o jsonpath":                            "template format specified but no template given",
		"info --as=nobody":                            "foreignclusters.core.liqo.io is forbidden: User \"nobody\"",
		"info --context=elsewhere":                    "--context",
		"info --kubeconfig=testdata/unreachable.yaml": "the API server cannot be reached",
		"info --kubeconfig=/dev/null":                 "--kubeconfig=/dev/null names no cluster",
		"plugin run":                                  "name a module: refractctl plugin run FILE.wasm -f OBJECTS.yaml",
		"plugin inspect a.wasm b.wasm":                "name one module, not 2: refractctl plugin inspect FILE.wasm",
		"plugin inspect --fast":                       "unknown flag: --fast: see refractctl plugin inspect --help",
		"plugin inspect missing.wasm":                 "missing.wasm",
		"offload shop":                                "refractctl offload has no command \"shop\": use one of namespace",
		"bogus":                                       "refractctl has no command \"bogus\": use one of",
		"offload namespace a --timeout=-1s":           "--timeout is -1s: use a positive duration",
		"unoffload namespace missing":                 "getting namespace missing",
		"plugin run ../../../plugins/pod/pod.wasm -f testdata/service.yaml":                   "not for the kind Service",
		"plugin run ../../../plugins/service/service.wasm -f testdata/context.yaml":           "has no kind",
		"plugin run ../../../plugins/service/service.wasm -f testdata/service.yaml --fuel=-1": "--fuel is -1",
		"plugin inspect cli.go":                                                                                 "cli.go is not a usable plugin",
		"plugin run ../../../plugins/service/service.wasm":                                                      "--filename is missing",
		"plugin run ../../../plugins/service/service.wasm -f x --hook=sideways":                                 "use outgoing or incoming",
		"plugin run ../../../plugins/service/service.wasm -f cli.go":                                            "--filename: cli.go",
		"plugin run ../../../plugins/endpointslice/endpointslice.wasm -f testdata/service.yaml --hook=incoming": "has no hook incoming",
		"plugin run ../../../plugins/service/service.wasm -f testdata/service.yaml --fuel=10":                   "fuel",
	} {
		t.Run(args, func(t *testing.T) {
			fields := strings.Fields(args)
			if fields[0] != "plugin" && fields[0] != "bogus" && !strings.Contains(args, "--kubeconfig") {
				fields = onCluster(fields...)
			}
			_, _, err := refractctl(t, fields...)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error = %v, want one with %q", err, want)
			}
		})
	}
}

func TestAKubeconfigThatCannotBeUsedNamesItsSource(t *testing.T) {
	const notThere, malformed = "testdata/absent.yaml", "testdata/malformed.yaml"
	for name, tc := range map[string]struct{ variable, args, want string }{
		"a variable without a file": {notThere, "info", "$KUBECONFIG=testdata/absent.yaml: there is no such file"},
		"a flag without a file":     {"", "info --kubeconfig=" + notThere, "--kubeconfig=testdata/absent.yaml: there is no such file"},
		"the flag comes first":      {malformed, "info --kubeconfig=" + notThere, "--kubeconfig=testdata/absent.yaml: there is no such file"},
		"a malformed file":          {"", "info --kubeconfig=" + malformed, "testdata/malformed.yaml is not a valid kubeconfig, yaml: line 4"},
		"one of several malformed":  {notThere + ":" + malformed, "info", "testdata/malformed.yaml is not a valid kubeconfig, yaml: line 4"},
		"one of several missing":    {notThere + ":testdata/unreachable.yaml", "info", "the API server cannot be reached"},
		"an unknown context":        {"testdata/unreachable.yaml", "info --context=x", "$KUBECONFIG=testdata/unreachable.yaml cannot be used: check it and --context"},
		"an unknown provider":       {"testdata/unreachable.yaml", "peer --remote-context=x", "the provider: $KUBECONFIG=testdata/unreachable.yaml cannot be used: check it and --remote-context"},
		"an absent provider":        {"testdata/unreachable.yaml", "unpeer --remote-kubeconfig=" + notThere, "the provider: --remote-kubeconfig=testdata/absent.yaml: there is no such file"},
		"no namespace to offload":   {notThere, "offload namespace", "name a namespace"},
		"no namespace to unoffload": {notThere, "unoffload namespace", "name a namespace"},
		"names and a selector":      {notThere, "unoffload namespace a --ns-selector=a=b", "not both"},
		"an unreadable label":       {notThere, "offload namespace --ns-selector==", "--ns-selector \"=\""},
		"nothing to print either":   {notThere, "offload namespace -o yaml", "name a namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.variable)
			_, _, err := refractctl(t, strings.Fields(tc.args)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestPluginRun(t *testing.T) {
	const module = "../../../plugins/service/service.wasm"
	out, progress, err := refractctl(t, "plugin", "run", module, "-f", "testdata/service.yaml", "--context=testdata/context.yaml", "--diff")
	require.NoError(t, err)
	if !strings.Contains(out, "-  clusterIP: 10.96.0.7") || !strings.Contains(progress, "service used ") {
		t.Errorf("output = %s, progress = %s", out, progress)
	}
	out, _, err = refractctl(t, "plugin", "run", module, "-f", "testdata/service.yaml", "-o", "json")
	if err != nil || strings.Contains(out, "10.96.0.7") || !strings.Contains(out, `"kind": "Service"`) {
		t.Errorf("output = %s, error = %v", out, err)
	}
	out, _, err = refractctl(t, "plugin", "inspect", module)
	for _, want := range []string{"service ", "sha256:", "refract v1", "outgoing", "metadata.labels", "refract: "} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s\nerror = %v", want, out, err)
		}
	}
}

// TestPluginRunOnEveryDocument checks that all documents of a file are processed in order, even if earlier documents
// have failed.
func TestPluginRunOnEveryDocument(t *testing.T) {
	object := func(name string) string {
		return "apiVersion: v1\nkind: Service\nmetadata:\n  name: " + name + "\n  namespace: shop\nspec:\n  clusterIP: 10.96.0.7\n"
	}
	const module = "../../../plugins/service/service.wasm"
	file := filepath.Join(t.TempDir(), "all.yaml")
	list := "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: three}, spec: {clusterIP: 10.96.0.9}}\n"
	text := object("one") + "---\n# nothing\n---\n" + "apiVersion: v1\nkind: Pod\nmetadata: {name: other}\n---\n" + object("two") + "---\n" + list
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	out, progress, err := refractctl(t, "plugin", "run", module, "-f", file)
	if err != nil || !strings.Contains(progress, "note: object 2 of 4 (pod/other): plugin service is not for the kind Pod") {
		t.Errorf("error = %v, progress = %s", err, progress)
	}
	if strings.Count(out, "kind: Service") != 3 || strings.Count(out, "---") != 2 || strings.Contains(out, "10.96.0.") {
		t.Errorf("output = %s", out)
	}
}

// TestPluginRunGuardsBothHooks checks that the guard of the engine runs after the plugin in both hooks.
func TestPluginRunGuardsBothHooks(t *testing.T) {
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"forger","version":"1","kinds":["*"],"hooks":["outgoing","incoming"],"writes":["*"]}`,
		`(import "refract" "set_string" (func $set (param i32 i32 i32 i32 i32)))`,
		`(data (i32.const 0) "metadata.labels[offloading.liqo.io/origin]")
		(func $hook (result i32) (call $set (i32.const 1) (i32.const 0) (i32.const 42) (i32.const 0) (i32.const 4)) (i32.const 0))
		(export "outgoing" (func $hook)) (export "incoming" (func $hook))`))
	require.NoError(t, err)
	module := filepath.Join(t.TempDir(), "forger.wasm")
	require.NoError(t, os.WriteFile(module, wasm, 0o600))
	for _, hook := range []string{"outgoing", "incoming"} {
		_, _, err := refractctl(t, "plugin", "run", module, "-f", "testdata/service.yaml", "--hook", hook)
		if err == nil || !strings.Contains(err.Error(), "metadata.labels[offloading.liqo.io/origin]") {
			t.Errorf("%s: %v", hook, err)
		}
	}
}
