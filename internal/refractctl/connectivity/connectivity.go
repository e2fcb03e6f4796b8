// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package connectivity tests a virtual node. It runs one pod on the virtual node and one in this cluster, in a
// temporary namespace, and checks that the pods can resolve each other's names and reach each other. Finally, it
// removes everything that it has created.
package connectivity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/connectivity/probe"
)

// Result is the result of a check.
type Result struct {
	// Check is the name of the check.
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Message contains the error and the remedy if the check failed, and the result otherwise.
	Message string `json:"message,omitempty"`
}

// Test is a connectivity test of a virtual node.
type Test struct {
	Client client.Client
	Config *rest.Config
	// VirtualNode is the name of the virtual node.
	VirtualNode string
	// Image is the image of the test pods. It must contain the controller manager. Image pull secrets are not copied to
	// the test namespace, because the provider could read them.
	Image string
	// NetworkOnly restricts the test to the checks of addresses.
	NetworkOnly bool
	// IsTranslated is true if gateways may translate addresses. The address of a pod in this cluster is then known to the
	// pod on the virtual node only through a Service.
	IsTranslated bool
	// PodTimeout limits the wait for the remote namespace and for each pod.
	PodTimeout time.Duration
	// CheckTimeout limits how long each check is repeated until it succeeds. kube-proxy and DNS are updated with a
	// delay.
	CheckTimeout time.Duration
	// Progress receives a line for each step, and for each condition that is waited for.
	Progress progress.Reporter

	clients   kubernetes.Interface
	namespace string
	results   []Result
}

const (
	// namespacePrefix is the prefix of the names of test namespaces.
	namespacePrefix = "refract-test-"
	managedByLabel  = "app.kubernetes.io/managed-by"
	managedBy       = "refractctl"
	// testLabel is a label of test namespaces. Its value is "true".
	testLabel = "plugins.refract.io/connectivity-test"
	// leftoverAge is the age at which a test namespace counts as a leftover. No test takes this long.
	leftoverAge = 6 * time.Hour
)

// here and there are the names of the two pods, and of their Services. The pod "there" runs on the virtual node.
const (
	here  = "here"
	there = "there"
)

// Run runs all checks. It removes the created objects even if ctx is done. It returns an error if some checks could not
// be run, or if some objects could not be removed. In any case, it returns the results of the completed checks.
func (t *Test) Run(ctx context.Context) (results []Result, err error) {
	if t.clients, err = kubernetes.NewForConfig(t.Config); err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	if err := t.Client.Get(ctx, client.ObjectKey{Name: t.VirtualNode}, node); err != nil {
		return nil, fmt.Errorf("getting node %s, %w", t.VirtualNode, err)
	}
	if node.Labels[wire.TypeLabel] != wire.VirtualNodeType {
		return nil, fmt.Errorf("node %s is not a virtual node", t.VirtualNode)
	}
	t.removeLeftovers(ctx, time.Now())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix, Labels: map[string]string{managedByLabel: managedBy, testLabel: "true"}}}
	if err := t.Client.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("creating a namespace, %w", err)
	}
	t.namespace = namespace.Name
	defer func() { err = errors.Join(err, t.cleanUp(context.WithoutCancel(ctx))) }()
	offloaded, err := t.offloadNamespace(ctx, node.Labels[corev1.LabelHostname])
	if err != nil || !offloaded {
		return t.results, err
	}
	if err := t.startPods(ctx, node.Labels[corev1.LabelHostname]); err != nil {
		return t.results, err
	}
	pods, err := t.awaitPods(ctx)
	if err != nil || pods == nil {
		return t.results, err
	}
	made := t.results
	t.runChecks(ctx, pods)
	// If ctx is done, checks may have failed only for this reason, so their results are dropped.
	if ctx.Err() != nil {
		return made, progress.Ended(ctx, ctx.Err())
	}
	return t.results, nil
}

