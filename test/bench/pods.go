// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/figures"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
)

// withoutTokens disables tokens, so that the comparison is fair: plain pods on simulated nodes do not get tokens from
// the consumer's API server.
var withoutTokens = map[string]string{wire.APIServerSupportAnnotation: wire.APIServerSupportDisabled}

// load is a Deployment that is rolled out and deleted in one cluster or in both.
type load struct {
	name   string
	nodes  map[string]string // labels of the nodes for the pods
	places []place
}

// place is a namespace in one of the clusters.
type place struct {
	side      *lab.Side
	namespace string
}

// simulatedNodes are the labels of the simulated nodes, which are the same in both clusters.
var simulatedNodes = map[string]string{testenv.KwokNodeLabel: "kwok"}

// plainPods measures pods on nodes of their own cluster, first in one cluster and then in two independent clusters at
// the same time. The second result is the minimum cost of pods in two control planes on this machine.
func (b *bench) plainPods(ctx context.Context) error {
	progress("%d pods on simulated nodes of the consumer", b.pods)
	plain, err := b.plainOnce(ctx)
	if err != nil {
		return err
	}
	progress("the same in both clusters at once")
	plain.places = append(plain.places, place{b.Provider, plainNamespace})
	if b.plain.both.rollout, err = b.deployed(ctx, plain, "the same in both clusters at once"); err != nil {
		return err
	}
	_, used := b.plain.both.rollout.ratio(b.plain.rollout)
	b.found("ratio to one, in processor time", "%.2f", used)
	if _, err := b.settled(ctx); err != nil {
		return err
	}
	if b.plain.both.deletion, err = b.removed(ctx, plain, "the same deleted"); err != nil {
		return err
	}
	_, used = b.plain.both.deletion.ratio(b.plain.deletion)
	b.found("ratio to one, in processor time", "%.2f", used)
	_, err = b.settled(ctx)
	return err
}

// plainOnce measures pods on nodes of the consumer.
func (b *bench) plainOnce(ctx context.Context) (load, error) {
	plain := load{"plain", simulatedNodes, []place{{b.Consumer, namespace}}}
	c, err := b.deployed(ctx, plain, fmt.Sprintf("Deployment of %d pods on plain nodes", b.pods))
	if err != nil {
		return plain, err
	}
	b.plain.rollout = append(b.plain.rollout, c)
	// The processes must be idle before the pods are deleted, as in the measurement of the pods on the virtual node.
	if _, err := b.settled(ctx); err != nil {
		return plain, err
	}
	if c, err = b.removed(ctx, plain, "the same deleted"); err != nil {
		return plain, err
	}
	b.plain.deletion = append(b.plain.deletion, c)
	return plain, nil
}

// comparedPods measures the plain pods again, and compares the costs.
func (b *bench) comparedPods(ctx context.Context) error {
	progress("%d pods on simulated nodes of the consumer, once more", b.pods)
	if _, err := b.plainOnce(ctx); err != nil {
		return err
	}
	took, used := b.rollout.ratio(b.plain.rollout)
	b.found("rollout on the virtual node, compared with the mean on plain nodes", "%.2f", took)
	b.atMostTime("   in processor time", used, 2.8, "")
	b.againstBoth(b.rollout, b.plain.both.rollout)
	took, used = b.deletion.ratio(b.plain.deletion)
	b.found("deletion on the virtual node, compared with the mean on plain nodes", "%.2f", took)
	b.atMostTime("   in processor time", used, 3, "")
	b.againstBoth(b.deletion, b.plain.both.deletion)
	_, err := b.settled(ctx)
	return err
}

// deployed deploys the pods to be measured in each place, and measures the cost.
func (b *bench) deployed(ctx context.Context, l load, what string) (cost, error) {
	return b.timed(ctx, what, l, func(ctx context.Context, p place) error {
		return b.deploy(ctx, p, l.name, b.pods, l.nodes, withoutTokens)
	})
}

// removed deletes the pods and measures the cost.
func (b *bench) removed(ctx context.Context, l load, what string) (cost, error) {
	return b.timed(ctx, what, l, func(ctx context.Context, p place) error { return b.remove(ctx, p, l.name) })
}

// timed runs do for all places of a load at the same time, and measures the cost.
func (b *bench) timed(ctx context.Context, what string, l load, do func(context.Context, place) error) (c cost, err error) {
	at := len(b.table.Figures)
	c.used, err = b.phase(ctx, func(ctx context.Context) error {
		begun := time.Now()
		group, ctx := errgroup.WithContext(ctx)
		for _, p := range l.places {
			group.Go(func() error { return do(ctx, p) })
		}
		err := group.Wait()
		c.took = time.Since(begun)
		return err
	})
	b.table.Figures = slices.Insert(b.table.Figures, at, figures.Figure{What: what, Value: fmt.Sprintf("%.1f s", c.took.Seconds())})
	return c, err
}

// virtualNodes are the labels of the nodes for offloaded pods.
var virtualNodes = map[string]string{wire.TypeLabel: wire.VirtualNodeType}

