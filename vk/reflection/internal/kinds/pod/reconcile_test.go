// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/kindtest"
	"github.com/refract-project/refract/vk/reflection/internal/statusdelay"
)

const (
	deleting     = `deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 30`
	someoneElses = `annotations: {plugins.refract.io/origin-uid: another}`
)

// TestNextWriteOfAPod checks, for each state of a pod on both sides, what is written next.
func TestNextWriteOfAPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		local, metadata, spec       string // pod here, "" = none
		shadow, shadowStatus        string // metadata of the ShadowPod, "" = none
		remote, remoteStatus        string // metadata of the provider's pod, "" = none
		chain                       kindtest.Chain
		writes                      []string
		phase, reason, event, retry string
	}{
		"a new pod": {local: pending, writes: []string{"there create shadowpods"}, phase: "Pending"},
		"a new pod that a plugin skips": {local: pending, chain: kindtest.Skip,
			writes: []string{"here patch pods/status"}, phase: "Pending", reason: wire.OffloadingBackOffReason, event: "not today"},
		"a pod that is skipped again": {local: flow("phase: Pending",
			"reason: "+wire.OffloadingBackOffReason), chain: kindtest.Skip, phase: "Pending", reason: wire.OffloadingBackOffReason},
		"a running pod that a plugin skips": {local: running, shadow: "{}", remote: "{}", remoteStatus: running,
			chain: kindtest.Skip, writes: []string{"here patch pods/status"}, phase: "Failed",
			reason: wire.OffloadingAbortedReason, event: "not today"},
		"an offered pod that a plugin skips": {local: pending, shadow: "{}", chain: kindtest.Skip,
			writes: []string{"here patch pods/status",
				"there delete shadowpods"}, phase: "Pending", reason: wire.OffloadingBackOffReason},
		"an aborted pod": {local: flow("phase: Failed", "reason: "+wire.OffloadingAbortedReason),
			shadow: "{}", writes: []string{"there delete shadowpods"}, phase: "Failed", reason: wire.OffloadingAbortedReason},
		"a finished pod": {local: succeeded, shadow: "{}", remote: "{}", remoteStatus: succeeded,
			phase: "Succeeded"},
		"a ShadowPod of an earlier pod": {local: pending, shadow: flow(someoneElses),
			writes: []string{"there delete shadowpods"}, phase: "Pending"},
		"a ShadowPod without its pod": {shadow: "{}", writes: []string{"there delete shadowpods"}, phase: "gone"},
		"a pod that runs": {local: pending, shadow: "{}", remote: "{}", remoteStatus: running,
			writes: []string{"here patch pods/status"}, phase: "Running"},
		"a pod that has just been bound": {local: pending, shadow: "{}", remote: "{}", remoteStatus: pending,
			retry: "1s", phase: "Pending"},
		"a pod that no node there takes": {local: pending, shadow: "{}", remote: "{}",
			remoteStatus: `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable,
  message: full}]}`, writes: []string{"here patch pods/status"}, phase: "Pending"},
		"a pod that has succeeded": {local: running, shadow: "{}", remote: "{}", remoteStatus: succeeded,
			writes: []string{"here patch pods/status"}, phase: "Succeeded"},
		"a pod that is evicted there": {local: running, shadow: "{}", remote: flow(deleting),
			remoteStatus: running, writes: []string{"here patch pods/status"}, phase: "Running"},
		"a pod that is recreated there": {local: running, shadow: "{}", remote: "{}",
			remoteStatus: `{phase: Pending, conditions: [{type: PodScheduled, status: "False",
  message: full}]}`, writes: []string{"here patch pods/status"}, phase: "Running"},
		"a pod that is gone there": {local: running, shadow: "{}",
			writes: []string{"here patch pods/status"}, phase: "Running"},
		"a pod that ended while nobody watched": {local: running, shadow: "{}", shadowStatus: "{phase: Failed}",
			writes: []string{"here patch pods/status"}, phase: "Failed", reason: wire.RemotePodTerminatedReason},
		"a deleted pod": {local: running, metadata: flow(deleting, "finalizers: [a/b]"),
			shadow: "{}", remote: "{}", remoteStatus: running, writes: []string{"there delete shadowpods",
				"here patch pods/status"}, phase: "Running"},
		"a deleted pod that is gone there": {local: running, metadata: flow(deleting),
			writes: []string{"here delete pods"}, phase: "gone"},
		"a deleted pod with a finalizer": {local: running, metadata: flow(deleting, "finalizers: [a/b]"),
			writes: []string{"here patch pods/status", "here delete pods"}, phase: "Failed", reason: wire.RemotePodTerminatedReason},
		"a pod that is deleted already": {local: succeeded,
			metadata: flow(`deletionTimestamp: "2026-01-01T00:00:00Z"`, "deletionGracePeriodSeconds: 0",
				"finalizers: [a/b]"), phase: "Succeeded"},
		"a pod that must end soon": {local: succeeded, metadata: flow(`deletionTimestamp: "2026-01-01T00:00:00Z"`,
			"deletionGracePeriodSeconds: 0", "finalizers: [a/b]"), shadow: flow(deleting),
			remote: flow(deleting, "finalizers: [a/b]"), remoteStatus: running,
			writes: []string{"there delete pods"}, phase: "Succeeded"},
		"a projection that cannot cross": {local: pending, spec: `{volumes: [{name: ca,
  projected: {sources: [{clusterTrustBundle: {name: ca, path: ca.pem}}]}}]}`, writes: []string{"here patch pods/status"},
			phase: "Pending", reason: wire.OffloadingBackOffReason, event: "projects a ClusterTrustBundle"},
		"a projection that the provider has": {local: pending,
			metadata: `{annotations: {plugins.refract.io/remote-references: ClusterTrustBundle}}`,
			spec: `{volumes: [{name: ca, projected: {sources: [{clusterTrustBundle: {name: ca,
  path: ca.pem}}]}}]}`, writes: []string{"there create shadowpods"}, phase: "Pending"},
		"devices of this cluster": {local: pending, spec: `{resourceClaims: [{name: gpu, resourceClaimName: gpu}]}`,
			writes: []string{"here patch pods/status"}, phase: "Pending", reason: wire.OffloadingBackOffReason, event: "asks for devices"},
		"another image": {local: running, spec: `{containers: [{name: web, image: "web:2"}]}`, shadow: "{}",
			remote: "{}", remoteStatus: running, writes: []string{"there update shadowpods", "here patch pods/status"}, phase: "Running"},
		"another image, while the provider is away": {local: running,
			metadata: `{labels: {` + wire.RemoteUnavailableLabel + `: "true"}}`, spec: `{containers: [{name: web,
  image: "web:2"}]}`, shadow: "{}", remote: "{}", remoteStatus: running,
			writes: []string{"here patch pods/status"}, phase: "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			if c.local != "" {
				l.local(c.local, c.metadata, c.spec)
			}
			if c.shadow != "" {
				l.shadow(c.shadow, c.shadowStatus)
			}
			if c.remote != "" {
				l.remote(c.remote, c.remoteStatus)
			}
			if c.chain != nil {
				l.Chains.Set(host.Outgoing, c.chain)
			}
			err := l.reconcile()
			if c.retry != "" {
				after, parseErr := time.ParseDuration(c.retry)
				require.NoError(t, parseErr)
				kindtest.RequireRetry(t, after, err)
			} else {
				require.NoError(t, err)
			}
			l.requireWrites(c.writes...)
			assert.Equal(t, c.phase, l.stored("status", "phase"))
			if c.phase != "gone" {
				assert.Equal(t, c.reason, l.stored("status", "reason"))
			}
			if c.event != "" {
				l.Events.Await(t, wire.ReflectionDisabledReason, c.event)
			}
			if slices.Contains(c.writes, "there create shadowpods") {
				require.NoError(t, l.reconcile())
				l.requireWrites()
			}
		})
	}
}

