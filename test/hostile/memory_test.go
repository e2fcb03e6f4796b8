// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
)

const (
	// maxRSS is the maximum peak of a controller manager's memory, in bytes.
	maxRSS = 300 << 20
	// victim and attacker are the remote namespaces of two consumers.
	victim, attacker = "shop-" + lab.ConsumerID, "shop-mallory"
)

// counts returns how many hostile ShadowPods are used: sent is the number of ShadowPods that the webhook must refuse,
// and stored is the number that are stored by bypassing the webhook. A hostile ShadowPod costs the API server a fifth
// of a second and several dozen MiB, so the default numbers are small. `make hostile` sets REFRACT_HOSTILE=400,400.
func counts(t *testing.T) (sent, stored int) {
	_, err := fmt.Sscanf(cmp.Or(os.Getenv("REFRACT_HOSTILE"), "60,20"), "%d,%d", &sent, &stored)
	require.NoError(t, err, "REFRACT_HOSTILE")
	return sent, stored
}

// TestNobodysMemoryIsAnothersToSpend runs both controller managers while a consumer floods the provider with
// ShadowPods, which are refused, and a provider sends the consumer lists that would take gigabytes when decoded. The
// memory of both processes must stay limited, and other consumers must be served. The test logs the latencies together
// with the latencies of plain pods at the same time, because most of both is caused by the API server on the same
// machine.
func TestNobodysMemoryIsAnothersToSpend(t *testing.T) {
	testenv.NeedControlPlane(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, err := lab.Up(ctx, lab.Options{Log: t.Logf, Quotas: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Down()) })
	provider := newHostileProvider(t)
	require.NoError(t, l.ReplaceIdentity(ctx, provider.kubeconfig(t)))
	offloadTo(ctx, t, l)
	require.NoError(t, l.StartProviderManager(ctx))
	require.NoError(t, l.AwaitProviderManager(ctx))
	require.NoError(t, l.StartConsumerManager(ctx))
	require.NoError(t, l.AwaitWebhook(ctx))
	for namespace, consumer := range map[string]string{victim: lab.ConsumerID, attacker: "mallory"} {
		createRemoteNamespace(ctx, t, l, namespace, consumer)
	}
	shadows := shadowPods(t, l)
	toSend, toStore := counts(t)
	before := measureLatencies(ctx, t, l, shadows, "before")

	t.Run("ShadowPods that the webhook refuses", func(t *testing.T) {
		var refused atomic.Int32
		flood := send(ctx, shadows, toSend, 8, func(err error) error {
			// If an API server decodes many ShadowPods, it may not get the response of the webhook in time. It then
			// refuses the ShadowPod, too.
			if err == nil || !strings.Contains(err.Error(), "more than") && !strings.Contains(err.Error(), "failed calling webhook") {
				return fmt.Errorf("a hostile ShadowPod was not refused: %w", err)
			}
			refused.Add(1)
			return nil
		})
		during := measureLatencies(ctx, t, l, shadows, "webhook")
		require.NoError(t, flood.Wait())
		assert.EqualValues(t, toSend, refused.Load())
		report(t, l.ProviderManager(), before, during)
	})

	t.Run("ShadowPods that are stored", func(t *testing.T) {
		dropQuotaWebhook(ctx, t, l)
		require.NoError(t, send(ctx, shadows, toStore, 4, func(err error) error { return err }).Wait())
		during := measureLatencies(ctx, t, l, shadows, "stored")
		report(t, l.ProviderManager(), before, during)
		awaitRefused(ctx, t, l, shadows, toStore)

		// A restarted process lists all objects again, as does every standby replica.
		l.KillProviderManager()
		require.NoError(t, l.StartProviderManager(ctx))
		require.NoError(t, l.AwaitProviderManager(ctx))
		during = measureLatencies(ctx, t, l, shadows, "restarted")
		report(t, l.ProviderManager(), before, during)
	})

	t.Run("lists of a provider", func(t *testing.T) {
		require.NoError(t, l.Wait(ctx, "the hostile provider to be asked", func(context.Context) (string, error) {
			if maps, slices := provider.maps.Load(), provider.slices.Load(); maps < 3 || slices < 3 {
				return fmt.Sprintf("it was asked %d times for NamespaceMaps, %d times for ResourceSlices", maps, slices), nil
			}
			return "", nil
		}))
		checkMemory(t, l.ConsumerManager())
	})
}