func (b *bench) offloadedPods(ctx context.Context) (err error) {
	progress("%d pods on the virtual node", b.pods)
	b.rollout, err = b.deployed(ctx, b.offloaded(), fmt.Sprintf("Deployment of %d pods on the virtual node, all local pods Ready", b.pods))
	if err != nil {
		return err
	}
	if err := b.awaitRecorded(ctx, b.pods); err != nil {
		return err
	}
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	b.atMost("our writes per pod, both clusters", float64(len(writes))/float64(b.pods), 8, "")
	b.tally(writes, b.pods)
	return b.kubelet()
}

// offloadedApp is the Deployment whose pods are measured on the virtual node.
const offloadedApp = "offloaded"

func (b *bench) offloaded() load {
	return load{offloadedApp, virtualNodes, []place{{b.Consumer, namespace}}}
}

// offloadedDeleted measures the deletion of the offloaded pods.
func (b *bench) offloadedDeleted(ctx context.Context) (err error) {
	progress("their deletion")
	if b.deletion, err = b.removed(ctx, b.offloaded(), "Deployment on the virtual node deleted"); err != nil {
		return err
	}
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	b.atMost("our writes per deleted pod, both clusters", float64(len(writes))/float64(b.pods), 8, "")
	b.tally(writes, b.pods)
	return b.kubelet()
}

// offloadedAgain deploys the offloaded pods again for the measurements that follow.
func (b *bench) offloadedAgain(ctx context.Context) error {
	if err := b.deploy(ctx, b.offloaded().places[0], offloadedApp, b.pods, virtualNodes, withoutTokens); err != nil {
		return err
	}
	if err := b.awaitRecorded(ctx, b.pods); err != nil {
		return err
	}
	_, err := b.settled(ctx)
	return err
}

// tally records, for each kind, how many writes there are per object.
func (b *bench) tally(writes []lab.Write, objects int) {
	for kind, n := range lab.Tally(writes) {
		if n >= objects/10 {
			b.found("   of these: "+kind, "%.2f", float64(n)/float64(objects))
		}
	}
}

// tokensApp is the Deployment whose pods have tokens.
const tokensApp = "tokens"

// podsWithTokens measures how much more the pods cost if they have tokens for the consumer's API server.
func (b *bench) podsWithTokens(ctx context.Context) error {
	progress("%d pods with tokens", few)
	if err := b.deploy(ctx, b.offloaded().places[0], tokensApp, few, virtualNodes, nil); err != nil {
		return err
	}
	if err := b.awaitRecorded(ctx, b.pods+few); err != nil {
		return err
	}
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	b.atMost("our writes per pod with a token, both clusters", float64(len(writes))/few, 8, "")
	b.tally(writes, few)
	return nil
}

// awaitRecorded waits until the given number of ShadowPods have the phase Running. Setting this phase is the last write
// of the provider's controller.
func (b *bench) awaitRecorded(ctx context.Context, pods int) error {
	return b.Wait(ctx, "the phases of ShadowPods", func(ctx context.Context) (string, error) {
		list, err := b.Provider.Dynamic.Resource(offloadingv1beta1.ShadowPodGVR).Namespace(remoteNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		recorded := 0
		for i := range list.Items {
			if phase, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "phase"); phase == string(corev1.PodRunning) {
				recorded++
			}
		}
		if recorded < pods {
			return fmt.Sprintf("%d of %d are Running", recorded, b.pods), nil
		}
		return "", nil
	})
}

// deploy creates a Deployment on the nodes with the given labels and waits until all its pods are Ready.
func (b *bench) deploy(ctx context.Context, p place, name string, pods int, nodes, annotations map[string]string) error {
	replicas := int32(pods)
	labels := map[string]string{"app": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec: corev1.PodSpec{
					NodeSelector: nodes,
					Tolerations:  []corev1.Toleration{{Key: wire.VirtualNodeTaint, Operator: corev1.TolerationOpExists}},
					Containers:   []corev1.Container{{Name: "app", Image: "registry.example/app:1"}},
				},
			},
		},
	}
	deployments := p.side.Client.AppsV1().Deployments(p.namespace)
	if _, err := deployments.Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return err
	}
	return b.Wait(ctx, "all pods of "+name+" to be Ready", func(ctx context.Context) (string, error) {
		found, err := deployments.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if found.Status.ReadyReplicas < replicas {
			return fmt.Sprintf("%d of %d are", found.Status.ReadyReplicas, replicas), nil
		}
		return "", nil
	})
}

// remove deletes a Deployment and waits until its pods are gone.
func (b *bench) remove(ctx context.Context, p place, name string) error {
	if err := p.side.Client.AppsV1().Deployments(p.namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return b.Wait(ctx, "the pods of "+name+" to be gone", func(ctx context.Context) (string, error) {
		left, err := p.side.Client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name, Limit: 1})
		if err != nil {
			return "", err
		}
		if len(left.Items) > 0 {
			return "some are left", nil
		}
		return "", nil
	})
}
