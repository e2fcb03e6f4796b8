// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestFourProviders spreads the pods of one consumer over four providers. An unreachable provider does not delay the
// other providers, and is finally given up.
func TestFourProviders(t *testing.T) {
	t.Parallel()
	providers := []string{"milan", "turin", "genoa", "lucca"}
	w := begin(t, providers[1:]...)
	bin := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, testenv.BuildCommands(t.Context(), bin, "controller-manager", "virtual-kubelet"))
	for name, s := range w.sides {
		w.must("install", "--context="+name, "--cluster-id="+name, "--registry=registry.example.com/refract", replicas)
		redirectWebhooks(t, s)
		stop := runPods(t, s, bin)
		defer stop()
		defer w.explainOnFailure(s)
	}
	w.controllersWork()
	// lucca runs an older release, whose chart did not contain PeerNetworks.
	w.kubectlIn("lucca", "delete", "customresourcedefinition", "peernetworks.plugins.refract.io")
	begun := time.Now()
	for _, name := range providers {
		w.must("peer", "--context=rome", "--remote-context="+name, "--remote-api-server-url="+w.sides[name].Config().Host, "--network=none")
	}
	t.Logf("four providers joined after %.0f s", time.Since(begun).Seconds())

	begun = time.Now()
	_, err := w.rome.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.must("offload", "namespace", "shop", "--context=rome", "--pod-offloading-strategy=Remote")
	const each = 2
	labels := map[string]string{"app": "web"}
	_, err = w.rome.client.AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(each * len(providers))), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web"}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
				NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor), LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}},
		}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range providers {
		w.run(each, name)
	}
	t.Logf("%d pods run on four providers after %.1f s", each*len(providers), time.Since(begun).Seconds())
	w.memory(providers)

	// From here on, turin is unreachable.
	turin := w.sides["turin"]
	require.NoError(t, turin.StopAPIServer())
	testenv.Eventually(t, func() error {
		node, err := w.rome.client.CoreV1().Nodes().Get(t.Context(), "turin", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); ready.Status == corev1.ConditionTrue {
			return fmt.Errorf("turin is still ready: %s", ready.Message)
		}
		return nil
	})
	w.must("cordon", "virtualnode", "turin", "--context=rome")
	begun = time.Now()
	w.scale((each + 1) * len(providers))
	others := []string{"milan", "genoa", "lucca"}
	w.run((each+1)*len(providers)-each, others...) // the API server still contains the pods on turin
	t.Logf("the others run 4 pods more %.1f s after that was asked for, while turin is away", time.Since(begun).Seconds())

	w.must("unpeer", "turin", "--force", "--context=rome")
	// Kubernetes deletes the pods on an unreachable node after a minute. New pods replace them.
	require.NoError(t, turin.StartAPIServer(t.Context()))
	require.NoError(t, w.rome.client.AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.must("unoffload", "namespace", "shop", "--context=rome")
	for _, name := range others {
		w.must("unpeer", "--context=rome", "--remote-context="+name)
	}
}

// kubectlIn runs kubectl in one of the clusters.
func (w *world) kubectlIn(name string, args ...string) {
	w.Helper()
	out, err := exec.CommandContext(w.Context(), w.kubectl, append(args, "--kubeconfig="+w.kubeconfig, "--context="+name)...).CombinedOutput()
	require.NoError(w, err, "%s", out)
}

// run waits until the given providers together run the wanted number of pods.
func (w *world) run(want int, providers ...string) {
	w.Helper()
	testenv.Eventually(w, func() error {
		found := 0
		for _, name := range providers {
			pods, err := w.sides[name].client.CoreV1().Pods("shop-rome").List(w.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
			if err != nil {
				return err
			}
			found += len(pods.Items)
		}
		if found != want {
			return fmt.Errorf("%v run %d pods, want %d", providers, found, want)
		}
		return nil
	})
}

func (w *world) scale(replicas int) {
	w.Helper()
	_, err := w.rome.client.AppsV1().Deployments("shop").Patch(w.Context(), "web", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	require.NoError(w, err)
}

// memory logs how much memory the consumer's processes use.
func (w *world) memory(providers []string) {
	w.Helper()
	var lines []string
	for name, pid := range w.rome.Processes() {
		if ours := strings.HasPrefix(name, "vk-") || strings.HasSuffix(name, "-controller-manager") && strings.HasPrefix(name, "refract"); !ours {
			continue
		}
		usage, err := testenv.ProcessUsage(pid)
		require.NoError(w, err)
		lines = append(lines, fmt.Sprintf("%s %d MiB", name, usage.RSS>>20))
	}
	slices.Sort(lines)
	require.Len(w, lines, len(providers)+1)
	w.Logf("memory in rome: %s", strings.Join(lines, ", "))
	nodes, err := w.rome.client.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{LabelSelector: wire.TypeLabel + "=" + wire.VirtualNodeType})
	require.NoError(w, err)
	require.Len(w, nodes.Items, len(providers))
}
