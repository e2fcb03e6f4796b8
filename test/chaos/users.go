// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// users acts as the users of the consumer. Their requests may fail during faults. They then continue with other
// requests.
type users struct {
	g *game

	mu         sync.Mutex
	number     int
	namespaces []string // offloaded namespaces
	pods       []types.NamespacedName
	theirs     map[string][]string // ConfigMaps of a user of the provider in each remote namespace, by the namespace on the consumer
	done, lost int
}

func newUsers(g *game) *users { return &users{g: g, theirs: map[string][]string{}} }

// begin creates objects before the first fault, so that the fault has an effect on them.
func (u *users) begin(ctx context.Context) error {
	random := rand.New(rand.NewPCG(u.g.seed, 1)) //nolint:gosec // it is to be repeatable
	var problems []error
	for range 2 {
		problems = append(problems, u.extend(ctx, random))
	}
	for range 6 {
		problems = append(problems, u.createPod(ctx, random), u.createConfig(ctx, random))
	}
	return errors.Join(append(problems, u.createService(ctx, random))...)
}

// work performs random actions until ctx is done.
func (u *users) work(ctx context.Context, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // it is to be repeatable
	deeds := []func(context.Context, *rand.Rand) error{
		u.createPod, u.createPod, u.createPod, u.deletePod, u.deletePod, u.finishPod,
		u.createConfig, u.changeConfig, u.changeConfig, u.deleteConfig, u.createService, u.deleteService, u.extend, u.withdraw, u.createTheirs,
	}
	for ctx.Err() == nil {
		deed := deeds[random.IntN(len(deeds))]
		bounded, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := deed(bounded, random)
		cancel()
		u.mu.Lock()
		if err == nil {
			u.done++
		} else {
			u.lost++
		}
		u.mu.Unlock()
		pause(ctx, time.Duration(50+random.IntN(200))*time.Millisecond)
	}
}

func (u *users) summary() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return fmt.Sprintf("%d namespaces, %d pods, %d deeds done, %d failed", len(u.namespaces), len(u.pods), u.done, u.lost)
}

func (u *users) next() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.number++
	return u.number
}

// all returns the offloaded namespaces.
func (u *users) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.namespaces)
}

// look updates the lists of objects after the consumer was restored.
func (u *users) look(ctx context.Context) error {
	extended, err := u.g.extended(ctx)
	if err != nil {
		return err
	}
	list, err := u.g.Consumer.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "chaos=pod"})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.namespaces, u.pods = extended, nil
	for i := range list.Items {
		u.pods = append(u.pods, types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
	}
	u.g.witness.remain(u.pods)
	return nil
}

// forget removes from the list the pods that another client has ended.
func (u *users) forget(pods map[types.NamespacedName]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pods = slices.DeleteFunc(u.pods, func(pod types.NamespacedName) bool { return pods[pod] })
}

// namespace returns a random offloaded namespace, or "" if there is none.
func (u *users) namespace(random *rand.Rand) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.namespaces) == 0 {
		return ""
	}
	return u.namespaces[random.IntN(len(u.namespaces))]
}

// mostNamespaces and mostPods are the maximum numbers of objects that the users create.
const mostNamespaces, mostPods = 4, 30

func (u *users) extend(ctx context.Context, _ *rand.Rand) error {
	u.mu.Lock()
	enough := len(u.namespaces) >= mostNamespaces
	u.mu.Unlock()
	if enough {
		return nil
	}
	name := fmt.Sprintf("chaos-%d", u.next())
	if _, err := u.g.Consumer.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	nso := &offloading.NamespaceOffloading{
		TypeMeta:   metav1.TypeMeta{APIVersion: offloading.GroupVersion.String(), Kind: offloading.NamespaceOffloadingKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: offloading.NamespaceOffloadingName},
		Spec:       offloading.NamespaceOffloadingSpec{PodOffloadingStrategy: offloading.RemotePodOffloadingStrategyType},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(nso)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(content, "status")
	if _, err := u.g.Consumer.Dynamic.Resource(offloadings).Namespace(name).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.namespaces = append(u.namespaces, name)
	return nil
}

// withdraw stops offloading a namespace, and deletes the pods in it.
func (u *users) withdraw(ctx context.Context, random *rand.Rand) error {
	u.mu.Lock()
	few := len(u.namespaces) < mostNamespaces
	u.mu.Unlock()
	name := u.namespace(random)
	if few || name == "" {
		return nil
	}
	u.mu.Lock()
	u.namespaces = slices.DeleteFunc(u.namespaces, func(known string) bool { return known == name })
	for _, pod := range u.pods {
		if pod.Namespace == name {
			u.g.witness.deleted(pod)
		}
	}
	u.pods = slices.DeleteFunc(u.pods, func(pod types.NamespacedName) bool { return pod.Namespace == name })
	u.mu.Unlock()
	u.g.witness.withdrawn(name)
	err := u.g.Consumer.Dynamic.Resource(offloadings).Namespace(name).Delete(ctx, offloading.NamespaceOffloadingName, metav1.DeleteOptions{})
	if err := u.g.Consumer.Client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	return err
}

func (u *users) createPod(ctx context.Context, random *rand.Rand) error {
	namespace := u.namespace(random)
	u.mu.Lock()
	enough := len(u.pods) >= mostPods
	u.mu.Unlock()
	if namespace == "" || enough {
		return nil
	}
	number := u.next()
	restarts := corev1.RestartPolicyAlways
	if number%2 == 0 {
		restarts = corev1.RestartPolicyNever
	}
	key := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("pod-%d", number)}
	u.mu.Lock()
	u.pods = append(u.pods, key) // the pod may exist even if the response was lost
	u.mu.Unlock()
	_, err := u.g.Consumer.Client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: key.Name, Labels: map[string]string{"chaos": "pod"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{wire.TypeLabel: wire.VirtualNodeType}, RestartPolicy: restarts,
			Tolerations:                   []corev1.Toleration{{Key: wire.VirtualNodeTaint, Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: ptr.To(int64(1 + random.IntN(3))),
			Containers:                    []corev1.Container{{Name: "c", Image: fmt.Sprintf("image:%d", number)}},
		},
	}, metav1.CreateOptions{})
	return err
}