// removeLeftovers deletes the namespaces that killed tests have left behind. It does not wait for the deletions, and
// reports errors only as warnings, because the test does not depend on them.
func (t *Test) removeLeftovers(ctx context.Context, now time.Time) {
	namespaces := &corev1.NamespaceList{}
	if err := t.Client.List(ctx, namespaces, client.MatchingLabels{managedByLabel: managedBy, testLabel: "true"}); err != nil {
		t.Progress.Report("warning: looking for namespaces that interrupted tests have left: %s", err)
		return
	}
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		age := now.Sub(namespace.CreationTimestamp.Time)
		if namespace.DeletionTimestamp != nil || age < leftoverAge || !strings.HasPrefix(namespace.Name, namespacePrefix) {
			continue
		}
		t.Progress.Report("namespace %s is removed: a test that was interrupted %s ago has left it", namespace.Name, age.Truncate(time.Minute))
		if err := t.Client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID}); client.IgnoreNotFound(err) != nil {
			t.Progress.Report("warning: deleting namespace %s, %s", namespace.Name, err)
		}
	}
}

// offloadNamespace offloads the test namespace and waits until this has succeeded. A timeout is recorded as a result,
// and is not returned as an error.
func (t *Test) offloadNamespace(ctx context.Context, hostname string) (bool, error) {
	nso := &offloading.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: offloading.NamespaceOffloadingName},
		Spec: offloading.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloading.EnforceSameNameMappingStrategyType,
			PodOffloadingStrategy:    offloading.LocalAndRemotePodOffloadingStrategyType,
			ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{hostname}}}}}},
		},
	}
	t.Progress.Report("namespace %s is offloaded to %s", t.namespace, t.VirtualNode)
	if err := t.Client.Create(ctx, nso); err != nil {
		return false, fmt.Errorf("offloading namespace %s, %w", t.namespace, err)
	}
	bounded, cancel := context.WithTimeout(ctx, t.PodTimeout)
	defer cancel()
	missing := ""
	err := t.Progress.Await(bounded, "namespace "+t.namespace, func(ctx context.Context) (string, error) {
		if err := t.Client.Get(ctx, client.ObjectKeyFromObject(nso), nso); err != nil {
			return "", err
		}
		missing = notOffloaded(nso)
		return missing, nil
	})
	what := "the namespace is offloaded to " + t.VirtualNode
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		switch missing {
		case "": // the status has not been read
			missing = err.Error()
		case unobserved:
			missing += ", which does not answer: check that it runs (refractctl doctor)"
		}
		t.addResult(what, false, fmt.Sprintf("not after %s: %s", t.PodTimeout, missing))
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t.addResult(what, true, "")
	return true, nil
}

// unobserved is the message for a namespace that no controller has reconciled.
const unobserved = "waiting for the controller manager of this cluster"

// notOffloaded returns why the test namespace is not offloaded yet. It returns an empty string if the namespace is
// offloaded.
func notOffloaded(nso *offloading.NamespaceOffloading) string {
	switch {
	case nso.Status.ObservedGeneration != nso.Generation:
		return unobserved
	case nso.Status.OffloadingPhase == offloading.ReadyOffloadingPhaseType:
		return ""
	}
	return progress.Offloading(nso)
}

// startPods creates a pod and a Service for each of the two clusters.
func (t *Test) startPods(ctx context.Context, hostname string) error {
	for _, name := range []string{here, there} {
		if err := t.Client.Create(ctx, t.serviceFor(name)); err != nil {
			return fmt.Errorf("creating Service %s, %w", name, err)
		}
		if err := t.Client.Create(ctx, t.podFor(name, hostname)); err != nil {
			return fmt.Errorf("creating pod %s, %w", name, err)
		}
	}
	return nil
}

func (t *Test) serviceFor(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"refract-test": name}, Ports: []corev1.ServicePort{{
			Port: probe.Port, TargetPort: intstr.FromInt32(probe.Port)}}},
	}
}

// podFor returns the pod with the given name. The pod "there" is for the virtual node with the given hostname, and the
// pod "here" is for any node that is not virtual.
func (t *Test) podFor(name, hostname string) *corev1.Pod {
	where := corev1.NodeSelectorRequirement{Key: wire.TypeLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{wire.VirtualNodeType}}
	if name == there {
		where = corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{hostname}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name, Labels: map[string]string{"refract-test": name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{where}}}}}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "probe", Image: t.Image, Command: []string{program, probe.Name, probe.Serve},
				Ports:          []corev1.ContainerPort{{ContainerPort: probe.Port}},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(probe.Port)}}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// program is the path of the program in the image.
