// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/test/support/lab"
)

// restored contains two clusters, one of which is restored from a backup.
type restored struct {
	ctx context.Context
	t   *testing.T
	l   *lab.Lab
}

const restoredNamespace = "shop-" + lab.ConsumerID

// TestEtcdIsRestored restores each cluster from a backup of its etcd while all of our processes are running, connected
// to the cluster through a load balancer. It checks that lost objects are created again within seconds, that objects of
// other clients are not deleted, and that no pod of the other cluster is created again.
func TestEtcdIsRestored(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	l := start(ctx, t, lab.Options{Balanced: true})
	require.NoError(t, l.StartAll(ctx))
	require.NoError(t, l.AwaitNodeReady(ctx))
	offload(ctx, t, l, "shop")
	r := &restored{ctx: ctx, t: t, l: l}
	for _, name := range []string{"kept", "dropped"} {
		r.write(l.Consumer, "shop", name, "before")
		r.pod(name)
	}
	require.NoError(t, l.Wait(ctx, "the remote namespace of shop", func(ctx context.Context) (string, error) {
		return r.is(l.Provider, restoredNamespace, "kept", "before"), nil
	}))
	r.write(l.Provider, restoredNamespace, "theirs", "before")
	r.runs("kept", "dropped")
	r.provider()
	r.consumer()
}

func (r *restored) provider() {
	t, l := r.t, r.l
	backup := filepath.Join(t.TempDir(), "provider.db")
	require.NoError(t, l.Provider.Backup(r.ctx, backup))
	r.age(l.Provider)
	r.write(l.Consumer, "shop", "kept", "after")
	r.write(l.Consumer, "shop", "new", "after")
	r.delete(l.Consumer, "shop", "dropped")
	require.NoError(t, l.Consumer.Client.CoreV1().Pods("shop").Delete(r.ctx, "dropped", metav1.DeleteOptions{}))
	r.pod("new")
	r.runs("new")
	r.says(l.Provider, restoredNamespace, map[string]string{"kept": "after", "new": "after", "dropped": "", "theirs": "before"})
	r.pods("kept", "new")
	kept := r.uid(l.Consumer, "shop", "kept")

	require.NoError(t, l.Provider.Restore(r.ctx, backup))
	begun := time.Now()
	r.says(l.Provider, restoredNamespace, map[string]string{"kept": "after", "new": "after", "dropped": "", "theirs": "before"})
	r.pods("kept", "new")
	r.runs("kept", "new")
	t.Logf("the provider was right again %s after its API server was back", time.Since(begun).Round(100*time.Millisecond))
	if uid := r.uid(l.Consumer, "shop", "kept"); uid != kept {
		t.Error("the pod was replaced on the consumer, though it was only restored on the provider")
	}
	r.write(l.Consumer, "shop", "kept", "later")
	r.says(l.Provider, restoredNamespace, map[string]string{"kept": "later", "theirs": "before"})
}

func (r *restored) consumer() {
	t, l := r.t, r.l
	backup := filepath.Join(t.TempDir(), "consumer.db")
	require.NoError(t, l.Consumer.Backup(r.ctx, backup))
	r.age(l.Consumer)
	r.delete(l.Consumer, "shop", "kept")
	r.write(l.Consumer, "shop", "new", "changed")
	r.write(l.Consumer, "shop", "lost", "after")
	r.pod("lost")
	r.runs("lost")
	r.says(l.Provider, restoredNamespace, map[string]string{"kept": "", "new": "changed", "lost": "after"})
	kept := r.uid(l.Provider, restoredNamespace, "kept")

	require.NoError(t, l.Consumer.Restore(r.ctx, backup))
	begun := time.Now()
	r.says(l.Provider, restoredNamespace, map[string]string{"kept": "later", "new": "after", "lost": "", "theirs": "before"})
	r.pods("kept", "new")
	r.runs("kept", "new")
	t.Logf("all was right again %s after the consumer's API server was back", time.Since(begun).Round(100*time.Millisecond))
	if uid := r.uid(l.Provider, restoredNamespace, "kept"); uid != kept {
		t.Error("the pod was made again on the provider, though only the consumer was restored")
	}
	require.NoError(t, l.AwaitNodeReady(r.ctx))
	r.write(l.Consumer, "shop", "fresh", "now")
	r.says(l.Provider, restoredNamespace, map[string]string{"fresh": "now"})
}