func (u *users) deletePod(ctx context.Context, random *rand.Rand) error {
	u.mu.Lock()
	if len(u.pods) < 6 {
		u.mu.Unlock()
		return nil
	}
	at := random.IntN(len(u.pods))
	key := u.pods[at]
	u.pods = slices.Delete(u.pods, at, at+1)
	u.mu.Unlock()
	u.g.witness.deleted(key)
	err := u.g.Consumer.Client.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// finishPod acts as a kubelet of the provider. It reports that the containers of a pod that is not restarted have
// completed successfully.
func (u *users) finishPod(ctx context.Context, random *rand.Rand) error {
	namespace := u.namespace(random)
	if namespace == "" {
		return nil
	}
	pods, err := u.g.Provider.Client.CoreV1().Pods(remote(namespace)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.RestartPolicy != corev1.RestartPolicyNever || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		pod.Status.Phase = corev1.PodSucceeded
		for j := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[j].Ready = false
			pod.Status.ContainerStatuses[j].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed", FinishedAt: metav1.Now()}}
		}
		for j := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[j]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
				c.Status, c.Reason = corev1.ConditionFalse, "PodCompleted"
			}
		}
		_, err := u.g.Provider.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	}
	return nil
}

func (u *users) createConfig(ctx context.Context, random *rand.Rand) error {
	namespace := u.namespace(random)
	if namespace == "" {
		return nil
	}
	number := u.next()
	name := metav1.ObjectMeta{Name: fmt.Sprintf("config-%d", number), Labels: map[string]string{"chaos": "config"}}
	if number%2 == 0 {
		_, err := u.g.Consumer.Client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: name, StringData: map[string]string{"value": name.Name}}, metav1.CreateOptions{})
		return err
	}
	_, err := u.g.Consumer.Client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: name, Data: map[string]string{"value": name.Name}}, metav1.CreateOptions{})
	return err
}

// theirsPrefix is the prefix of the names of objects that a user of the provider creates in remote namespaces.
const theirsPrefix = "theirs-"

// createTheirs creates an object as a user of the provider. Refract's processes must not change it.
func (u *users) createTheirs(ctx context.Context, random *rand.Rand) error {
	namespace := u.namespace(random)
	if namespace == "" {
		return nil
	}
	name := fmt.Sprintf("%s%d", theirsPrefix, u.next())
	_, err := u.g.Provider.Client.CoreV1().ConfigMaps(remote(namespace)).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": name}}, metav1.CreateOptions{})
	if err == nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.theirs[namespace] = append(u.theirs[namespace], name)
	}
	return err
}

// lookAtTheirs updates the lists of the provider's objects after the provider was restored.
func (u *users) lookAtTheirs(ctx context.Context) error {
	list, err := u.g.Provider.Client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.theirs)
	for i := range list.Items {
		if local, ours := strings.CutSuffix(list.Items[i].Namespace, "-"+lab.ConsumerID); ours && strings.HasPrefix(list.Items[i].Name, theirsPrefix) {
			u.theirs[local] = append(u.theirs[local], list.Items[i].Name)
		}
	}
	return nil
}

// config returns a random ConfigMap in one of the users' namespaces. If there is none, name is "".
func (u *users) config(ctx context.Context, random *rand.Rand) (namespace, name string, err error) {
	if namespace = u.namespace(random); namespace == "" {
		return "", "", nil
	}
	list, err := u.g.Consumer.Client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: "chaos=config"})
	if err != nil || len(list.Items) == 0 {
		return "", "", err
	}
	return namespace, list.Items[random.IntN(len(list.Items))].Name, nil
}

func (u *users) changeConfig(ctx context.Context, random *rand.Rand) error {
	namespace, name, err := u.config(ctx, random)
	if err != nil || name == "" {
		return err
	}
	patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, u.next())
	_, err = u.g.Consumer.Client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (u *users) deleteConfig(ctx context.Context, random *rand.Rand) error {
	namespace, name, err := u.config(ctx, random)
	if err != nil || name == "" {
		return err
	}
	return u.g.Consumer.Client.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (u *users) createService(ctx context.Context, random *rand.Rand) error {
	namespace := u.namespace(random)
	if namespace == "" {
		return nil
	}
	_, err := u.g.Consumer.Client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("service-%d", u.next()), Labels: map[string]string{"chaos": "service"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"chaos": "pod"}, Ports: []corev1.ServicePort{{Port: int32(1000 + u.next())}}},
	}, metav1.CreateOptions{})
	return err
}

func (u *users) deleteService(ctx context.Context, random *rand.Rand) error {
	namespace := u.namespace(random)
	if namespace == "" {
		return nil
	}
	list, err := u.g.Consumer.Client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{LabelSelector: "chaos=service"})
	if err != nil || len(list.Items) < 3 {
		return err
	}
	return u.g.Consumer.Client.CoreV1().Services(namespace).Delete(ctx, list.Items[random.IntN(len(list.Items))].Name, metav1.DeleteOptions{})
}

var offloadings = offloading.GroupVersion.WithResource("namespaceoffloadings")

// remote returns the name of the remote namespace according to the default strategy.
func remote(namespace string) string { return namespace + "-" + lab.ConsumerID }
