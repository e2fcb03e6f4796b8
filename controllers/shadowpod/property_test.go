// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/api/equality"
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
	propertyPatience = 4 * time.Minute // a slow machine needs longer until each limit was nearly reached
)

// propertyLimits are the limits of the Quota in the first round, and lowerLimits are its limits in the second round.
// Each limit is small enough to refuse a pod that fits into all other limits.
var (
	propertyLimits = quantities("cpu", "2", "memory", "2000Mi", "ephemeral-storage", "2000Mi", "pods", "6")
	lowerLimits    = quantities("cpu", "1", "memory", "1000Mi", "ephemeral-storage", "1000Mi", "pods", "4")
)

// TestUseNeverExceedsTheQuota lets clients with the identity of a consumer create, resize, replace and delete
// ShadowPods and pods concurrently, while the webhook is temporarily unreachable, and then lowers the Quota. The test
// checks with the history of the pods, as stored by the API server, that neither their requests and limits nor their
// number ever exceeded the Quota, and that each limit of the Quota was nearly reached.
func TestUseNeverExceedsTheQuota(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("go test ./controllers/shadowpod -run TestUseNeverExceedsTheQuota -quota-seed=%d", *seed)
	namespace, q := limited(t, propertyConsumer, propertyLimits)
	provider.Patch(t, q, `{"spec":{"limitsEnforcement":"Hard"}}`)
	peer := rbac.Peer("", propertyConsumer)
	require.NoError(t, provider.Grant(t.Context(), append(peer.Objects(), peer.RemoteNamespace(namespace))...))
	door := serveWebhook(t, propertyConsumer, namespace)
	history := record(t, namespace)

	var turns, downs atomic.Int64
	round := func(number uint64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var clients sync.WaitGroup
		clients.Go(func() {
			defer cancel()
			for begun := time.Now(); time.Since(begun) < propertyRound || number == 1 && !history.isSufficient() && time.Since(begun) < propertyPatience; {
				time.Sleep(time.Second)
			}
		})
		for i := range uint64(propertyClients) {
			consumer := consumerClient(t, propertyConsumer)
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
	lower, err := json.Marshal(lowerLimits)
	require.NoError(t, err)
	provider.Patch(t, q, fmt.Sprintf(`{"spec":{"resources":%s}}`, lower))
	lowered := ""
	for i := range 3 { // an earlier decision may still be written after the first refusal
		door.set(false)
		probe := hungry(namespace, fmt.Sprintf("probe-%d", i), amounts(9000, 1, 1))
		provider.Create(t, probe)
		awaitRefusal(t, probe, "limited 1;")
		lowered = probe.GetResourceVersion()
	}
	round(2)

	uses := history.verify(t, lowered)
	t.Logf("%d turns, %d times without the webhook", turns.Load(), downs.Load())
	if downs.Load() == 0 {
		t.Error("the webhook was always reachable")
	}
	for name, limit := range propertyLimits {
		use := uses[name]
		t.Logf("%s: %d growths, at most %s of %s", name, use.growths, use.most.String(), limit.String())
		if !use.isSufficient(limit) {
			t.Errorf("too little happened to prove anything about %s", name)
		}
	}
}

// hungry returns a ShadowPod of the consumer that has the given amounts as its requests and its limits.
func hungry(namespace, name string, amounts map[string]any) *unstructured.Unstructured {
	return set(asking(namespace, name, propertyConsumer, "0"), containersOf(amounts), "spec", "pod", "containers")
}

// containersOf returns the one container of a hungry pod.
func containersOf(amounts map[string]any) []any {
	return []any{map[string]any{"name": "main", "image": "a", "resources": map[string]any{"requests": amounts, "limits": amounts}}}
}

// amounts returns amounts of CPU in thousandths, and of memory and ephemeral storage in mebibytes.
func amounts(cpu, memory, storage int) map[string]any {
	return map[string]any{
		"cpu": fmt.Sprintf("%dm", cpu), "memory": fmt.Sprintf("%dMi", memory), "ephemeral-storage": fmt.Sprintf("%dMi", storage),
	}
}

// randomAmounts returns up to two thirds of the limit of one resource and little of the others, or little of all
// resources, so that the number of pods reaches its limit, too.
func randomAmounts(random *rand.Rand) map[string]any {
	var parts [3]int
	for i := range parts {
		parts[i] = 10 + random.IntN(190)
	}
	if most := random.IntN(len(parts) + 1); most < len(parts) {
		parts[most] = 100 + random.IntN(1200)
	}
	return amounts(parts[0], parts[1], parts[2])
}

func consumerClient(t *testing.T, name string) client.Client {
	t.Helper()
	config, err := provider.ConfigFor(name, name)
	require.NoError(t, err)
	config.QPS = -1
	consumer, err := client.New(config, client.Options{Scheme: provider.Client.Scheme()})
	require.NoError(t, err)
	return consumer
}

// turn performs one random step of a client. If the cluster rejects the step, this is not an error.
func turn(ctx context.Context, random *rand.Rand, consumer client.Client, namespace string) {
	wanted := randomAmounts(random)
	shadow := hungry(namespace, fmt.Sprintf("web-%d", random.IntN(propertyPods)), wanted)
	if random.IntN(4) == 0 { // The request does not set the creator. The webhook sets it if it is reachable.
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
			if random.IntN(4) > 0 { // no resize changes the ephemeral storage
				wanted["ephemeral-storage"] = storageOf(present)
				set(shadow, containersOf(wanted), "spec", "pod", "containers")
			}
			shadow.SetResourceVersion(present.GetResourceVersion())
			if random.IntN(4) == 0 {
				set(shadow, []any{map[string]any{"name": "other", "image": "b", "resources": map[string]any{}}}, "spec", "pod", "initContainers")
			}
			_ = consumer.Update(ctx, shadow)
		}
	}
}

// storageOf returns the ephemeral storage that the first container of a ShadowPod requests.
func storageOf(shadow *unstructured.Unstructured) any {
	containers, _, _ := unstructured.NestedSlice(shadow.Object, "spec", "pod", "containers")
	storage, _, _ := unstructured.NestedFieldCopy(containers[0].(map[string]any), "resources", "requests", "ephemeral-storage")
	return storage
}

// door connects API servers to the webhook, unless it is closed.
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
	if err != nil {
		_ = inside.Close()
		return
	}
	if !d.open.Load() {
		_, _ = inside.Close(), outside.Close()
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

// serveWebhook starts a manager whose webhook is called for the ShadowPods in a namespace of a consumer, through the door.
func serveWebhook(t *testing.T, name, namespace string) *door {
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
	unlabelled := hungry(namespace, "early", amounts(1, 1, 1))
	unlabelled.SetLabels(map[string]string{wire.OriginLabel: name})
	consumer := consumerClient(t, name)
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

// event is a version of a pod, with its amounts in the Quota.
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

// record watches the pods of a namespace, and sets them to running as a kubelet would.
func record(t *testing.T, namespace string) *history {
	t.Helper()
	clients, err := kubernetes.NewForConfig(provider.Config())
	require.NoError(t, err)
	list, err := clients.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
	h := &history{}
	ctx := context.WithoutCancel(t.Context()) // Stop ends the watch
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
			main, statuses := pod.Spec.Containers[0].Resources, pod.Status.ContainerStatuses
			isShown := len(statuses) > 0 && equality.Semantic.DeepEqual(statuses[0].Resources, &main)
			if e.Type != watch.Deleted && !isShown {
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
		e.amounts[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
		sizes := []corev1.ResourceRequirements{pod.Spec.Containers[0].Resources}
		if statuses := pod.Status.ContainerStatuses; len(statuses) > 0 && statuses[0].Resources != nil {
			// The node has not carried out the resize. Kubernetes counts the larger size until then, and allows the pod
			// to grow back to it.
			sizes = append(sizes, *statuses[0].Resources)
		}
		for name := range propertyLimits {
			if name == corev1.ResourcePods {
				continue
			}
			for _, size := range sizes {
				for _, amount := range []resource.Quantity{size.Requests[name], size.Limits[name]} {
					if largest := e.amounts[name]; amount.Cmp(largest) > 0 {
						e.amounts[name] = amount
					}
				}
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// use is the number of times that the use of a resource increased, and its largest amount.
type use struct {
	growths int
	most    resource.Quantity
}

// isSufficient reports whether the use increased often, and nearly reached its limit. Otherwise, the test would prove
// nothing.
func (u use) isSufficient(limit resource.Quantity) bool {
	return u.growths >= 20 && u.most.AsApproximateFloat64() >= 0.75*limit.AsApproximateFloat64()
}

// isSufficient reports whether the use of each resource is sufficient.
func (h *history) isSufficient() bool {
	uses := h.replay(func(event, corev1.ResourceName, resource.Quantity, resource.Quantity) {})
	for name, limit := range propertyLimits {
		if !uses[name].isSufficient(limit) {
			return false
		}
	}
	return true
}

// replay calls visit for each growth of a use, with the pod that caused it, and returns the use of each resource.
func (h *history) replay(visit func(e event, name corev1.ResourceName, was, now resource.Quantity)) map[corev1.ResourceName]use {
	h.mu.Lock()
	defer h.mu.Unlock()
	uses, present := map[corev1.ResourceName]use{}, map[string]corev1.ResourceList{}
	for _, e := range h.events {
		before := total(present)
		present[e.name] = e.amounts
		for name, now := range total(present) {
			was, use := before[name], uses[name]
			if now.Cmp(was) <= 0 {
				continue
			}
			use.growths++
			if now.Cmp(use.most) > 0 {
				use.most = now
			}
			uses[name] = use
			visit(e, name, was, now)
		}
	}
	return uses
}

// verify fails the test if the use of a resource grew beyond its limit or, in versions after lowered, beyond its lower
// limit. It returns the use of each resource.
func (h *history) verify(t *testing.T, lowered string) map[corev1.ResourceName]use {
	t.Helper()
	h.mu.Lock()
	err := h.err
	h.mu.Unlock()
	require.NoError(t, err)
	return h.replay(func(e event, name corev1.ResourceName, was, now resource.Quantity) {
		order, err := resourceversion.CompareResourceVersion(e.version, lowered)
		require.NoError(t, err)
		limit := propertyLimits[name]
		if order > 0 {
			limit = lowerLimits[name]
		}
		if now.Cmp(limit) > 0 {
			t.Errorf("version %s of pod %s: %s grows from %s to %s, limited %s",
				e.version, e.name, name, was.String(), now.String(), limit.String())
		}
	})
}

// total returns the sums of the amounts of all pods.
func total(pods map[string]corev1.ResourceList) corev1.ResourceList {
	sums := corev1.ResourceList{}
	for _, amounts := range pods {
		for name, amount := range amounts {
			sum := sums[name]
			sum.Add(amount)
			sums[name] = sum
		}
	}
	return sums
}
