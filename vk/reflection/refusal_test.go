// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
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

// tenantLab returns a lab whose consumer has a tenant namespace on the provider, and the clock of its manager.
func tenantLab(t *testing.T) (*lab, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, func(o *reflection.Options) { o.Clock = clock })
	l.Options.RemoteTenantNamespace = "liqo-tenant-rome-" + l.Node
	l.Remote.CreateNamespace(t, l.Options.RemoteTenantNamespace)
	l.admitTenant()
	return l.start(), clock
}

// heartbeat is a permission of the consumer in its tenant namespace.
func (l *lab) heartbeat() authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Namespace: l.Options.RemoteTenantNamespace, Verb: "patch", Group: "coordination.k8s.io", Resource: "leases", Name: wire.HeartbeatLease}
}

// admitTenant gives the consumer access to its tenant namespace.
func (l *lab) admitTenant() {
	l.Helper()
	consumer := rbac.Consumer{Prefix: l.Node + "-", Subject: rbac.User("rome-" + l.Node)}
	require.NoError(l, rbac.Install(l.Context(), l.Remote.Core, consumer.TenantNamespace(l.Options.RemoteTenantNamespace)))
	l.awaitAccess(true, l.heartbeat())
}

// drain removes the consumer's access to its namespaces and deletes its ShadowPods, as a provider does that drains the
// Tenant of the consumer.
func (l *lab) drain(shadows ...string) {
	l.Helper()
	none := metav1.ListOptions{}
	require.NoError(l, l.Remote.Core.RbacV1().RoleBindings(l.Options.RemoteTenantNamespace).DeleteCollection(l.Context(), metav1.DeleteOptions{}, none))
	l.awaitAccess(false, l.heartbeat())
	l.revoke()
	for _, name := range shadows {
		l.Remote.Delete(l.T, "ShadowPod", l.RemoteNS, name)
	}
}

// hasStatus returns a check of the phase and the reason of a pod.
func hasStatus(phase, reason string) func(*unstructured.Unstructured) error {
	return func(pod *unstructured.Unstructured) error {
		return errors.Join(reflectiontest.Field("status.phase", phase)(pod), reflectiontest.Field("status.reason", reason)(pod))
	}
}

// TestPodsFailWhenTheProviderDrainsTheConsumer checks that pods whose offloading was withdrawn fail long before the end
// of RefusalGrace, even a pod that had not started yet. A pod that is scheduled afterwards waits with a reason, because
// its replacement would be refused as well. It is offloaded once the provider activates the consumer again.
func TestPodsFailWhenTheProviderDrainsTheConsumer(t *testing.T) {
	t.Parallel()
	l, clock := tenantLab(t)
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Pod("waiting")
	l.RunRemote("waiting", `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: full}]}`)
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("True"))
	l.Present(l.Local, "Pod", l.Namespace, "waiting", reflectiontest.Field("metadata.labels/"+wire.OffloadedPodLabel, "true"))

	l.drain("web", "waiting")
	for _, name := range []string{"web", "waiting"} {
		l.removeRemotePod(name)
		l.step(clock, pod.RefusalGrace/2, func() error {
			return hasStatus("Failed", wire.OffloadingAbortedReason)(l.Local.Get(t, "Pod", l.Namespace, name))
		})
		l.Event(l.Namespace, "Pod", name, "Warning", wire.ReflectionDisabledReason, "has withdrawn the access of this cluster", "activate tenant rome")
	}
	l.Pod("next")
	l.step(clock, pod.RefusalGrace/2, func() error {
		return hasStatus("Pending", wire.OffloadingBackOffReason)(l.Local.Get(t, "Pod", l.Namespace, "next"))
	})
	l.Event(l.Namespace, "Pod", "next", "Warning", wire.ReflectionDisabledReason, "does not let this cluster create ShadowPods", "activate tenant rome")
	clock.Step(2 * pod.RefusalGrace)
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "next", hasStatus("Pending", wire.OffloadingBackOffReason))

	l.admitTenant()
	l.Grant()
	l.step(clock, pod.RefusalGrace/2, func() error {
		if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "next") == nil {
			return errors.New("there is no ShadowPod")
		}
		return nil
	})
	l.RunRemote("next", running(0))
	l.step(clock, pod.RefusalGrace/2, func() error {
		return hasStatus("Running", "")(l.Local.Get(t, "Pod", l.Namespace, "next"))
	})
}

