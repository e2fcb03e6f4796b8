// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	nodeutil "k8s.io/component-helpers/node/util"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/app/options"
	"github.com/refract-project/refract/vk/reflection"
)

// start starts joined clusters with the chart's admission policies, which must not deny any request of our processes.
// It stops the clusters after the test. If the test fails, it prints the logs of our processes.
func start(ctx context.Context, t *testing.T, opts lab.Options) *lab.Lab {
	t.Helper()
	testenv.NeedControlPlane(t)
	opts.Log = t.Logf
	l, err := lab.Up(ctx, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		denied, err := l.Denials()
		assert.NoError(t, err)
		assert.Empty(t, denied, "an admission policy of the chart denies what our processes send")
		for _, command := range []*testenv.Command{l.Kubelet(), l.ConsumerManager()} {
			if t.Failed() && command != nil {
				log, _ := os.ReadFile(command.LogPath())
				t.Logf("%s says:\n%s", command.LogPath(), log)
			}
		}
		assert.NoError(t, l.Down())
	})
	return l
}

// TestProcess checks the command of the virtual kubelet with the roles of the chart. The subtests share the clusters,
// and each subtest continues with the state after the previous one.
func TestProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	// The unknown flags must be ignored, because a newer version of Liqo's controller may set flags that this version
	// does not have.
	l := start(ctx, t, lab.Options{KubeletArgs: []string{"--role-prefix=acme", "--ignore-unknown-flags", "--later-feature", "on", "--later-limit=3"}})
	t.Run("a kubeconfig that is not usable is told and waited for", func(t *testing.T) { testUnusableKubeconfig(ctx, t, l) })
	t.Run("a dead provider gives a node that is not ready", func(t *testing.T) { testDeadProvider(ctx, t, l) })
	begin := time.Now()
	require.NoError(t, l.StartAll(ctx))
	require.NoError(t, l.AwaitNodeReady(ctx))
	t.Logf("the node is ready after %s", time.Since(begin))

	t.Run("flags of a later version are told on the VirtualNode", func(t *testing.T) {
		expectEvent(ctx, t, l, unknownFlagsReason, "--later-feature, --later-limit")
	})
	t.Run("metrics", func(t *testing.T) {
		metrics, err := l.KubeletMetrics(ctx)
		require.NoError(t, err)
		for _, name := range []string{"refract_provider_reachable", "refract_plugin_info", "leader_election_master_status", "rest_client_requests_total", "go_goroutines", "process_resident_memory_bytes"} {
			if metrics[name] == nil {
				t.Errorf("there is no metric %s", name)
			}
		}
	})
	t.Run("both clusters know that the other lives", func(t *testing.T) {
		testKnownAlive(ctx, t, l.Consumer, lab.ProviderID, "Answers")
		testKnownAlive(ctx, t, l.Provider, lab.ConsumerID, "HeartbeatReceived")
	})
	t.Run("a provider that is another cluster than meant is sent nothing", func(t *testing.T) { testWrongCluster(ctx, t, l) })
	t.Run("a pod runs on the provider, its logs and commands are reached", func(t *testing.T) { testPod(ctx, t, l) })
	t.Run("a change of the offloading patch reverts nothing of the provider's admission", func(t *testing.T) { testAdmissionStands(ctx, t, l) })
	t.Run("a node that is deleted comes back, and its pods stay", func(t *testing.T) { testRecreatedNode(ctx, t, l) })
	t.Run("a resource is reflected while it runs", func(t *testing.T) { testResource(ctx, t, l) })
	t.Run("a plugin that does not load is told on the VirtualNode", func(t *testing.T) {
		require.NoError(t, os.WriteFile(l.PluginDir+"/broken.wasm", []byte("not wasm"), 0o600))
		expectEvent(ctx, t, l, pluginFailedReason, "broken")
		require.NoError(t, l.Wait(ctx, "the plugin on the Node", func(ctx context.Context) (string, error) {
			n, err := l.Consumer.Client.CoreV1().Nodes().Get(ctx, lab.NodeName, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			found, err := folderplugins.Decode(n.Annotations)
			isBroken := func(p folderplugins.Plugin) bool { return p.Name == "broken" && p.State == "Failed" && !p.IsRunning }
			if !slices.ContainsFunc(found.Plugins, isBroken) {
				return fmt.Sprintf("it has %+v", found), err
			}
			_, condition := nodeutil.GetNodeCondition(&n.Status, folderplugins.ConditionType)
			if condition == nil || condition.Status != corev1.ConditionFalse || !strings.Contains(condition.Message, "broken") {
				return fmt.Sprintf("it has the condition %+v", condition), nil
			}
			return "", nil
		}))
	})
	t.Run("leases are released at the end, and the next start is immediate", func(t *testing.T) {
		log := l.Kubelet().LogPath()
		begin := time.Now()
		require.NoError(t, l.StopKubelet(ctx))
		t.Logf("ended after %s", time.Since(begin))
		for _, name := range []string{lab.NodeName, wire.SharedLease} {
			lease, err := l.Consumer.Client.CoordinationV1().Leases(lab.TenantNamespace).Get(ctx, name, metav1.GetOptions{})
			require.NoError(t, err)
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
				t.Errorf("the lease %s is still held by %s", name, *holder)
			}
		}
		if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "Stopped") || strings.Contains(string(text), "panic") {
			t.Errorf("the end was not clean: %v\n%s", err, text)
		}
		// If the file were not removed, reflection of all kinds would wait after the start, because the broken plugin
		// has never run.
		require.NoError(t, os.Remove(l.PluginDir+"/broken.wasm"))
		begin = time.Now()
		require.NoError(t, l.StartKubelet(ctx))
		require.NoError(t, l.Wait(ctx, "the next leader", func(ctx context.Context) (string, error) {
			lease, err := l.Consumer.Client.CoordinationV1().Leases(lab.TenantNamespace).Get(ctx, wire.SharedLease, metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
				return "nobody holds the shared lease", err
			}
			return "", nil
		}))
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the next start took %s", took)
		} else {
			t.Logf("working again after %s", took)
		}
	})
	t.Run("what is offloaded and withdrawn at once leaves nothing", func(t *testing.T) { testWithdrawnAtOnce(ctx, t, l) })
	t.Run("without the election what is shared is reflected at once", func(t *testing.T) { testWithoutElection(ctx, t, l) })
}