const program = "/usr/bin/controller-manager"

// awaitPods waits until both pods are ready. If a pod does not become ready, awaitPods adds a result and returns no
// pods.
func (t *Test) awaitPods(ctx context.Context) (map[string]*corev1.Pod, error) {
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{here, there} {
		pod := &corev1.Pod{}
		bounded, cancel := context.WithTimeout(ctx, t.PodTimeout)
		defer cancel()
		err := t.Progress.Await(bounded, "pod "+name, func(ctx context.Context) (string, error) {
			if err := t.Client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, pod); err != nil {
				return "", err
			}
			if isReady(pod) {
				return "", nil
			}
			return t.describeTrouble(ctx, pod), nil
		})
		what := map[string]string{here: "a pod runs in this cluster", there: "a pod runs on " + t.VirtualNode}[name]
		if err != nil && bounded.Err() != nil && ctx.Err() == nil {
			t.addResult(what, false, t.describeTrouble(context.WithoutCancel(ctx), pod))
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		t.addResult(what, true, "")
		pods[name] = pod
	}
	return pods, nil
}

// describeTrouble returns why a pod is not ready: its last Warning Event, or its phase if there is no such Event.
func (t *Test) describeTrouble(ctx context.Context, pod *corev1.Pod) string {
	events, err := t.clients.CoreV1().Events(t.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name + ",type=Warning"})
	if err == nil && len(events.Items) > 0 {
		last := events.Items[len(events.Items)-1]
		return fmt.Sprintf("%s: %s", last.Reason, strings.TrimSpace(last.Message))
	}
	return fmt.Sprintf("its phase is %s", pod.Status.Phase)
}

func (t *Test) runChecks(ctx context.Context, pods map[string]*corev1.Pod) {
	get := func(from, host string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return t.getFromPod(ctx, from, host) }
	}
	// Without a network between the clusters, the remote pod has no address in this cluster, and can reach only its own
	// cluster.
	apart := pods[there].Status.PodIP == ""
	var checks []check
	if !t.NetworkOnly {
		checks = append(checks,
			check{"its logs can be read", "this cluster's API server must reach port 10250 of the virtual kubelet, and the provider's its own kubelets", func(ctx context.Context) (string, error) {
				log, err := t.clients.CoreV1().Pods(t.namespace).GetLogs(there, &corev1.PodLogOptions{}).DoRaw(ctx)
				return string(log), err
			}},
			check{"commands run in it", "as for logs", get(there, "127.0.0.1")},
			check{"it finds its own Service by its name", "the DNS of the provider, or its kube-proxy, does not work", get(there, there)})
	}
	if !t.NetworkOnly && !apart {
		checks = append(checks,
			check{"it finds a Service of this cluster by its name", "see whether it reaches the pod by its address, and whether the EndpointSlices of the Service have crossed", get(there, here)},
			check{"a pod of this cluster finds its Service by its name", "the DNS of this cluster, or its kube-proxy, does not work, or the pod is not reached by its address", get(here, there)})
	}
	const remedy = "connect the pod ranges of both clusters, which must not overlap: peered VPCs, Submariner, Cilium Cluster Mesh; " +
		"or join them with --network=gateway or --network=none"
	for _, way := range [][2]string{{here, there}, {there, here}} {
		if from, to := way[0], way[1]; !apart {
			address, what := pods[to].Status.PodIP, "by its address, "
			if t.IsTranslated && to == here {
				address, what = here, "by its translated address, in the Service "
			}
			checks = append(checks, check{fmt.Sprintf("the pod %s reaches the one %s %s%s", from, to, what, address), remedy, get(from, address)})
		}
	}
	t.runConcurrently(ctx, checks)
	if apart {
		t.addResult("traffic between the clusters", true, "not tried: the pod on "+t.VirtualNode+" shows no address, because no network connects the clusters (see kubectl get peernetworks)")
	}
}

// check is one of the checks, which run concurrently.
type check struct {
	what, remedy string
	// do performs the check. Its result must contain the response of a probe.
	do func(context.Context) (string, error)
}