// TestErrorsOfAPodsWrites checks that each error from an API server is returned with its class, and that the other
// direction is still reflected.
func TestErrorsOfAPodsWrites(t *testing.T) {
	t.Parallel()
	refused := apistub.Refuse(apierrors.NewForbidden(podsResource.GroupResource(), "web", errors.New("exceeded quota: x")))
	for name, c := range map[string]struct {
		failure *apistub.Failure
		class   failure.Class
	}{
		"refused":     {refused, failure.Refused},
		"invalid":     {apistub.Invalid, failure.Refused},
		"overloaded":  {apistub.Overloaded, failure.Throttled},
		"unavailable": {apistub.Unavailable, failure.Unreachable},
		"lost":        {apistub.Lost, failure.Unreachable},
		"broken":      {apistub.Broken, failure.Refused},
	} {
		t.Run("create/"+name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.local(pending, "", "")
			l.Provider.Once("create", c.failure)
			requireOutcome(t, l.reconcile(), c.class, "")
			assert.Equal(t, "Pending", l.stored("status", "phase"), "a pod that has not started waits")
			assert.Nil(t, l.Provider.Get(shadowKind, kindtest.RemoteNamespace, "web"))
		})
		t.Run("update/"+name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.local(pending, "", `{containers: [{name: web, image: "web:2"}]}`)
			l.shadow("", "")
			l.remote("", running)
			l.Provider.OnRequest(func(r apistub.Request) *apistub.Failure {
				if r.Verb == "update" {
					return c.failure
				}
				return nil
			})
			requireOutcome(t, l.reconcile(), c.class, "")
			assert.Equal(t, "Running", l.stored("status", "phase"), "the status is shown although the update failed")
		})
		t.Run("status/"+name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.local(pending, "", "")
			l.shadow("", "")
			l.remote("", running)
			l.Here.Once("patch", c.failure)
			err := l.reconcile()
			requireOutcome(t, err, "", c.class)
			assert.Equal(t, "Pending", l.stored("status", "phase"))
			require.NoError(t, l.reconcile())
			assert.Equal(t, "Running", l.stored("status", "phase"), "the next attempt shows it")
		})
		t.Run("delete/"+name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.local(running, flow(deleting, "finalizers: [a/b]"), "")
			l.shadow("{}", "")
			l.remote("{}", succeeded)
			l.Provider.Once("delete", c.failure)
			requireOutcome(t, l.reconcile(), c.class, "")
			assert.Equal(t, "Succeeded", l.stored("status", "phase"), "the status is shown although the deletion failed")
		})
		t.Run("skip/"+name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.Chains.Set(host.Outgoing, kindtest.Skip)
			l.local(pending, "", "")
			l.shadow("{}", "")
			l.remote("{}", running)
			l.Provider.Once("delete", c.failure)
			requireOutcome(t, l.reconcile(), c.class, "")
			assert.Equal(t, "Running", l.stored("status", "phase"), "the status is shown although the deletion failed")
		})
		t.Run("end/"+name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.local(succeeded, flow(deleting), "")
			l.Here.Once("delete", c.failure)
			requireOutcome(t, l.reconcile(), c.class, "")
			l.Events.Await(t, wire.FailedDeletionReason, "deleting the pod")
			assert.Equal(t, "Succeeded", l.stored("status", "phase"), "the pod stays")
		})
	}
}

