// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/app/options"
)

// testUnusableKubeconfig checks that a virtual kubelet that starts with an unusable kubeconfig reports this in an
// Event, and that the node becomes ready after the kubeconfig was repaired. Afterwards, the virtual kubelet is stopped.
func testUnusableKubeconfig(ctx context.Context, t *testing.T, l *lab.Lab) {
	good := replaceKubeconfig(ctx, t, l, []byte("nonsense: ["))
	require.NoError(t, l.StartKubelet(ctx))
	expectEvent(ctx, t, l, unusableKubeconfigReason, "not a kubeconfig")
	replaceKubeconfig(ctx, t, l, good)
	require.NoError(t, l.AwaitNodeReady(ctx))
	forget(ctx, t, l)
}

// forget stops the virtual kubelet and deletes its node.
func forget(ctx context.Context, t *testing.T, l *lab.Lab) {
	t.Helper()
	require.NoError(t, l.StopKubelet(ctx))
	require.NoError(t, l.Consumer.Client.CoreV1().Nodes().Delete(ctx, lab.NodeName, metav1.DeleteOptions{}))
}

// replaceKubeconfig replaces the provider's kubeconfig in the Secret and returns the previous one.
func replaceKubeconfig(ctx context.Context, t *testing.T, l *lab.Lab, kubeconfig []byte) (former []byte) {
	t.Helper()
	secrets := l.Consumer.Client.CoreV1().Secrets(lab.TenantNamespace)
	list, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: wire.RemoteClusterIDLabel})
	require.NoError(t, err)
	if len(list.Items) != 1 {
		t.Fatalf("there are %d Secrets of the provider", len(list.Items))
	}
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret, err := secrets.Get(ctx, list.Items[0].Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		former, secret.Data[wire.KubeconfigSecretKey] = secret.Data[wire.KubeconfigSecretKey], kubeconfig
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	}))
	return former
}

// awaitNotReady waits until the node is not ready for a reason that contains text.
func awaitNotReady(ctx context.Context, t *testing.T, l *lab.Lab, text string) {
	t.Helper()
	require.NoError(t, l.Wait(ctx, "a node that is not ready: "+text, func(ctx context.Context) (string, error) {
		node, err := l.Consumer.Client.CoreV1().Nodes().Get(ctx, lab.NodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "it is not registered", nil
		}
		if err != nil {
			return "", err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, text) {
				return "", nil
			}
		}
		return "it has no such condition", nil
	}))
}

// testWrongCluster checks that the node is not ready while the cluster ID that the provider reports differs from the ID
// in the VirtualNode, and becomes ready when the IDs are equal again.
func testWrongCluster(ctx context.Context, t *testing.T, l *lab.Lab) {
	leases := l.Provider.Client.CoordinationV1().Leases(wire.TenantNamespace(lab.ConsumerID))
	say := func(id string) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, wire.ClusterIDAnnotation, id)
		_, err := leases.Patch(ctx, wire.HeartbeatLease, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	l.KillProviderManager() // the provider's controllers would correct the ID
	require.NoError(t, l.StopKubelet(ctx))
	say("elsewhere")
	require.NoError(t, l.StartKubelet(ctx))
	awaitNotReady(ctx, t, l, `belongs to cluster "elsewhere", not "`+lab.ProviderID+`"`)
	say(lab.ProviderID)
	require.NoError(t, l.AwaitNodeReady(ctx))
	require.NoError(t, l.StartProviderManager(ctx))
}

// testDeadProvider checks a virtual kubelet that starts while the provider does not respond. It must register a node
// that is not ready, and stop in time. The node must become ready when the provider has started.
func testDeadProvider(ctx context.Context, t *testing.T, l *lab.Lab) {
	require.NoError(t, l.Provider.StopAPIServer())
	require.NoError(t, l.StartKubelet(ctx))
	begin := time.Now()
	awaitNotReady(ctx, t, l, "does not answer")
	t.Logf("registered as not ready after %s", time.Since(begin))
	begin = time.Now()
	require.NoError(t, l.StopKubelet(ctx))
	if took := time.Since(begin); took > shutdownGrace+3*time.Second {
		t.Errorf("the end took %s while the provider is dead", took)
	}
	require.NoError(t, l.StartKubelet(ctx))
	begin = time.Now()
	require.NoError(t, l.Provider.StartAPIServer(ctx))
	require.NoError(t, l.AwaitNodeReady(ctx))
	t.Logf("ready %s after the provider began to start", time.Since(begin))
	forget(ctx, t, l)
}

