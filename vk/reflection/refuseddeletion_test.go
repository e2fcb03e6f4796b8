// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// denyDeletion makes an admission policy of a cluster deny the deletion of the objects of a kind for which the
// expression is true, and waits until the policy denies the deletion of one of them. The returned function removes
// the policy.
func (l *lab) denyDeletion(s *reflectiontest.Side, group, resource, expression, kind, namespace, name string) (allow func()) {
	l.Helper()
	policy := "keep-" + resource + "-" + l.Node
	s.Create(l.T, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [%q], apiVersions: ["*"], resources: [%s], operations: [DELETE]}]}
  matchConditions: [{name: subject, expression: %q}]
  validations: [{expression: "false", message: keep it}]`, policy, group, resource, expression))
	s.Create(l.T, "", fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %[1]s},
  spec: {policyName: %[1]s, validationActions: [Deny]}}`, policy))
	allow = func() {
		for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
			err := s.Of(kind, "").Delete(l.Context(), policy, metav1.DeleteOptions{})
			require.True(l, err == nil || apierrors.IsNotFound(err), err)
		}
	}
	l.Eventually(func() error {
		err := s.Of(kind, namespace).Delete(l.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the policy is not in force yet")
		}
		return nil
	})
	return allow
}

func (l *lab) inRemoteNamespace() string { return fmt.Sprintf("request.namespace == '%s'", l.RemoteNS) }

// TestAPodWhoseDeletionIsRefusedHasAStatus checks that the status of a pod that is being deleted is still reflected
// while the provider refuses the deletion of its ShadowPod, and that the pod ends once the deletion is allowed.
func TestAPodWhoseDeletionIsRefusedHasAStatus(t *testing.T) {
	t.Parallel()
	l := newLab(t).start()
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("True"))
	allow := l.denyDeletion(l.Remote, "offloading.liqo.io", "shadowpods", l.inRemoteNamespace(), "ShadowPod", l.RemoteNS, "web")

	l.Local.Delete(t, "Pod", l.Namespace, "web")
	l.Event(l.Namespace, "Pod", "web", "Warning", "keep it")
	l.RemoteStatus("web", `{conditions: [{type: Ready, status: "False", reason: ContainersNotReady}]}`)
	l.Present(l.Local, "Pod", l.Namespace, "web", isReady("False"))
	require.NotNil(t, l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web"))

	allow()
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Remote.DeleteNow(t, "Pod", l.RemoteNS, "web")
	l.Absent(l.Local, "Pod", l.Namespace, "web")
}

// TestAStatusIsRetractedAlthoughTheDeletionIsRefused checks that the status of a Service that is no longer reflected is
// removed although the provider refuses the deletion of its copy.
func TestAStatusIsRetractedAlthoughTheDeletionIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, balanced)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	allow := l.denyDeletion(l.Remote, "", "services", l.inRemoteNamespace(), "Service", l.RemoteNS, "web")

	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
	l.Event(l.Namespace, "Service", "web", "Warning", "keep it")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses(), reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, ""))
	require.NotNil(t, l.Remote.Get(t, "Service", l.RemoteNS, "web"))
	allow()
	l.Absent(l.Remote, "Service", l.RemoteNS, "web")
}

// TestAFormerVolumeThatStaysDoesNotStopItsSuccessor checks that a claim is provisioned and its status reflected
// although this cluster refuses the deletion of the volume of an earlier claim of the same name.
func TestAFormerVolumeThatStaysDoesNotStopItsSuccessor(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	l.claim("data", l.Node)
	_, former := l.bound("data")
	allow := l.denyDeletion(l.Local, "", "persistentvolumes", fmt.Sprintf("request.name == '%s'", former.GetName()), "PersistentVolume", "", former.GetName())
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "data")
	l.Absent(l.Local, reflection.ClaimKind, l.Namespace, "data")
	l.Absent(l.Remote, reflection.ClaimKind, l.RemoteNS, "data")

	l.claim("data", l.Node)
	l.bound("data")
	l.disks("data", "2Gi")
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data", reflectiontest.Field("status.capacity.storage", "2Gi"))
	require.NotNil(t, l.Local.Get(t, "PersistentVolume", "", former.GetName()))
	l.Event(l.Namespace, reflection.ClaimKind, "data", "Warning", "keep it")
	allow()
	l.Absent(l.Local, "PersistentVolume", "", former.GetName())
}