// TestPluginsOfAPodFail checks that a failed plugin prevents all writes of its own direction, and none of the other
// direction.
func TestPluginsOfAPodFail(t *testing.T) {
	t.Parallel()
	t.Run("outgoing, before the pod starts", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, nil)
		l.Chains.Set(host.Outgoing, kindtest.Fail)
		l.local(pending, "", "")
		requireOutcome(t, l.reconcile(), failure.Plugin, "")
		l.requireWrites()
	})
	t.Run("outgoing, while it runs", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, nil)
		l.Chains.Set(host.Outgoing, kindtest.Fail)
		l.local(pending, "", "")
		l.shadow("", "")
		l.remote("", running)
		requireOutcome(t, l.reconcile(), failure.Plugin, "")
		l.requireWrites("here patch pods/status")
	})
	t.Run("incoming", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, nil)
		l.Chains.Set(host.Incoming, kindtest.Fail)
		l.local(pending, "", "")
		l.shadow("", "")
		l.remote("", running)
		requireOutcome(t, l.reconcile(), "", failure.Plugin)
		l.requireWrites()
	})
	t.Run("incoming, which returns no status", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, nil)
		l.Chains.Set(host.Incoming, func(doc *document.Document, _ *host.Env) (*host.Outcome, error) {
			_, err := doc.Root().Remove("status")
			return &host.Outcome{}, err
		})
		l.local(pending, "", "")
		l.shadow("", "")
		l.remote("", running)
		requireOutcome(t, l.reconcile(), "", failure.Plugin)
	})
	t.Run("incoming, which skips", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, nil)
		l.Chains.Set(host.Incoming, kindtest.Skip)
		l.local(pending, "", "")
		l.shadow("", "")
		l.remote("", running)
		require.NoError(t, l.reconcile())
		assert.Equal(t, "Pending", l.stored("status", "phase"))
		assert.Equal(t, "true", l.stored("metadata", "labels", wire.OffloadedPodLabel))
	})
}