// TestConsumerAPIServerIsAway checks that a pod on the provider keeps running while this cluster's API server is
// stopped until all leases have expired. Afterwards, new pods and namespaces must be offloaded again.
func TestConsumerAPIServerIsAway(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	l := start(ctx, t, lab.Options{Elect: true, KubeletArgs: []string{
		"--vk-lease-duration=6s", "--vk-lease-renew-interval=4s", "--vk-lease-retry-period=1s"}})
	require.NoError(t, l.StartAll(ctx))
	require.NoError(t, l.AwaitNodeReady(ctx))
	offload(ctx, t, l, "shop")
	r := &restored{ctx: ctx, t: t, l: l}
	r.pod("web")
	r.runs("web")
	uid := r.uid(l.Provider, restoredNamespace, "web")

	require.NoError(t, l.Consumer.StopAPIServer())
	for _, command := range []*testenv.Command{l.Kubelet(), l.ConsumerManager()} {
		require.NoError(t, l.Wait(ctx, "the lease to be lost", func(context.Context) (string, error) {
			log, err := os.ReadFile(command.LogPath())
			if !strings.Contains(string(log), "competing for it again") {
				return command.LogPath() + " does not say so", err
			}
			return "", err
		}))
	}
	require.NoError(t, l.Consumer.StartAPIServer(ctx))
	begin := time.Now()
	require.NoError(t, l.AwaitWebhook(ctx))
	r.pod("late")
	r.runs("web", "late")
	extend(ctx, t, l, "second")
	require.NoError(t, l.Wait(ctx, "the remote namespace", func(ctx context.Context) (string, error) {
		if _, err := l.Provider.Client.CoreV1().Namespaces().Get(ctx, "second-"+lab.ConsumerID, metav1.GetOptions{}); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}))
	t.Logf("pods and namespaces cross again %s after the consumer's API server was back", time.Since(begin).Round(100*time.Millisecond))
	if r.uid(l.Provider, restoredNamespace, "web") != uid {
		t.Error("the pod was made again on the provider")
	}
	metrics, err := l.KubeletMetrics(ctx)
	require.NoError(t, err)
	if metrics["refract_provider_reachable"] == nil {
		t.Error("the metrics of reflection are not exported any more")
	}
	if out, err := l.Kubectl(ctx, "--context=home", "-n=shop", "logs", "late"); err != nil || out == "" {
		t.Errorf("logs: %q, %v", out, err)
	}
}

func TestEndDoesNotWaitForTheDeaf(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		part func(context.Context) error
		want error
	}{
		"the caller ends it": {func(ctx context.Context) error { <-ctx.Done(); return nil }, nil},
		"a part fails":       {func(context.Context) error { return broken }, broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, end)
				deaf := make(chan struct{})
				defer close(deaf)
				group, ctx := errgroup.WithContext(ctx)
				group.Go(func() error { return test.part(ctx) })
				group.Go(func() error { <-deaf; return nil })
				begin := time.Now()
				if err := (&active{}).waitForParts(ctx, group); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if took := time.Since(begin); took > shutdownGrace+time.Second {
					t.Errorf("the end took %s", took)
				}
			})
		})
	}
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	var r readiness
	r.waitFor("the lease was not read yet")
	if err := r.checkReadiness(nil); err == nil || err.Error() != "the lease was not read yet" {
		t.Errorf("at the start: %v", err)
	}
	r.waitFor("")
	assert.NoError(t, r.checkReadiness(nil), "standing by")
}

func TestReplicasAreToldApart(t *testing.T) {
	listen := func() lastingListener {
		listener, err := listenKubeletAPI(&options.Options{ListenAddress: "127.0.0.1"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		return listener
	}
	pod := &kubelet{Options: &options.Options{PodName: "vk-milan-0"}, listener: listen()}
	if got := pod.replicaIdentity(); got != "vk-milan-0" {
		t.Errorf("in a pod the identity is %s", got)
	}
	first, second := &kubelet{Options: &options.Options{}, listener: listen()}, &kubelet{Options: &options.Options{}, listener: listen()}
	if first.replicaIdentity() == second.replicaIdentity() {
		t.Errorf("two on a machine are both %s", first.replicaIdentity())
	}
}

func TestTakenPortNamesTheFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	o := &options.Options{ListenAddress: "127.0.0.1", ListenPort: uint16(taken.Addr().(*net.TCPAddr).Port)}
	if _, err := listenKubeletAPI(o); err == nil || !strings.Contains(err.Error(), "--listen-port=") {
		t.Errorf("got %v", err)
	}
}

func TestMissingCertificateIsToldOnce(t *testing.T) {
	var problem error
	var messages []string
	source := reportErrors(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, problem }, func(err error) { messages = append(messages, err.Error()) })
	for _, problem = range []error{errors.New("none"), errors.New("none"), nil, errors.New("none"), errors.New("other")} {
		if _, err := source(nil); !errors.Is(err, problem) {
			t.Errorf("got %v, want %v", err, problem)
		}
	}
	if got, want := strings.Join(messages, " "), "none none other"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}