// testKnownAlive waits until the condition APIServerStatus of a ForeignCluster is Established with the given reason.
func testKnownAlive(ctx context.Context, t *testing.T, side *lab.Side, id, reason string) {
	t.Helper()
	require.NoError(t, testenv.Wait(func() error {
		cluster, err := side.Dynamic.Resource(corev1beta1.ForeignClusterGVR).Get(ctx, id, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
		for _, condition := range conditions {
			c, _ := condition.(map[string]any)
			if c["type"] == string(corev1beta1.APIServerStatusCondition) && c["status"] == string(corev1beta1.ConditionStatusEstablished) && c["reason"] == reason {
				return nil
			}
		}
		return fmt.Errorf("ForeignCluster %s in %s has the conditions %v", id, side.ID, conditions)
	}))
}

// testWithoutElection checks that a virtual kubelet without leader election also reflects the objects that several
// virtual nodes of a provider would share. In the mode Legacy, these include the tokens of service accounts. The
// namespace shop must be offloaded.
func testWithoutElection(ctx context.Context, t *testing.T, l *lab.Lab) {
	require.NoError(t, l.StopKubelet(ctx))
	l.SetKubeletArgs("--vk-lease-enabled=false", "--enable-apiserver-support", "--apiserver-support-mode=Legacy")
	require.NoError(t, l.StartKubelet(ctx))
	here, there := l.Consumer.Client.CoreV1(), l.Provider.Client.CoreV1()
	_, err := here.Services("shop").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = here.Secrets("shop").Create(ctx, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
		Name: "opener", Annotations: map[string]string{wire.TokenServiceAccountLabel: "default"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, l.Wait(ctx, "what is shared", func(ctx context.Context) (string, error) {
		if _, err := there.Services("shop-home").Get(ctx, "shared", metav1.GetOptions{}); err != nil {
			return err.Error(), nil
		}
		secret, err := there.Secrets("shop-home").Get(ctx, "opener", metav1.GetOptions{})
		if err != nil || secret.Type != corev1.SecretTypeOpaque || len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return fmt.Sprintf("the Secret is of type %q, %v", secret.Type, err), nil
		}
		return "", nil
	}))
	lease, err := l.Consumer.Client.CoordinationV1().Leases(lab.TenantNamespace).Get(ctx, wire.SharedLease, metav1.GetOptions{})
	require.NoError(t, err)
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("%s holds the shared lease", *holder)
	}
	a := &active{kubelet: &kubelet{Options: &options.Options{APIServerSupport: true, SupportMode: options.AutoSupport}, client: l.Consumer.Client}}
	if mode, err := a.apiServerSupport(ctx); err != nil || mode != reflection.SupportTokenAPI {
		t.Errorf("this API server gives the mode %s, %v", mode, err)
	}
}