// TestARefusedPodIsReplaced checks that a pod that the provider has lost and refuses to run again becomes not ready,
// and fails after RefusalGrace.
func TestARefusedPodIsReplaced(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.local(running, "", "")
	l.Provider.OnRequest(func(r apistub.Request) *apistub.Failure {
		if r.Verb == "create" {
			return apistub.Forbidden
		}
		return nil
	})
	requireOutcome(t, l.reconcile(), failure.Refused, "")
	assert.Contains(t, l.shown(), RecreatingReason)
	l.Clock.Step(RefusalGrace - time.Second)
	requireOutcome(t, l.reconcile(), failure.Refused, "")
	assert.Equal(t, "Running", l.stored("status", "phase"))
	l.Clock.Step(time.Second)
	require.NoError(t, l.reconcile())
	assert.Equal(t, wire.OffloadingAbortedReason, l.stored("status", "reason"))
	l.Events.Await(t, wire.ReflectionDisabledReason, "refused to run it again")
}

// TestAWithdrawnPod checks when a pod fails before the end of RefusalGrace, or waits with a reason: after two reviews
// that deny access, and not if a review fails or the access was never granted.
func TestAWithdrawnPod(t *testing.T) {
	t.Parallel()
	const home = "liqo-tenant-rome"
	offloaded := `{labels: {` + wire.OffloadedPodLabel + `: "true"}}`
	for name, c := range map[string]struct {
		status, metadata string
		tenant           string // tenant namespace on the provider, "" if it is not known
		never            bool   // the permission in the tenant namespace was never granted
		granted          string // resource whose permission is still granted
		second           *apistub.Failure
		phase, reason    string
	}{
		"a running pod":                        {status: running, tenant: home, phase: "Failed", reason: wire.OffloadingAbortedReason},
		"a pod that has not begun":             {status: pending, metadata: offloaded, tenant: home, phase: "Failed", reason: wire.OffloadingAbortedReason},
		"a new pod":                            {status: pending, tenant: home, phase: "Pending", reason: wire.OffloadingBackOffReason},
		"a new pod, and no tenant is known":    {status: pending, phase: "Pending", reason: wire.OffloadingBackOffReason},
		"a new pod that a quota refuses":       {status: pending, tenant: home, granted: "shadowpods", phase: "Pending"},
		"a running pod that a quota refuses":   {status: running, tenant: home, granted: "shadowpods", phase: "Running"},
		"a running pod of a lost namespace":    {status: running, tenant: home, granted: "leases", phase: "Running"},
		"a running pod, no tenant is known":    {status: running, phase: "Running"},
		"a running pod, never granted":         {status: running, tenant: home, never: true, phase: "Running"},
		"a running pod, and a review fails":    {status: running, tenant: home, second: apistub.Broken, phase: "Running"},
		"a new pod, and a review is forbidden": {status: pending, tenant: home, second: apistub.Forbidden, phase: "Pending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(o *engine.Options) { o.RemoteTenantNamespace = c.tenant })
			var isDrained, fails atomic.Bool
			l.Provider.RefuseRights(func(permission authorizationv1.ResourceAttributes) bool {
				return isDrained.Load() && permission.Resource != c.granted || c.never && permission.Namespace == home
			})
			l.Provider.OnRequest(func(r apistub.Request) *apistub.Failure {
				switch {
				case r.Resource == "selfsubjectaccessreviews" && fails.Load():
					return c.second
				case r.Verb == "create" && r.Resource == "shadowpods":
					return apistub.Forbidden
				}
				return nil
			})
			l.local(c.status, c.metadata, "")
			l.h.noteAccess(t.Context())
			isDrained.Store(true)
			requireOutcome(t, l.reconcile(), failure.Refused, "")
			assert.Empty(t, l.stored("status", "reason"), "one denial is no proof")
			l.Clock.Step(DenialInterval)
			fails.Store(c.second != nil)
			_ = l.reconcile()
			assert.Equal(t, c.phase, l.stored("status", "phase"))
			assert.Equal(t, c.reason, l.stored("status", "reason"))
			if c.reason != "" {
				l.Events.Await(t, wire.ReflectionDisabledReason, "activate tenant rome")
			}
		})
	}
}

