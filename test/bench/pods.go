// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/lab"
	"github.com/refract-project/refract/internal/testenv"
)

// withoutTokens compares like with like: simulated nodes give plain pods no tokens of the consumer's API server.
var withoutTokens = map[string]string{wire.APIServerSupportAnnotation: wire.APIServerSupportDisabled}

func (b *bench) plainPods(ctx context.Context) error {
	progress("%d pods on simulated nodes of the consumer", b.pods)
	nodes := map[string]string{testenv.KwokNodeLabel: "kwok"}
	took, used, err := b.rollout(ctx, "plain", nodes, fmt.Sprintf("Deployment of %d pods on plain nodes", b.pods))
	if err != nil {
		return err
	}
	b.plain.rollout, b.plain.rolloutCPU = took, used
	took, used, err = b.deletion(ctx, "plain", "the same deleted")
	if err != nil {
		return err
	}
	b.plain.deletion, b.plain.deletionCPU = took, used
	_, err = b.settled(ctx)
	return err
}

// rollout deploys as many pods as are timed.
func (b *bench) rollout(ctx context.Context, name string, nodes map[string]string, what string) (took, used time.Duration, err error) {
	at := len(b.figures)
	used, err = b.phase(ctx, func(ctx context.Context) (err error) {
		took, err = b.deploy(ctx, name, b.pods, nodes, withoutTokens)
		return err
	})
	b.figures = slices.Insert(b.figures, at, figure{what: what, value: fmt.Sprintf("%.1f s", took.Seconds())})
	return took, used, err
}

// deletion deletes them again.
func (b *bench) deletion(ctx context.Context, name, what string) (took, used time.Duration, err error) {
	at, begun := len(b.figures), time.Now()
	used, err = b.phase(ctx, func(ctx context.Context) error { return b.remove(ctx, name) })
	took = time.Since(begun)
	b.figures = slices.Insert(b.figures, at, figure{what: what, value: fmt.Sprintf("%.1f s", took.Seconds())})
	return took, used, err
}

// virtualNodes is where offloaded pods are.
var virtualNodes = map[string]string{wire.TypeLabel: wire.VirtualNodeType}

func (b *bench) offloadedPods(ctx context.Context) error {
	progress("%d pods on the virtual node", b.pods)
	took, used, err := b.rollout(ctx, offloadedApp, virtualNodes, "the same on the virtual node, all local pods Ready")
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
	b.found("ratio of the two", "%.2f", took.Seconds()/b.plain.rollout.Seconds())
	b.atMostTime("ratio of the two in processor time", used.Seconds()/b.plain.rolloutCPU.Seconds(), 2.8, "")
	b.atMost("our writes per pod, both clusters", float64(len(writes))/float64(b.pods), 8, "")
	b.tally(writes, b.pods)
	if err := b.kubelet(); err != nil {
		return err
	}
	return b.offloadedDeleted(ctx)
}

// offloadedApp is the Deployment whose pods are timed on the virtual node.
const offloadedApp = "offloaded"

// offloadedDeleted measures how the pods go, and has them come back for what follows.
func (b *bench) offloadedDeleted(ctx context.Context) error {
	progress("their deletion")
	took, used, err := b.deletion(ctx, offloadedApp, "the same deleted")
	if err != nil {
		return err
	}
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	b.found("ratio of that to the deletion on plain nodes", "%.2f", took.Seconds()/b.plain.deletion.Seconds())
	b.atMostTime("ratio of that in processor time", used.Seconds()/b.plain.deletionCPU.Seconds(), 3, "")
	b.atMost("our writes per deleted pod, both clusters", float64(len(writes))/float64(b.pods), 8, "")
	b.tally(writes, b.pods)
	if err := b.kubelet(); err != nil {
		return err
	}
	if _, err := b.deploy(ctx, offloadedApp, b.pods, virtualNodes, withoutTokens); err != nil {
		return err
	}
	if err := b.awaitRecorded(ctx, b.pods); err != nil {
		return err
	}
	_, err = b.settled(ctx)
	return err
}

// tally records of what kind writes were, in parts of a number of objects.
func (b *bench) tally(writes []lab.Write, objects int) {
	for kind, n := range lab.Tally(writes) {
		if n >= objects/10 {
			b.found("   of these: "+kind, "%.2f", float64(n)/float64(objects))
		}
	}
}

// tokensApp is the Deployment whose pods have tokens.
const tokensApp = "tokens"

// podsWithTokens counts what the tokens with which pods use the consumer's API server cost on top.
func (b *bench) podsWithTokens(ctx context.Context) error {
	progress("%d pods with tokens", few)
	if _, err := b.deploy(ctx, tokensApp, few, virtualNodes, nil); err != nil {
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

// awaitRecorded waits until so many ShadowPods tell that their pods run, which the provider's controller writes down last.
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
			return fmt.Sprintf("%d of %d tell that their pod runs", recorded, b.pods), nil
		}
		return "", nil
	})
}

// deploy creates a Deployment on the nodes with the given labels and returns how long it took until all its pods were Ready.
func (b *bench) deploy(ctx context.Context, name string, pods int, nodes, annotations map[string]string) (time.Duration, error) {
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
	begun := time.Now()
	if _, err := b.Consumer.Client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	err := b.Wait(ctx, "all pods of "+name+" to be Ready", func(ctx context.Context) (string, error) {
		found, err := b.Consumer.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if found.Status.ReadyReplicas < replicas {
			return fmt.Sprintf("%d of %d are", found.Status.ReadyReplicas, replicas), nil
		}
		return "", nil
	})
	return time.Since(begun), err
}

// remove deletes a Deployment and waits until its pods are gone.
func (b *bench) remove(ctx context.Context, name string) error {
	if err := b.Consumer.Client.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return b.Wait(ctx, "the pods of "+name+" to be gone", func(ctx context.Context) (string, error) {
		left, err := b.Consumer.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name, Limit: 1})
		if err != nil {
			return "", err
		}
		if len(left.Items) > 0 {
			return "some are left", nil
		}
		return "", nil
	})
}
