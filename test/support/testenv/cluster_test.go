// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// TestTwoClusters runs several tests with the same two clusters. Each test checks one aspect.
func TestTwoClusters(t *testing.T) {
	begun := time.Now()
	clusters := testenv.ForTest(t,
		testenv.Options{Name: "consumer", AuditLog: true, KwokNodes: 1, CRDPaths: []string{"testdata/crds"}},
		testenv.Options{Name: "provider", KwokNodes: 2},
	)
	took, memory := time.Since(begun), residentMiB(t, clusters)
	t.Logf("two clusters took %.1f s and %d MiB", took.Seconds(), memory)
	if memory > 3*1024 {
		t.Errorf("two clusters need %d MiB, more than 3 GiB", memory)
	}
	consumer, provider := clusters[0], clusters[1]

	t.Run("pods become ready on simulated nodes", func(t *testing.T) {
		for _, c := range clusters {
			clients := clientset(t, c.Config())
			createPod(t, clients, "web")
			awaitReady(t, clients, "web")
		}
	})
	t.Run("kubectl reads logs and runs commands in a simulated pod", func(t *testing.T) { testKubectl(t, provider) })
	t.Run("the clusters are two", func(t *testing.T) {
		_, err := clientset(t, provider.Config()).CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, clientset(t, consumer.Config()).CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		_, err = clientset(t, provider.Config()).CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err, "deleting the consumer's pod touched the provider's")
	})
	t.Run("users have the rights that RBAC gives them", func(t *testing.T) { testIdentities(t, provider) })
	t.Run("definitions are installed", func(t *testing.T) {
		rest := clientset(t, consumer.Config()).Discovery().RESTClient()
		require.NoError(t, rest.Get().AbsPath("/apis/testenv.refract.io/v1/lenses").Do(t.Context()).Error())
	})
	t.Run("the audit log tells who did what", func(t *testing.T) { testAuditLog(t, consumer) })
	t.Run("the API server comes back with its data", func(t *testing.T) { testOutage(t, provider) })
}

func testKubectl(t *testing.T, c *testenv.Cluster) {
	kubectl, err := tools.Kubectl()
	require.NoError(t, err)
	run := func(args ...string) string {
		out, err := exec.Command(kubectl, append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := run("logs", "web"); !strings.Contains(out, "simulated") {
		t.Errorf("kubectl logs gave %q", out)
	}
	if out := run("exec", "web", "--", "echo", "hello"); out != "hello\n" {
		t.Errorf("kubectl exec gave %q", out)
	}
}

func testIdentities(t *testing.T, c *testenv.Cluster) {
	list := func(config *rest.Config) error {
		_, err := clientset(t, config).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		return err
	}
	user, err := c.ConfigFor("alice", "developers")
	require.NoError(t, err)
	if err := list(user); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"alice"`) {
		t.Errorf("a user without a role listing pods: got %v", err)
	}
	masters, err := c.ConfigFor("bob", "system:masters")
	require.NoError(t, err)
	assert.NoError(t, list(masters))
	account, err := c.ServiceAccountConfig(t.Context(), "default", "default")
	require.NoError(t, err)
	if err := list(account); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"system:serviceaccount:default:default"`) {
		t.Errorf("a service account without a role listing pods: got %v", err)
	}
	if _, err := c.ServiceAccountConfig(t.Context(), "default", "absent"); !apierrors.IsNotFound(errors.Unwrap(err)) {
		t.Errorf("the token of an absent service account: got %v", err)
	}
}

func testAuditLog(t *testing.T, c *testenv.Cluster) {
	content, err := os.ReadFile(c.AuditLogPath())
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		var event struct {
			Level, Stage, Verb string
			User               struct{ Username string }
			ObjectRef          struct{ Resource, Name string }
			ResponseStatus     struct{ Code int }
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if event.Stage != "ResponseComplete" || event.Level != "Metadata" {
			t.Fatalf("unexpected stage or level: %+v", event)
		}
		if event.Verb == "create" && event.ObjectRef.Resource == "pods" && event.ObjectRef.Name == "web" {
			if event.User.Username != "kubernetes-admin" || event.ResponseStatus.Code != 201 {
				t.Errorf("who created the pod, with which result: %+v", event)
			}
			return
		}
	}
	t.Error("the creation of the pod is not in the audit log")
}

func testOutage(t *testing.T, c *testenv.Cluster) {
	pods := clientset(t, c.Config()).CoreV1().Pods("default")
	require.NoError(t, c.StopAPIServer())
	if _, err := pods.Get(t.Context(), "web", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("reading from a stopped API server: got %v", err)
	}
	require.NoError(t, c.StartAPIServer(t.Context()))
	_, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
}

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return clients
}

func createPod(t *testing.T, clients kubernetes.Interface, name string) {
	t.Helper()
	_, err := clients.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/web:1"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func awaitReady(t *testing.T, clients kubernetes.Interface, name string) {
	t.Helper()
	pods := clients.CoreV1().Pods("default")
	var pod *corev1.Pod
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var err error
		if pod, err = pods.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady {
				return condition.Status == corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("waiting for pod %s to be Ready, %v; it is %+v", name, err, pod.Status)
	}
}

// residentMiB returns the sum of the resident memory of the clusters' processes, in MiB.
func residentMiB(t *testing.T, clusters []*testenv.Cluster) int {
	t.Helper()
	total := 0
	for _, c := range clusters {
		for name, pid := range c.Processes() {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			require.NoError(t, err)
			var kib int
			if _, after, found := strings.Cut(string(status), "VmRSS:"); found {
				_, err = fmt.Sscan(after, &kib)
				require.NoErrorf(t, err, "the memory of %s", name)
			}
			total += kib
		}
	}
	return total / 1024
}