// report logs the latencies, and the memory usage of a controller manager. It fails the test if the controller manager
// has used too much memory.
func report(t *testing.T, manager *testenv.Command, before, during latencies) {
	t.Helper()
	log := func(what string, before, during []time.Duration) {
		t.Logf("%s: P50 %v, P99 %v; without the attack P50 %v, P99 %v; ratio of P99 %.1f", what, quantile(during, 0.5), quantile(during, 0.99),
			quantile(before, 0.5), quantile(before, 0.99), float64(quantile(during, 0.99))/float64(quantile(before, 0.99)))
	}
	log("ShadowPod to pod", before.shadows, during.shadows)
	log("plain pod", before.plain, during.plain)
	// This limit is exceeded only if the process swaps or is restarted.
	assert.Less(t, quantile(during.shadows, 0.99), time.Minute)
	checkMemory(t, manager)
}

func checkMemory(t *testing.T, manager *testenv.Command) {
	t.Helper()
	require.NoError(t, manager.Failure())
	used, err := testenv.ProcessUsage(manager.Pid())
	require.NoError(t, err)
	t.Logf("controller manager: RSS %d MiB, at most %d MiB", used.RSS>>20, used.PeakRSS>>20)
	assert.LessOrEqual(t, used.PeakRSS, int64(maxRSS))
}

// createRemoteNamespace creates a remote namespace as the namespacemap controller would.
func createRemoteNamespace(ctx context.Context, t *testing.T, l *lab.Lab, name, consumer string) {
	t.Helper()
	_, err := l.Provider.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{wire.RemoteClusterIDLabel: consumer},
		Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: wire.TenantNamespace(consumer) + "/" + lab.ProviderID},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// unlimited returns a client configuration without client-side throttling.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

func shadowPods(t *testing.T, l *lab.Lab) dynamic.NamespaceableResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(unlimited(l.Provider.Config()))
	require.NoError(t, err)
	return client.Resource(offloading.ShadowPodGVR)
}

func shadowPod(name, origin string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": offloading.GroupVersion.String(), "kind": offloading.ShadowPodKind,
		"metadata": map[string]any{"name": name, "labels": map[string]any{wire.OriginLabel: origin}}, "spec": map[string]any{"pod": spec},
	}}
}

// hostileSpec returns a spec of 1.27 MiB. It is refused for another reason as well, so that the pod never runs and
// never counts towards a Quota.
func hostileSpec() map[string]any {
	env := make([]any, 100_000)
	for i := range env {
		env[i] = map[string]any{"name": "A"}
	}
	return map[string]any{"hostNetwork": true, "containers": []any{map[string]any{"name": "main", "image": "none", "env": env}}}
}

// send creates count hostile ShadowPods, with at most parallel requests at a time, and calls check with each result.
func send(ctx context.Context, shadows dynamic.NamespaceableResourceInterface, count, parallel int, check func(error) error) *errgroup.Group {
	group := &errgroup.Group{}
	spec, next := hostileSpec(), atomic.Int32{}
	for range parallel {
		group.Go(func() error {
			for i := next.Add(1); i <= int32(count); i = next.Add(1) {
				_, err := shadows.Namespace(attacker).Create(ctx, shadowPod(fmt.Sprintf("hostile-%d", i), "mallory", spec), metav1.CreateOptions{})
				if err := check(err); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group
}

// latencies contains the sorted times between a request and the existence of the pod, for ShadowPods of another
// consumer and for plain pods.
type latencies struct{ shadows, plain []time.Duration }

// measureLatencies creates ShadowPods and plain pods in turn on the provider, and returns their latencies.
func measureLatencies(ctx context.Context, t *testing.T, l *lab.Lab, shadows dynamic.NamespaceableResourceInterface, round string) (took latencies) {
	t.Helper()
	const samples = 100
	client, err := kubernetes.NewForConfig(unlimited(l.Provider.Config()))
	require.NoError(t, err)
	spec := map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}}
	measure := func(namespace string, create func(name string) error) func(name string) time.Duration {
		pods, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		t.Cleanup(pods.Stop)
		return func(name string) time.Duration {
			begin := time.Now()
			require.NoError(t, create(name))
			awaitName(ctx, t, pods.ResultChan(), name)
			return time.Since(begin)
		}
	}
	shadow := measure(victim, func(name string) error {
		_, err := shadows.Namespace(victim).Create(ctx, shadowPod(name, lab.ConsumerID, spec), metav1.CreateOptions{})
		return err
	})
	plain := measure(metav1.NamespaceDefault, func(name string) error {
		_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}, metav1.CreateOptions{})
		return err
	})
	for i := range samples {
		name := fmt.Sprintf("%s-%d", round, i)
		took.shadows = append(took.shadows, shadow(name))
		took.plain = append(took.plain, plain(name))
		// The delay is random, so that the requests are not synchronized with the attack.
		time.Sleep(time.Duration(rand.Intn(20)) * time.Millisecond)
	}
	slices.Sort(took.shadows)
	slices.Sort(took.plain)
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1)+0.5)].Round(time.Millisecond)
}