// age writes as many objects as a cluster writes between a backup and its restoration.
func (r *restored) age(side *lab.Side) {
	for i := range 400 {
		r.write(side, metav1.NamespaceDefault, "clock", fmt.Sprint(i))
	}
}

// write creates a ConfigMap with the given content.
func (r *restored) write(side *lab.Side, namespace, name, content string) {
	r.t.Helper()
	maps := side.Client.CoreV1().ConfigMaps(namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"content": content}}
	_, err := maps.Update(r.ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(r.ctx, object, metav1.CreateOptions{})
	}
	require.NoError(r.t, err)
}

func (r *restored) delete(side *lab.Side, namespace, name string) {
	r.t.Helper()
	require.NoError(r.t, side.Client.CoreV1().ConfigMaps(namespace).Delete(r.ctx, name, metav1.DeleteOptions{}))
}

// is returns a text that describes how a ConfigMap differs from the given content. An empty content means that the
// ConfigMap must not exist.
func (r *restored) is(side *lab.Side, namespace, name, content string) string {
	object, err := side.Client.CoreV1().ConfigMaps(namespace).Get(r.ctx, name, metav1.GetOptions{})
	switch {
	case content == "" && apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return err.Error()
	case object.Data["content"] != content:
		return fmt.Sprintf("ConfigMap %s says %q, not %q", name, object.Data["content"], content)
	}
	return ""
}

func (r *restored) says(side *lab.Side, namespace string, contents map[string]string) {
	r.t.Helper()
	for name, content := range contents {
		require.NoError(r.t, r.l.Wait(r.ctx, "ConfigMap "+name+" of "+side.ID, func(context.Context) (string, error) {
			return r.is(side, namespace, name, content), nil
		}))
	}
}

// pod creates a pod on the virtual node.
func (r *restored) pod(name string) {
	r.t.Helper()
	_, err := r.l.Consumer.Client.CoreV1().Pods("shop").Create(r.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: lab.NodeName, Containers: []corev1.Container{{Name: "app", Image: "none"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}}, metav1.CreateOptions{})
	require.NoError(r.t, err)
}

// pods waits until both clusters have exactly the named pods.
func (r *restored) pods(names ...string) {
	r.t.Helper()
	for side, namespace := range map[*lab.Side]string{r.l.Consumer: "shop", r.l.Provider: restoredNamespace} {
		require.NoError(r.t, r.l.Wait(r.ctx, "the pods of "+side.ID, func(ctx context.Context) (string, error) {
			list, err := side.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error(), nil
			}
			found, terminating := map[string]bool{}, []string(nil)
			for i := range list.Items {
				found[list.Items[i].Name] = true
				if list.Items[i].DeletionTimestamp != nil {
					terminating = append(terminating, list.Items[i].Name)
				}
			}
			for _, name := range names {
				if !found[name] {
					return "there is no pod " + name, nil
				}
			}
			if len(found) != len(names) {
				return fmt.Sprintf("there are the pods %q, of which %q are terminating, not %q", slices.Sorted(maps.Keys(found)), terminating, names), nil
			}
			return "", nil
		}))
	}
}

// runs waits until the named pods are ready on the consumer.
func (r *restored) runs(names ...string) {
	r.t.Helper()
	for _, name := range names {
		require.NoError(r.t, r.l.Wait(r.ctx, "pod "+name+" to run", func(ctx context.Context) (string, error) {
			pod, err := r.l.Consumer.Client.CoreV1().Pods("shop").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err.Error(), nil
			}
			if len(pod.Status.ContainerStatuses) == 0 || !pod.Status.ContainerStatuses[0].Ready {
				return fmt.Sprintf("it is %s", pod.Status.Phase), nil
			}
			return "", nil
		}))
	}
}

func (r *restored) uid(side *lab.Side, namespace, name string) types.UID {
	r.t.Helper()
	pod, err := side.Client.CoreV1().Pods(namespace).Get(r.ctx, name, metav1.GetOptions{})
	require.NoError(r.t, err)
	return pod.UID
}
