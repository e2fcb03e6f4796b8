// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/internal/rbac"
)

var seed = flag.Uint64("quota-seed", 0, "seed of TestUseNeverExceedsTheQuota; 0 takes a new one")

const (
	propertyConsumer = "siena"
	propertyClients  = 4
	propertyPods     = 10
	propertyRound    = 10 * time.Second
)

// TestUseNeverExceedsTheQuota has clients with the identity of a consumer create, resize, replace and delete ShadowPods
// and pods concurrently, while the webhook is temporarily unreachable, and then lowers the Quota. The history of the
// pods, as stored by the API server, shows that they never exceeded the Quota, neither in requests nor in limits.
func TestUseNeverExceedsTheQuota(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("go test ./controllers/shadowpod -run TestUseNeverExceedsTheQuota -quota-seed=%d", *seed)
	namespace, q := limited(t, propertyConsumer, quantities("cpu", "2", "memory", "10Gi", "pods", "8"))
	provider.Patch(t, q, `{"spec":{"limitsEnforcement":"Hard"}}`)
	peer := rbac.Peer("", propertyConsumer)
	require.NoError(t, provider.Grant(t.Context(), append(peer.Objects(), peer.RemoteNamespace(namespace))...))
	door := serveWebhook(t, namespace)
	history := record(t, namespace)

	var turns, downs atomic.Int64
	round := func(number uint64) {
		ctx, cancel := context.WithTimeout(t.Context(), propertyRound)
		defer cancel()
		var clients sync.WaitGroup
		for i := range uint64(propertyClients) {
			consumer := consumerClient(t)
			clients.Go(func() {
				random := rand.New(rand.NewPCG(*seed, number<<8+i))
				for ctx.Err() == nil {
					turn(ctx, random, consumer, namespace)
					turns.Add(1)
				}
			})
		}
		clients.Go(func() {
			random := rand.New(rand.NewPCG(*seed, number<<8+propertyClients))
			for open := true; ctx.Err() == nil; open = !open {
				door.set(open)
				if !open {
					downs.Add(1)
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(100+random.IntN(900)) * time.Millisecond):
				}
			}
		})
		clients.Wait()
	}
	round(1)
	provider.Patch(t, q, `{"spec":{"resources":{"cpu":"1"}}}`)
	lowered := ""
	for i := range 3 { // an earlier decision may still be written after the first refusal
		door.set(false)
		probe := hungry(namespace, fmt.Sprintf("probe-%d", i), "9")
		provider.Create(t, probe)
		awaitRefusal(t, probe, "limited 1;")
		lowered = probe.GetResourceVersion()
	}
	round(2)

	growths, most := history.verify(t, resource.MustParse("2"), resource.MustParse("1"), lowered)
	t.Logf("%d turns, %d times without the webhook, %d growths, at most %s", turns.Load(), downs.Load(), growths, most.String())
	if growths < 20 || downs.Load() == 0 || most.Cmp(resource.MustParse("1500m")) < 0 {
		t.Error("too little happened to prove anything")
	}
}

// hungry returns a ShadowPod of the consumer with the given CPU as request and limit.
func hungry(namespace, name, cpu string) *unstructured.Unstructured {
	amounts := map[string]any{"cpu": cpu, "memory": "1Mi"}
	return set(asking(namespace, name, propertyConsumer, cpu), []any{map[string]any{"name": "main", "image": "a",
		"resources": map[string]any{"requests": amounts, "limits": amounts}}}, "spec", "pod", "containers")
}

func consumerClient(t *testing.T) client.Client {
	t.Helper()
	config, err := provider.ConfigFor(propertyConsumer, propertyConsumer)
	require.NoError(t, err)
	config.QPS = -1
	consumer, err := client.New(config, client.Options{Scheme: provider.Client.Scheme()})
	require.NoError(t, err)
	return consumer
}

// turn performs one step of a client. A rejection by the cluster is not an error.
func turn(ctx context.Context, random *rand.Rand, consumer client.Client, namespace string) {
	shadow := hungry(namespace, fmt.Sprintf("web-%d", random.IntN(propertyPods)), fmt.Sprintf("%dm", 100*(1+random.IntN(13))))
	if random.IntN(4) == 0 { // the creator is omitted, which the webhook corrects if it is reachable
		shadow.SetLabels(map[string]string{wire.OriginLabel: propertyConsumer})
	}
	switch random.IntN(10) {
	case 0:
		_ = consumer.Delete(ctx, shadow)
	case 1, 2:
		_ = consumer.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: shadow.GetName()}}, client.GracePeriodSeconds(1))
	case 3, 4, 5:
		_ = consumer.Create(ctx, shadow)
	default:
		present := shadow.DeepCopy()
		if consumer.Get(ctx, client.ObjectKeyFromObject(shadow), present) == nil {
			shadow.SetResourceVersion(present.GetResourceVersion())
			if random.IntN(4) == 0 {
				set(shadow, []any{map[string]any{"name": "other", "image": "b", "resources": map[string]any{}}}, "spec", "pod", "initContainers")
			}
			_ = consumer.Update(ctx, shadow)
		}
	}
}

// door connects to the webhook, unless it is closed.
type door struct {
	open atomic.Bool
	mu   sync.Mutex
	used []net.Conn
}