// dropQuotaWebhook makes the provider's API server store objects that the webhook and the chart's policies would
// refuse.
func dropQuotaWebhook(ctx context.Context, t *testing.T, l *lab.Lab) {
	t.Helper()
	require.NoError(t, l.Provider.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	configurations := l.Provider.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configuration, err := configurations.Get(ctx, rbac.WebhookName, metav1.GetOptions{})
	require.NoError(t, err)
	configuration.Webhooks = slices.DeleteFunc(configuration.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		return w.ClientConfig.URL != nil && strings.HasSuffix(*w.ClientConfig.URL, quota.Path)
	})
	_, err = configurations.Update(ctx, configuration, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, l.Wait(ctx, "the API server to leave out the webhook", func(ctx context.Context) (string, error) {
		_, err := shadowPods(t, l).Namespace(attacker).Create(ctx, shadowPod("probe", "mallory", hostileSpec()), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err.Error(), nil
		}
		return "", nil
	}))
}

// awaitRefused waits until each hostile ShadowPod has a condition that reports its refusal.
func awaitRefused(ctx context.Context, t *testing.T, l *lab.Lab, shadows dynamic.NamespaceableResourceInterface, count int) {
	t.Helper()
	for i := 1; i <= count; i++ {
		require.NoError(t, l.Wait(ctx, "a hostile ShadowPod to be refused", func(ctx context.Context) (string, error) {
			shadow, err := shadows.Namespace(attacker).Get(ctx, fmt.Sprintf("hostile-%d", i), metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			status, err := json.Marshal(shadow.Object["status"])
			if err != nil || !bytes.Contains(status, []byte("more than")) {
				return fmt.Sprintf("its status is %s", status), err
			}
			return "", nil
		}))
	}
}

// offloadTo makes the consumer's controllers connect to the provider, and request a namespace from it.
func offloadTo(ctx context.Context, t *testing.T, l *lab.Lab) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"{}"}}}`, wire.NegotiatedFieldsAnnotation)
	_, err := l.Consumer.Dynamic.Resource(offloading.VirtualNodeGVR).Namespace(lab.TenantNamespace).Patch(ctx, lab.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = l.Consumer.Dynamic.Resource(offloading.GroupVersion.WithResource("namespacemaps")).Namespace(lab.TenantNamespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": offloading.GroupVersion.String(), "kind": offloading.NamespaceMapKind,
		"metadata": map[string]any{"name": lab.ProviderID, "labels": map[string]any{wire.RemoteIDLabel: lab.ProviderID, wire.ReplicationLabel: "true"}},
		"spec":     map[string]any{"desiredMapping": map[string]any{}},
	}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
}

// hostileProvider is a provider's API server whose lists contain 16 MiB of empty objects.
type hostileProvider struct {
	*httptest.Server
	list         []byte // compressed list of objects
	maps, slices atomic.Int32
}

func newHostileProvider(t *testing.T) *hostileProvider {
	t.Helper()
	text := `{"kind":"List","apiVersion":"v1","items":[` + strings.Repeat(`{},`, 16<<20/3-64) + `{}]}`
	compressed := &bytes.Buffer{}
	writer := gzip.NewWriter(compressed)
	_, err := writer.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	p := &hostileProvider{list: compressed.Bytes()}
	p.Server = httptest.NewTLSServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP implements http.Handler.
func (p *hostileProvider) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	switch {
	case strings.Contains(request.URL.Path, "/namespacemaps"):
		p.maps.Add(1)
	case strings.Contains(request.URL.Path, "/resourceslices"):
		p.slices.Add(1)
	default: // the server does not report a cluster ID
		http.NotFound(w, request)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Encoding", "gzip")
	_, _ = w.Write(p.list)
}

func (p *hostileProvider) kubeconfig(t *testing.T) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hostile"] = &clientcmdapi.Cluster{Server: p.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})}
	config.AuthInfos["hostile"] = &clientcmdapi.AuthInfo{Token: "none"}
	config.Contexts["hostile"] = &clientcmdapi.Context{Cluster: "hostile", AuthInfo: "hostile"}
	config.CurrentContext = "hostile"
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return text
}

// awaitName waits until the watch delivers an object with the given name.
func awaitName(ctx context.Context, t *testing.T, events <-chan watch.Event, name string) {
	t.Helper()
	for {
		select {
		case event, open := <-events:
			require.True(t, open, "the watch of pods has ended")
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Name == name {
				return
			}
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "waiting for pod %s", name)
		}
	}
}