// TestDenialsExpire checks that two denials count only if they are close together and no ShadowPod was created between
// them.
func TestDenialsExpire(t *testing.T) {
	t.Parallel()
	for name, isCreated := range map[string]bool{"the first is old": false, "a ShadowPod was created": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(o *engine.Options) { o.RemoteTenantNamespace = "liqo-tenant-rome" })
			l.h.noteAccess(t.Context())
			l.Provider.RefuseRights(func(authorizationv1.ResourceAttributes) bool { return true })
			var mayCreate atomic.Bool
			l.Provider.OnRequest(func(r apistub.Request) *apistub.Failure {
				if r.Verb == "create" && r.Resource == "shadowpods" && !mayCreate.Load() {
					return apistub.Forbidden
				}
				return nil
			})
			l.local(running, "", "")
			requireOutcome(t, l.reconcile(), failure.Refused, "")
			if isCreated {
				mayCreate.Store(true)
				require.NoError(t, l.reconcile())
				mayCreate.Store(false)
				l.Provider.Remove(shadowKind, kindtest.RemoteNamespace, "web")
				l.sync()
				l.Clock.Step(DenialInterval)
			} else {
				l.Clock.Step(2 * denialLifetime)
			}
			requireOutcome(t, l.reconcile(), failure.Refused, "")
			assert.Equal(t, "Running", l.stored("status", "phase"))
			l.Clock.Step(DenialInterval)
			require.NoError(t, l.reconcile())
			assert.Equal(t, wire.OffloadingAbortedReason, l.stored("status", "reason"))
		})
	}
}

// TestAFoughtOverShadowPod checks that a pod whose ShadowPod another client keeps deleting is not ready.
func TestAFoughtOverShadowPod(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.local(running, "", "")
	for range 20 {
		err := l.reconcile()
		if class, _ := failure.Classify(err); err != nil && class == failure.Quarantine {
			assert.Contains(t, l.shown(), RecreatingReason)
			return
		}
		l.Provider.Remove(shadowKind, kindtest.RemoteNamespace, "web")
		l.sync()
		l.Clock.Step(time.Second)
	}
	t.Fatal("the ShadowPod is created again and again")
}