func (d *door) set(open bool) {
	d.open.Store(open)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !open {
		for _, connection := range d.used {
			_ = connection.Close()
		}
		d.used = nil
	}
}

func (d *door) pass(inside net.Conn, address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	outside, err := net.Dial("tcp", address)
	if err != nil || !d.open.Load() {
		_ = inside.Close()
		return
	}
	d.used = append(d.used, inside, outside)
	for _, pair := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		}()
	}
}

// serveWebhook starts a manager whose webhook is called for the ShadowPods of a namespace, through the door.
func serveWebhook(t *testing.T, namespace string) *door {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &door{}
	t.Cleanup(func() { assert.NoError(t, listener.Close()); d.set(false) })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			d.pass(connection, address)
		}
	}()

	url := fmt.Sprintf("https://localhost:%d%s", listener.Addr().(*net.TCPAddr).Port, quota.Path)
	hook := quota.Configuration(admissionregistrationv1.WebhookClientConfig{URL: &url}, admissionregistrationv1.Ignore)
	hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: rbac.WebhookName}, Webhooks: []admissionregistrationv1.MutatingWebhook{hook}}
	for _, object := range []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: rbac.WebhookName}}, configuration} {
		provider.Create(t, object)
		t.Cleanup(func() { assert.NoError(t, provider.Client.Delete(context.WithoutCancel(t.Context()), object)) })
	}
	port := free.Addr().(*net.TCPAddr).Port
	provider.StartManager(t, func(o *controllers.Options) {
		o.RecordAfter, o.Webhooks = time.Millisecond, &controllers.WebhookOptions{Namespace: metav1.NamespaceDefault, Host: "127.0.0.1", Port: port}
	})
	d.set(true)
	unlabelled := hungry(namespace, "early", "1m")
	unlabelled.SetLabels(map[string]string{wire.OriginLabel: propertyConsumer})
	consumer := consumerClient(t)
	controllertest.Eventually(t, "the API server to ask the webhook", func() error {
		tried := unlabelled.DeepCopy()
		if err := consumer.Create(t.Context(), tried, client.DryRunAll); err != nil {
			return err
		}
		if tried.GetLabels()[wire.CreatorUserLabel] == "" {
			return fmt.Errorf("the creator was not recorded")
		}
		return nil
	})
	return d
}

// event is a version of a pod.
type event struct {
	version, name string
	amounts       corev1.ResourceList
}

type history struct {
	mu     sync.Mutex
	events []event
	err    error
}

func (h *history) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = errors.Join(h.err, err)
}

// record watches the pods of a namespace, and runs them as a kubelet does.
func record(t *testing.T, namespace string) *history {
	t.Helper()
	clients, err := kubernetes.NewForConfig(provider.Config())
	require.NoError(t, err)
	list, err := clients.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
	h := &history{}
	ctx := context.WithoutCancel(t.Context()) // it ends with Stop
	pods, err := clients.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	t.Cleanup(pods.Stop)
	go func() {
		for e := range pods.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				h.fail(fmt.Errorf("the watch ended with %v", e.Object))
				return
			}
			h.add(e.Type, pod)
			if main := pod.Spec.Containers[0].Resources; e.Type != watch.Deleted && (len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].Resources.Requests.Cpu().Cmp(*main.Requests.Cpu()) != 0) {
				pod.Status.Phase = corev1.PodRunning
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "i", ImageID: "i", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Resources: &main}}
				_, err := clients.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
				if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					h.fail(fmt.Errorf("running pod %s, %w", pod.Name, err))
				}
			}
		}
	}()
	return h
}

func (h *history) add(kind watch.EventType, pod *corev1.Pod) {
	e := event{version: pod.ResourceVersion, name: pod.Name, amounts: corev1.ResourceList{}}
	if kind != watch.Deleted {
		resources := pod.Spec.Containers[0].Resources
		e.amounts = corev1.ResourceList{"requests": resources.Requests[corev1.ResourceCPU], "limits": resources.Limits[corev1.ResourceCPU]}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// verify fails the test if the pods grew beyond the limit, or beyond the lower one after that version. It returns the
// number of increases, and the largest sum.
func (h *history) verify(t *testing.T, limit, lower resource.Quantity, lowered string) (growths int, most resource.Quantity) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.NoError(t, h.err)
	present := map[string]corev1.ResourceList{}
	for _, e := range h.events {
		before := map[corev1.ResourceName]resource.Quantity{}
		for _, name := range []corev1.ResourceName{"requests", "limits"} {
			before[name] = total(present, name)
		}
		present[e.name] = e.amounts
		order, err := resourceversion.CompareResourceVersion(e.version, lowered)
		require.NoError(t, err)
		if order > 0 {
			limit = lower
		}
		for name, was := range before {
			now := total(present, name)
			if now.Cmp(was) <= 0 {
				continue
			}
			growths++
			if now.Cmp(most) > 0 {
				most = now
			}
			if now.Cmp(limit) > 0 {
				t.Errorf("version %s of pod %s: the %s grow from %s to %s, limited %s", e.version, e.name, name, was.String(), now.String(), limit.String())
			}
		}
	}
	return growths, most
}

func total(pods map[string]corev1.ResourceList, name corev1.ResourceName) (sum resource.Quantity) {
	for _, amounts := range pods {
		sum.Add(amounts[name])
	}
	return sum
}