// runConcurrently runs the checks concurrently, because a failing check takes as long as its timeout. The results are
// in the order of the checks.
func (t *Test) runConcurrently(ctx context.Context, checks []check) {
	results := make([]Result, len(checks))
	var all sync.WaitGroup
	for i := range checks {
		all.Go(func() { results[i] = t.repeatCheck(ctx, &checks[i]) })
	}
	all.Wait()
	t.results = append(t.results, results...)
}

// repeatCheck runs a check until it succeeds or times out.
func (t *Test) repeatCheck(ctx context.Context, c *check) Result {
	ctx, cancel := context.WithTimeout(ctx, t.CheckTimeout)
	defer cancel()
	var last error
	err := progress.Poll(ctx, func(ctx context.Context) (bool, error) {
		output, err := c.do(ctx)
		if err == nil && !strings.Contains(output, probe.Greeting) {
			err = fmt.Errorf("it answers %q", output)
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return Result{Check: c.what, OK: true}
	}
	if last == nil {
		last = err
	}
	return Result{Check: c.what, Message: fmt.Sprintf("%s: %s", strings.TrimSpace(last.Error()), c.remedy)}
}

// getFromPod sends a request to a server from a pod.
func (t *Test) getFromPod(ctx context.Context, from, host string) (string, error) {
	request := t.clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(t.namespace).Name(from).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Command: []string{program, probe.Name, probe.Get, fmt.Sprintf("http://%s:%d/", host, probe.Port)}, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(t.Config, "POST", request.URL())
	if err != nil {
		return "", err
	}
	var out, errOut bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil {
		if said := strings.TrimPrefix(strings.TrimSpace(errOut.String()), "controller-manager: "); said != "" {
			// The error only reports that the command failed, so it is replaced by the output of the command.
			err = errors.New(said)
		}
		return out.String(), err
	}
	return out.String(), nil
}

func (t *Test) addResult(check string, ok bool, message string) {
	t.results = append(t.results, Result{Check: check, OK: ok, Message: message})
}

// cleanTimeout limits the removal of the created objects.
const cleanTimeout = 2 * time.Minute

const (
	// podsTimeout limits the wait for the deletion of the pods before the namespace is deleted. The provider may be
	// unreachable.
	podsTimeout = 10 * time.Second
	// remoteDeletionDelay is the delay between the deletions of the remote and of the local namespace. A longer delay
	// slows down the test; with a shorter one, the local namespace is often not yet empty at the first check.
	remoteDeletionDelay = 1500 * time.Millisecond
)

// cleanUp removes the created objects. Kubernetes deletes the contents of a namespace five seconds after the deletion
// was requested, and retries after another five seconds if something is left. Therefore the pods are deleted first, and
// the deletions of the two namespaces overlap.
func (t *Test) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	t.Progress.Report("namespace %s is removed", t.namespace)
	// If this fails, the remote namespace is deleted when the local one is, which takes longer.
	_ = t.unoffloadNamespace(ctx)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
	if err := t.Client.Delete(ctx, namespace); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting namespace %s, %w", t.namespace, err)
	}
	return t.Progress.Await(ctx, "namespace "+t.namespace, func(ctx context.Context) (string, error) {
		err := t.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "waiting until it is gone in both clusters", err
	})
}

// unoffloadNamespace deletes the pods in the namespace, waits until they are gone, and then ends the offloading of the
// namespace.
func (t *Test) unoffloadNamespace(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	if err := t.Client.DeleteAllOf(bounded, &corev1.Pod{}, client.InNamespace(t.namespace)); err != nil {
		return err
	}
	if err := t.Progress.Await(bounded, "namespace "+t.namespace, t.podsLeft); err != nil {
		return err
	}
	nso := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: offloading.NamespaceOffloadingName}}
	if err := t.Client.Delete(bounded, nso); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(remoteDeletionDelay):
	}
	return nil
}

// podsLeft returns a message if there are any pods left, and an empty string otherwise.
func (t *Test) podsLeft(ctx context.Context) (string, error) {
	pods, err := t.clients.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		return "", err
	}
	return "waiting until its pods have ended", nil
}
