// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/test/support/lab"
)

// TestStandbyTakesOver stops the leader while another replica is a standby with filled caches. It checks that this
// replica continues with the existing objects and does not write them again.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	const many = 150
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	l := start(ctx, t, lab.Options{Elect: true})
	require.NoError(t, l.StartAll(ctx))
	require.NoError(t, l.AwaitNodeReady(ctx))
	offload(ctx, t, l, "shop")
	awaitWebhook(ctx, t, l, "shop")
	create := func(name string) {
		_, err := l.Consumer.Client.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: lab.NodeName, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	remote := "shop-" + lab.ConsumerID
	shown := func(number int) {
		require.NoError(t, l.Wait(ctx, fmt.Sprintf("%d pods to run", number), func(ctx context.Context) (string, error) {
			pods, err := l.Consumer.Client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
			if err == nil && len(pods.Items) != number {
				return fmt.Sprintf("%d do", len(pods.Items)), nil
			}
			return "", err
		}))
	}
	for n := range many {
		create(fmt.Sprintf("pod-%d", n))
	}
	require.NoError(t, l.StartStandby(ctx))
	require.NoError(t, l.AwaitStandby(ctx))
	shown(many)
	journal, err := lab.NewJournal(l.Provider.AuditLogPath())
	require.NoError(t, err)
	// Only the virtual kubelet's writes are counted, because the provider's controllers may still write statuses on a
	// busy machine.
	written := func() []lab.Write {
		writes, err := journal.Next()
		require.NoError(t, err)
		return slices.DeleteFunc(writes, func(w lab.Write) bool {
			return w.Name == "late" || w.Namespace != remote || w.IsEvent() || w.User != lab.RemoteUser
		})
	}
	quiet := 0
	require.NoError(t, l.Wait(ctx, "everything to be written", func(context.Context) (string, error) {
		if quiet++; len(written()) > 0 {
			quiet = 0
		}
		if quiet < 10 {
			return "there were writes a moment ago", nil
		}
		return "", nil
	}))

	require.NoError(t, l.StopKubelet(ctx))
	stopped := time.Now()
	create("late")
	require.NoError(t, l.Wait(ctx, "the late pod to cross", func(ctx context.Context) (string, error) {
		if _, err := l.Provider.Dynamic.Resource(offloadingv1beta1.ShadowPodGVR).Namespace(remote).Get(ctx, "late", metav1.GetOptions{}); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}))
	t.Logf("the standby replica reflects %s after the other one has ended", time.Since(stopped).Round(10*time.Millisecond))
	shown(many + 1)
	log, err := os.ReadFile(l.Standby().LogPath())
	require.NoError(t, err)
	took := regexp.MustCompile(`Took over from the replica that led.*`).Find(log)
	assert.NotNil(t, took, "it has not taken over with what it had read")
	t.Logf("%s", took)
	assert.Empty(t, written(), "what was there already")
}