// TestPodsOutliveALostRemoteNamespace checks that pods do not fail before the end of RefusalGrace if the permissions for
// the remote namespace are gone, but the provider has not withdrawn the access of this cluster: the permissions are
// deleted with the namespace, which the provider recreates, or their roles are, in an upgrade.
func TestPodsOutliveALostRemoteNamespace(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(*lab){
		"the namespace is lost": func(l *lab) { l.revoke() },
		"a role is lost": func(l *lab) {
			l.drain()
			_, err := l.Remote.Core.RbacV1().RoleBindings(l.Options.RemoteTenantNamespace).Create(l.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "upgrade"}, Subjects: []rbacv1.Subject{rbac.User("rome-" + l.Node)},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "missing-" + l.Node},
			}, metav1.CreateOptions{})
			require.NoError(l, err)
			l.awaitReason(l.heartbeat(), "missing-"+l.Node)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, clock := tenantLab(t)
			l.Pod("web")
			l.RunRemote("web", running(0))
			l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("True"))
			revoke(l)
			l.Remote.Delete(t, "ShadowPod", l.RemoteNS, "web")
			l.removeRemotePod("web")
			l.Present(l.Local, "Pod", l.Namespace, "web", isReady("False"))
			for range 5 {
				clock.Step(2 * pod.DenialInterval)
				l.Settled()
			}
			l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("False"))
			l.Grant()
			l.step(clock, pod.RefusalGrace/2, func() error {
				if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web") == nil {
					return errors.New("there is no ShadowPod")
				}
				return nil
			})
		})
	}
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
	l.awaitAccess(false, authorizationv1.ResourceAttributes{Namespace: l.RemoteNS, Verb: "create", Group: "offloading.liqo.io", Resource: "shadowpods"})
}

// awaitAccess waits until the provider grants a permission to the consumer, or denies it.
func (l *lab) awaitAccess(granted bool, permission authorizationv1.ResourceAttributes) {
	l.Helper()
	l.awaitReview(permission, func(status authorizationv1.SubjectAccessReviewStatus) bool { return status.Allowed == granted })
}

// awaitReason waits until the provider denies a permission to the consumer with a reason.
func (l *lab) awaitReason(permission authorizationv1.ResourceAttributes, reason string) {
	l.Helper()
	l.awaitReview(permission, func(status authorizationv1.SubjectAccessReviewStatus) bool {
		return !status.Allowed && strings.Contains(status.Reason, reason)
	})
}

func (l *lab) awaitReview(permission authorizationv1.ResourceAttributes, isDone func(authorizationv1.SubjectAccessReviewStatus) bool) {
	l.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "rome-" + l.Node, ResourceAttributes: &permission}}
	l.Eventually(func() error {
		answer, err := l.Remote.Core.AuthorizationV1().SubjectAccessReviews().Create(l.Context(), review, metav1.CreateOptions{})
		if err == nil && !isDone(answer.Status) {
			err = fmt.Errorf("%s %s in namespace %s: %+v", permission.Verb, permission.Resource, permission.Namespace, answer.Status)
		}
		return err
	})
}

// loseRemotePod removes the finalizer of the provider's pod.
func (l *lab) loseRemotePod() {
	l.Helper()
	l.Remote.PatchYAML(l.T, "Pod", l.RemoteNS, "web", `{metadata: {finalizers: null}}`)
	l.removeRemotePod("web")
}

// removeRemotePod deletes a pod of the provider at once, unless the garbage collector has deleted it.
func (l *lab) removeRemotePod(name string) {
	l.Helper()
	err := l.Remote.Of("Pod", l.RemoteNS).Delete(l.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
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