// TestALostAnswerDelaysTheEnd checks that a pod is not deleted in this cluster as long as its ShadowPod may still be
// created, because the response to the create request was lost.
func TestALostAnswerDelaysTheEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.local(pending, "", "")
	l.Provider.Once("create", apistub.LostAfterwards)
	requireOutcome(t, l.Reconcile(Name, "web"), failure.Unreachable, "")
	l.Await("the provider is not probed", l.Manager.Reachable)
	pods, _ := l.scope.Caches()
	deleted := pods.Get(kindtest.Namespace, "web").DeepCopy()
	l.edit(deleted, "metadata", flow(deleting))
	require.NoError(t, pods.Put(deleted))
	l.writes()
	var later *failure.RetryAfter
	for range 3 {
		if err := l.Reconcile(Name, "web"); err != nil {
			require.ErrorAs(t, err, &later)
			l.Clock.Step(later.After)
		}
	}
	l.requireWrites("there delete shadowpods")
	require.NotNil(t, later)
}

// TestTheStatusOfAPodIsDelayed checks each delay of a status: until a new pod settles, until the end of a batch, and
// for the minimum interval between two writes.
func TestTheStatusOfAPodIsDelayed(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.local(pending, "", "")
	l.shadow("", "")
	l.remote("", pending)
	kindtest.RequireRetry(t, time.Second, l.reconcile())
	l.Clock.Step(time.Second)
	require.NoError(t, l.reconcile())
	assert.Equal(t, "true", l.stored("metadata", "labels", wire.OffloadedPodLabel))
	l.remote("", running)
	// Statuses of other pods are batched until a further status must wait.
	for l.h.Objects.Delays.Batch(new(statusdelay.Status), l.Clock.Now()) == 0 {
		continue
	}
	var later *failure.RetryAfter
	require.ErrorAs(t, l.reconcile(), &later)
	assert.LessOrEqual(t, later.After, time.Second)
	assert.Equal(t, "Pending", l.stored("status", "phase"))
	l.Clock.Step(later.After)
	require.NoError(t, l.reconcile())
	assert.Equal(t, "Running", l.stored("status", "phase"))
	var err error
	for i := range 20 {
		status := `{phase: Running, containerStatuses: [{name: web, ready: true,
  restartCount: ` + string(rune('0'+i%10)) + `}], conditions: [{type: Ready, status: "True"}]}`
		l.remote("", status)
		if err = l.reconcile(); err != nil {
			break
		}
		l.Clock.Step(100 * time.Millisecond)
	}
	require.ErrorAs(t, err, &later, "the status is paced")
	assert.LessOrEqual(t, later.After, time.Second)
}

// TestAddressesOfAPod checks that an address that the provider cannot have is not shown.
func TestAddressesOfAPod(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *engine.Options) { o.OwnCIDRs = mustRanges(t, "10.71.0.0/16") })
	l.local(pending, "", "")
	l.shadow("", "")
	l.remote("", running)
	require.NoError(t, l.reconcile())
	assert.Empty(t, l.stored("status", "podIP"))
	assert.Equal(t, "Running", l.stored("status", "phase"))
	l.Events.Await(t, engine.AddressNotAllowedReason, "10.71.0.9")
}

func mustRanges(t *testing.T, text string) ipmap.Ranges {
	t.Helper()
	ranges, err := ipmap.ParseRanges("own-cidrs", []string{text})
	require.NoError(t, err)
	return ranges
}