// expectEvent waits for an Event about the VirtualNode.
func expectEvent(ctx context.Context, t *testing.T, l *lab.Lab, reason, words string) {
	t.Helper()
	require.NoError(t, l.Wait(ctx, "the Event", func(ctx context.Context) (string, error) {
		events, err := l.Consumer.Client.CoreV1().Events(lab.TenantNamespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil || len(events.Items) == 0 {
			return "no Event", err
		}
		if e := events.Items[0]; e.InvolvedObject.Kind != offloadingv1beta1.VirtualNodeKind || !strings.Contains(e.Message, words) {
			t.Errorf("the Event is about %s %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
		}
		return "", nil
	}))
}

// extend creates a namespace and offloads it to the provider.
func extend(ctx context.Context, t *testing.T, l *lab.Lab, namespace string) {
	t.Helper()
	_, err := l.Consumer.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	offloading := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": offloadingv1beta1.GroupVersion.String(), "kind": "NamespaceOffloading",
		"metadata": map[string]any{"name": "offloading"}, "spec": map[string]any{"podOffloadingStrategy": "LocalAndRemote"},
	}}
	_, err = l.Consumer.Dynamic.Resource(offloadingv1beta1.NamespaceOffloadingGVR).Namespace(namespace).Create(ctx, offloading, metav1.CreateOptions{})
	require.NoError(t, err)
}

// offload offloads a namespace, and waits until pods can be created in it.
func offload(ctx context.Context, t *testing.T, l *lab.Lab, namespace string) {
	t.Helper()
	extend(ctx, t, l, namespace)
	require.NoError(t, l.Wait(ctx, "the service account", func(ctx context.Context) (string, error) {
		if _, err := l.Consumer.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}))
}

// testWithdrawnAtOnce checks that no remote namespace is left if a NamespaceOffloading is deleted soon after its
// creation. The delay before the deletion varies from none to 300 ms.
func testWithdrawnAtOnce(ctx context.Context, t *testing.T, l *lab.Lab) {
	for i := range 16 {
		name := fmt.Sprintf("brief-%d", i)
		offload(ctx, t, l, name)
		time.Sleep(time.Duration(i) * 20 * time.Millisecond)
		require.NoError(t, l.Consumer.Dynamic.Resource(offloadingv1beta1.NamespaceOffloadingGVR).Namespace(name).Delete(ctx, "offloading", metav1.DeleteOptions{}))
	}
	require.NoError(t, l.Wait(ctx, "the withdrawal", func(ctx context.Context) (string, error) {
		list, err := l.Consumer.Dynamic.Resource(offloadingv1beta1.NamespaceOffloadingGVR).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error(), nil
		}
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].GetNamespace(), "brief-") {
				return list.Items[i].GetNamespace() + " is not withdrawn", nil
			}
		}
		return "", nil
	}))
	// No such namespace may exist for two seconds, because requests of the virtual kubelet may arrive at the provider
	// late.
	for quiet := time.Now(); time.Since(quiet) < 2*time.Second; {
		require.NoError(t, l.Wait(ctx, "the provider to have none of them", func(ctx context.Context) (string, error) {
			remoteNamespaces, err := l.Provider.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error(), nil
			}
			for i := range remoteNamespaces.Items {
				if strings.HasPrefix(remoteNamespaces.Items[i].Name, "brief-") {
					quiet = time.Now()
					return remoteNamespaces.Items[i].Name + " is there", nil
				}
			}
			return "", nil
		}))
		time.Sleep(50 * time.Millisecond)
	}
}

func testPod(ctx context.Context, t *testing.T, l *lab.Lab) {
	client := l.Consumer.Client.CoreV1()
	offload(ctx, t, l, "shop")
	_, err := client.Pods("shop").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{
			NodeName: lab.NodeName, Containers: []corev1.Container{{Name: "app", Image: "none"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, l.Wait(ctx, "the pod to run", func(ctx context.Context) (string, error) {
		pod, err := client.Pods("shop").Get(ctx, "web", metav1.GetOptions{})
		if err != nil || pod.Status.Phase != corev1.PodRunning {
			return "it is " + string(pod.Status.Phase), err
		}
		return "", nil
	}))
	if out, err := l.Kubectl(ctx, "--context=home", "-n=shop", "logs", "web"); err != nil || out == "" {
		t.Errorf("logs: %q, %v", out, err)
	}
	if out, err := l.Kubectl(ctx, "--context=home", "-n=shop", "exec", "web", "--", "echo", "hello"); err != nil || out != "hello\n" {
		t.Errorf("exec: %q, %v", out, err)
	}
}
