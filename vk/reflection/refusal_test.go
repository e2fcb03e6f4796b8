// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// refused returns a lab with a running pod named web, the clock of its manager, and the provider's pod, which a
// finalizer keeps from being deleted.
func refused(t *testing.T) (*lab, *clocktesting.FakeClock, *unstructured.Unstructured) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, func(o *reflection.Options) { o.Clock = clock }).start()
	local := l.Pod("web")
	l.RunRemote("web", running(0))
	l.Remote.PatchYAML(t, "Pod", l.RemoteNS, "web", `{metadata: {finalizers: [example.com/hold]}}`)
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("True"))
	return l, clock, local
}

// revoke removes the consumer's access to the remote namespace, as a provider does that no longer accepts the
// consumer. Grant restores the access.
func (l *lab) revoke() {
	l.Helper()
	ctx, bindings := l.Context(), l.Remote.Core.RbacV1().RoleBindings(l.RemoteNS)
	found, err := bindings.List(ctx, metav1.ListOptions{})
	require.NoError(l, err)
	require.NotEmpty(l, found.Items)
	for i := range found.Items {
		require.NoError(l, bindings.Delete(ctx, found.Items[i].Name, metav1.DeleteOptions{}))
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "rome-" + l.Node, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: l.RemoteNS, Verb: "create", Group: "offloading.liqo.io", Resource: "shadowpods"}}}
	l.Eventually(func() error {
		answer, err := l.Remote.Core.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && answer.Status.Allowed {
			err = errors.New("the consumer may still create ShadowPods")
		}
		return err
	})
}

// loseRemotePod removes the finalizer of the provider's pod.
func (l *lab) loseRemotePod() {
	l.Helper()
	l.Remote.PatchYAML(l.T, "Pod", l.RemoteNS, "web", `{metadata: {finalizers: null}}`)
	err := l.Remote.Of("Pod", l.RemoteNS).Delete(l.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	require.NoError(l, client.IgnoreNotFound(err))
}

func isReady(want string) func(*unstructured.Unstructured) error {
	return hasCondition("Ready", want)
}

// TestPodsAreOverOnceTheProviderRefusesThem checks that when the provider revokes this cluster's access, a pod first
// becomes not ready, and finally fails so that its controller replaces it. The pod must not fail as long as it may be
// running on the provider.
func TestPodsAreOverOnceTheProviderRefusesThem(t *testing.T) {
	t.Parallel()
	l, clock, _ := refused(t)
	l.revoke()
	l.Remote.Delete(t, "ShadowPod", l.RemoteNS, "web")
	l.Event(l.Namespace, "Pod", "web", "Warning", "FailedReflection", "forbidden")
	clock.Step(2 * pod.RefusalGrace)
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))

	l.loseRemotePod()
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("False"))
	clock.Step(pod.RefusalGrace - time.Second)
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.step(clock, pod.RefusalGrace, func() error {
		pod := l.Local.Get(t, "Pod", l.Namespace, "web")
		return errors.Join(reflectiontest.Field("status.phase", "Failed")(pod), reflectiontest.Field("status.reason", wire.OffloadingAbortedReason)(pod))
	})
	l.Event(l.Namespace, "Pod", "web", "Warning", wire.ReflectionDisabledReason, "refused to run it again", "cordon the node")
	l.Grant()
	l.Settled()
	if shadow := l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web"); shadow != nil {
		t.Error("the pod is over, and offloaded again")
	}
}

// TestPodsAreOverWithTheirRemoteNamespace checks that pods also fail if the provider deletes the remote namespace,
// which takes some time.
func TestPodsAreOverWithTheirRemoteNamespace(t *testing.T) {
	t.Parallel()
	l, clock, _ := refused(t)
	l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}`)
	l.Remote.Delete(t, "Namespace", "", l.RemoteNS)
	require.NoError(t, client.IgnoreNotFound(l.Remote.Of("ShadowPod", l.RemoteNS).Delete(t.Context(), "web", metav1.DeleteOptions{})))
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.loseRemotePod()
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("False"))
	clock.Step(pod.RefusalGrace)
	l.step(clock, pod.RefusalGrace, func() error {
		return reflectiontest.Field("status.reason", wire.OffloadingAbortedReason)(l.Local.Get(t, "Pod", l.Namespace, "web"))
	})
	l.Remote.PatchYAML(t, "ConfigMap", l.RemoteNS, "held", `{metadata: {finalizers: null}}`)
}

// TestPodsRunAgainOnceTheProviderAdmitsThem checks that the same pod continues to run if the provider grants access
// again before the pod has failed.
func TestPodsRunAgainOnceTheProviderAdmitsThem(t *testing.T) {
	t.Parallel()
	l, clock, local := refused(t)
	l.revoke()
	l.Remote.Delete(t, "ShadowPod", l.RemoteNS, "web")
	l.loseRemotePod()
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("False"))
	l.Grant()
	l.step(clock, pod.RefusalGrace/2, func() error {
		if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web") == nil {
			return errors.New("there is no ShadowPod")
		}
		return nil
	})
	l.RunRemote("web", running(0))
	l.step(clock, pod.RefusalGrace/2, func() error {
		return isReady("True")(l.Local.Get(t, "Pod", l.Namespace, "web"))
	})
	clock.Step(2 * pod.RefusalGrace)
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("metadata.uid", string(local.GetUID())), reflectiontest.Field("status.phase", "Running"), isReady("True"))
}