// TestAPodAwaitsItsReferences checks that a pod waits while an object to which it refers is not up to date on the
// provider, and in which cases it is offloaded anyway.
func TestAPodAwaitsItsReferences(t *testing.T) {
	t.Parallel()
	const refers = `{enableServiceLinks: false, containers: [{name: web, image: "web:1", envFrom: [{configMapRef: {name: settings}}]}]}`
	newWaiting := func(t *testing.T, edit func(*engine.Options)) *lab {
		t.Helper()
		l := newLab(t, edit)
		l.Manager.Env(configMapKind).Queue.Add(kindtest.Key("settings"))
		l.local(pending, "", refers)
		return l
	}
	t.Run("until the limit", func(t *testing.T) {
		t.Parallel()
		l := newWaiting(t, nil)
		kindtest.RequireRetry(t, arrivalGrace, l.reconcile())
		l.Clock.Step(arrivalGrace)
		kindtest.RequireRetry(t, 28*time.Second, l.reconcile())
		l.Events.Await(t, AwaitingReferencesReason, "settings")
		l.Clock.Step(28 * time.Second)
		l.requireWrites()
		require.NoError(t, l.reconcile())
		l.Events.Await(t, OutdatedReferencesReason, "settings")
		l.requireWrites("there create shadowpods")
	})
	t.Run("not at all", func(t *testing.T) {
		t.Parallel()
		l := newWaiting(t, func(o *engine.Options) { o.ReferenceTimeout = -1 })
		require.NoError(t, l.reconcile())
		l.requireWrites("there create shadowpods")
	})
	t.Run("until the object is in step", func(t *testing.T) {
		t.Parallel()
		l := newWaiting(t, nil)
		kindtest.RequireRetry(t, arrivalGrace, l.reconcile())
		l.Queued(Name)
		l.Queued(configMapKind)
		require.NoError(t, l.Reconcile(configMapKind, "settings"))
		assert.Equal(t, []string{"web"}, l.Queued(Name), "the pod is enqueued at once")
		require.NoError(t, l.reconcile())
		l.requireWrites("there create shadowpods")
	})
}

// TestAPodIsAdmitted checks that a new pod is rejected if a kubelet would reject it, and that a running pod is never
// rejected.
func TestAPodIsAdmitted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ status, spec, node, reason string }{
		"fits":                  {pending, `{}`, `{}`, ""},
		"an OS in the selector": {pending, `{nodeSelector: {kubernetes.io/os: windows}}`, `{}`, "PodOSSelectorNodeLabelDoesNotMatch"},
		"an OS":                 {pending, `{os: {name: windows}}`, `{}`, "PodOSNotSupported"},
		"a selector":            {pending, `{nodeSelector: {zone: a}}`, `{}`, "NodeAffinity"},
		"too large": {pending, `{containers: [{name: web, image: "web:1",
  resources: {requests: {cpu: "5"}}}]}`, `{}`, "OutOfcpu"},
		"runs": {running, `{nodeSelector: {zone: a}}`, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			node := kindtest.Object(t, `{apiVersion: v1, kind: Node, metadata: {name: milan, resourceVersion: "1",
  labels: {kubernetes.io/os: linux}}, status: {allocatable: {cpu: "4", pods: "10"}}}`)
			require.NoError(t, l.h.Settings.Nodes.Put(node))
			l.local(c.status, "", c.spec)
			require.NoError(t, l.reconcile())
			if c.reason == "" {
				l.requireWrites("there create shadowpods")
				return
			}
			l.requireWrites("here patch pods/status")
			assert.Equal(t, "Failed", l.stored("status", "phase"))
			assert.Equal(t, c.reason, l.stored("status", "reason"))
			l.Events.Await(t, c.reason)
		})
	}
}

// TestInputsOfAPod checks for which chains a rehearsal gets inputs: for the outgoing chain until the pod has finished,
// and for the incoming chain as soon as the provider has the pod.
func TestInputsOfAPod(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.local(pending, "", "")
	inputs := func() engine.ChainInputs { return l.h.Inputs(l.scope, l.scope.Object(kindtest.Key("web"))) }
	assert.NotNil(t, inputs().Outgoing)
	assert.Nil(t, inputs().Incoming, "the provider has no pod")
	l.shadow("", "")
	l.remote("", running)
	assert.NotNil(t, inputs().Incoming)
	l.local(succeeded, "", "")
	assert.Nil(t, inputs().Outgoing, "a finished pod does not change")
}

// TestPodsInOtherNamespaces checks the pods of a namespace that is not offloaded: a new pod stays pending, a running
// pod fails, a finished pod is unchanged, and a deleted pod is removed.
func TestPodsInOtherNamespaces(t *testing.T) {
	t.Parallel()
	p := kindtest.New(t, nil, Kind())
	put := func(name, status, metadata string) {
		object := kindtest.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`, namespace: tenant},
  spec: {nodeName: milan, containers: [{name: web, image: "web:1"}]}}`)
		l := &lab{t: t}
		l.edit(object, "metadata", metadata)
		l.edit(object, "status", status)
		p.Here.Put(t, object)
	}
	put("new", pending, "")
	put("runs", running, "")
	put("ended", succeeded, "")
	put("deleted", running, flow(deleting))
	p.Run()
	field := func(name, field string) string {
		found := p.Here.Get(podKind, "tenant", name)
		if found == nil {
			return "gone"
		}
		text, _, _ := unstructured.NestedString(found.Object, "status", field)
		return text
	}
	p.Await("a new pod is not refused", func() bool { return field("new", "reason") == wire.OffloadingBackOffReason })
	p.Await("a running pod does not fail", func() bool { return field("runs", "reason") == wire.OffloadingAbortedReason })
	p.Await("a deleted pod stays", func() bool { return field("deleted", "phase") == "gone" })
	assert.Equal(t, "Succeeded", field("ended", "phase"))
	assert.Equal(t, "Pending", field("new", "phase"))
	assert.Equal(t, "Failed", field("runs", "phase"))
}

// TestLegacyTokens checks that a pod that mounts its token waits for the Secret of its service account, in the mode
// Legacy.
func TestLegacyTokens(t *testing.T) {
	t.Parallel()
	legacy := func(o *engine.Options) { o.APIServerSupport = engine.SupportLegacy }
	const mounts = `{serviceAccountName: robot, volumes: [{name: kube-api-access-x,
  projected: {sources: [{serviceAccountToken: {path: token}}]}}]}`
	l := newLab(t, legacy)
	secrets := l.Manager.Scope("Secret", kindtest.Namespace)
	var name any
	l.Chains.Set(host.Outgoing, func(_ *document.Document, env *host.Env) (*host.Outcome, error) {
		if name = env.Context["serviceAccountSecretName"]; name == nil {
			return nil, &host.PluginFailedError{Plugin: "pod"}
		}
		return &host.Outcome{}, nil
	})
	l.local(pending, "", mounts)
	requireOutcome(t, l.reconcile(), failure.Input, "")
	created := kindtest.Object(t, `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token,
  metadata: {name: robot-token, namespace: shop, uid: a, resourceVersion: "1",
  annotations: {kubernetes.io/service-account.name: robot}}}`)
	require.NoError(t, secrets.Put(created, nil))
	assert.Equal(t, []string{"web"}, l.Queued(Name), "the pod is enqueued when the Secret appears")
	kindtest.RequireRetry(t, TokenArrivalGrace, l.reconcile())
	require.NoError(t, l.reconcile(), "the Event waits, and so does the pod")
	l.Clock.Step(TokenArrivalGrace)
	requireOutcome(t, l.reconcile(), failure.Input, "")
	copied := kindtest.Object(t, `{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: robot-token,
  namespace: shop-rome, uid: b, resourceVersion: "2", annotations: {kubernetes.io/service-account.name: robot},
  labels: {kubernetes.io/service-account.name: robot}}, data: {token: eA==}}`)
	require.NoError(t, secrets.Put(created.DeepCopy(), copied))
	require.NoError(t, l.reconcile())
	assert.Equal(t, "robot-token", name)
	l.requireWrites("there create shadowpods")
	assert.Empty(t, MountedToken(l.Provider.Get(shadowKind, kindtest.RemoteNamespace, "web")))
}
