// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

func specOf(t *testing.T, text string) *corev1.PodSpec {
	t.Helper()
	spec := &corev1.PodSpec{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), spec))
	return spec
}

// TestDemand checks that init containers and sidecars count as in Kubernetes. Earlier versions ignored their requests,
// or rounded them before the comparison.
func TestDemand(t *testing.T) {
	const container = `containers: [{name: a, resources: {requests: {cpu: %}}}]`
	for name, tc := range map[string]struct{ spec, cpu string }{
		"nothing":                              {`containers: [{name: a}]`, "0"},
		"one":                                  {strings.ReplaceAll(container, "%", "100m"), "100m"},
		"two":                                  {`containers: [{name: a, resources: {requests: {cpu: 100m}}}, {name: b, resources: {requests: {cpu: 250m}}}]`, "350m"},
		"limits stand for requests":            {`containers: [{name: a, resources: {limits: {cpu: "4"}}}]`, "4"},
		"requests come before limits":          {`containers: [{name: a, resources: {requests: {cpu: "1"}, limits: {cpu: "4"}}}]`, "1"},
		"limits of an init container":          {`containers: [{name: a}]` + "\ninitContainers: [{name: i, resources: {limits: {cpu: 900m}}}]", "900m"},
		"requests of the pod":                  {strings.ReplaceAll(container, "%", "100m") + "\nresources: {requests: {cpu: 3}}", "3"},
		"limits of the pod":                    {`containers: [{name: a}]` + "\nresources: {limits: {cpu: 3}}", "3"},
		"limits of the pod beside a container": {strings.ReplaceAll(container, "%", "100m") + "\nresources: {limits: {cpu: 3}}", "100m"},
		"a larger init container":              {strings.ReplaceAll(container, "%", "100m") + "\ninitContainers: [{name: i, resources: {requests: {cpu: 900m}}}]", "900m"},
		"a smaller init container":             {strings.ReplaceAll(container, "%", "900m") + "\ninitContainers: [{name: i, resources: {requests: {cpu: 100m}}}]", "900m"},
		"a sidecar":                            {strings.ReplaceAll(container, "%", "300m") + "\ninitContainers: [{name: i, restartPolicy: Always, resources: {requests: {cpu: 300m}}}]", "600m"},
		"a sidecar beside an init container": {strings.ReplaceAll(container, "%", "100m") +
			"\ninitContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 300m}}}, {name: i, resources: {requests: {cpu: 500m}}}]", "800m"},
		"overhead":      {strings.ReplaceAll(container, "%", "100m") + "\noverhead: {cpu: 50m}", "150m"},
		"no containers": {`{}`, "0"},
	} {
		demand := demandOf(&corev1.Pod{Spec: *specOf(t, tc.spec)})
		if cpu := demand[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse(tc.cpu)) != 0 {
			t.Errorf("%s: %s, want %s", name, cpu.String(), tc.cpu)
		}
		if pods := demand[corev1.ResourcePods]; pods.Value() != 1 {
			t.Errorf("%s: it counts as %s pods", name, pods.String())
		}
	}
}

// TestLimitsAreCounted checks that limits are added up by the same rules as requests, and that a pod without limits has
// no demand for them.
func TestLimitsAreCounted(t *testing.T) {
	const container = "containers: [{name: a, resources: {requests: {cpu: 100m}, " +
		"limits: {cpu: 300m, memory: 2Gi, ephemeral-storage: 1Gi}}}]\ninitContainers: "
	for name, tc := range map[string]struct{ spec, cpu, memory, storage string }{
		"nothing":       {`containers: [{name: a, resources: {requests: {cpu: 100m, memory: 1Gi}}}]`, "0", "0", "0"},
		"one":           {container + "[]", "300m", "2Gi", "1Gi"},
		"a sidecar":     {container + "[{name: i, restartPolicy: Always, resources: {limits: {cpu: 200m, memory: 1Gi}}}]", "500m", "3Gi", "1Gi"},
		"a larger init": {container + "[{name: i, resources: {limits: {cpu: 900m, ephemeral-storage: 4Gi}}}]", "900m", "2Gi", "4Gi"},
		"of the pod":    {container + "[]\nresources: {limits: {cpu: 3}}", "3", "2Gi", "1Gi"},
	} {
		demand := demandOf(&corev1.Pod{Spec: *specOf(t, tc.spec)})
		for resourceName, want := range map[corev1.ResourceName]string{
			"limits.cpu": tc.cpu, "limits.memory": tc.memory, "limits.ephemeral-storage": tc.storage,
		} {
			if got := demand[resourceName]; got.Cmp(resource.MustParse(want)) != 0 {
				t.Errorf("%s: %s is %s, want %s", name, resourceName, got.String(), want)
			}
		}
	}
}

func TestExceeds(t *testing.T) {
	list := func(text string) corev1.ResourceList {
		l := corev1.ResourceList{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &l))
		return l
	}
	for name, tc := range map[string]struct{ demand, present, used, hard, want string }{
		"fits":             {`{cpu: 1, pods: 1}`, `{}`, `{cpu: 1, pods: 1}`, `{cpu: 2, pods: 2}`, ""},
		"by a millicore":   {`{cpu: 1001m}`, `{}`, `{cpu: 1}`, `{cpu: 2}`, "cpu: requested 1001m, used 1, limited 2"},
		"by less than one": {`{cpu: 1600m}`, `{}`, `{cpu: 1}`, `{cpu: 2500m}`, "cpu: requested 1600m, used 1, limited 2500m"},
		"one pod too many": {`{pods: 1}`, `{}`, `{pods: 2}`, `{pods: 2}`, "pods: requested 1, used 2, limited 2"},
		"pods do not matter when they are not named": {`{pods: 1}`, `{}`, `{pods: 99}`, `{cpu: 2}`, ""},
		"another resource":                           {`{cpu: 1, nvidia.com/gpu: 1}`, `{}`, `{}`, `{cpu: 2}`, "nvidia.com/gpu is not among its resources"},
		"none of another":                            {`{cpu: 1, nvidia.com/gpu: 0}`, `{}`, `{}`, `{cpu: 2}`, ""},
		"a Quota without room":                       {`{cpu: 1m}`, `{}`, `{}`, `{cpu: 0}`, "cpu: requested 1m, used 0, limited 0"},
		"more than there can be":                     {`{cpu: 1}`, `{}`, `{cpu: 5}`, `{cpu: 2}`, "cpu: requested 1, used 5, limited 2"},
		"what it has":                                {`{cpu: 1}`, `{cpu: 1}`, `{cpu: 5}`, `{cpu: 2}`, ""},
		"less than it has":                           {`{cpu: 1}`, `{cpu: 3}`, `{cpu: 5}`, `{cpu: 2}`, ""},
		"less of one and more of another":            {`{cpu: 1, memory: 2}`, `{cpu: 3, memory: 1}`, `{cpu: 5, memory: 1}`, `{cpu: 2, memory: 2}`, "memory: requested 2, used 1, limited 2"},
		"an unlisted resource that it has":           {`{nvidia.com/gpu: 1}`, `{nvidia.com/gpu: 1}`, `{}`, `{cpu: 2}`, ""},
		"limits that do not matter":                  {`{limits.cpu: 1}`, `{}`, `{}`, `{cpu: 2}`, ""},
		"limits":                                     {`{limits.cpu: 3}`, `{}`, `{limits.cpu: 1}`, `{limits.cpu: 3}`, "limits.cpu: requested 3, used 1, limited 3"},
		"as ResourceQuota names it":                  {`{cpu: 3}`, `{}`, `{}`, `{requests.cpu: 2}`, "cpu: requested 3, used 0, limited 2"},
		"named twice":                                {`{cpu: 3}`, `{}`, `{}`, `{requests.cpu: 2, cpu: 4}`, "cpu: requested 3, used 0, limited 2"},
		"storage is none of a pod's":                 {`{cpu: 1}`, `{}`, `{}`, `{requests.storage: 0, cpu: 4}`, ""},
	} {
		var got []string
		for _, over := range findExcess(list(tc.demand), list(tc.present), list(tc.used), limitsOf(list(tc.hard))) {
			got = append(got, over.String())
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestTheSmallerOfTwoLimitsCounts checks that if a Quota contains a resource under two names, the smaller limit
// applies.
func TestTheSmallerOfTwoLimitsCounts(t *testing.T) {
	for _, resources := range []corev1.ResourceList{
		{"cpu": resource.MustParse("4"), "requests.cpu": resource.MustParse("2")},
		{"cpu": resource.MustParse("2"), "requests.cpu": resource.MustParse("4")},
	} {
		for range 20 { // the order of a map is random
			if limit := limitsOf(resources)[corev1.ResourceCPU]; limit.String() != "2" {
				t.Errorf("the limit of %v is %s, want 2", resources, limit.String())
			}
		}
	}
}

func TestDeclared(t *testing.T) {
	const (
		silent  = `containers: [{name: a}]`
		cpuOnly = `containers: [{name: a, resources: {requests: {cpu: 1}}}]`
		soft    = `containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]`
		hard    = `containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]`
		uneven  = `containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}]`
		inInit  = hard + "\ninitContainers: [{name: i}]"
		zero    = `containers: [{name: a, resources: {requests: {cpu: 0, memory: 0}}}]`
		zeros   = `containers: [{name: a, resources: {requests: {cpu: 0, memory: 0}, limits: {cpu: 0, memory: 0}}}]`
		endless = `containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 0}}}]`
		sidecar = hard + "\ninitContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 0, memory: 0}}}]"
		byPod   = silent + "\nresources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}"
		byPod0  = silent + "\nresources: {requests: {cpu: 0, memory: 0}, limits: {cpu: 0, memory: 0}}"
	)
	for _, tc := range []struct {
		quota, flag offloading.LimitsEnforcement
		spec, want  string
	}{
		{"", "", silent, ""}, {"None", "Hard", silent, ""},
		{"Soft", "", silent, "containers[a]"}, {"Soft", "", cpuOnly, "memory is mandatory"}, {"Soft", "", soft, ""}, {"", "Soft", silent, "mandatory"},
		{"Hard", "", soft, "limit of"}, {"Hard", "", uneven, "limit of cpu"}, {"Hard", "None", hard, ""}, {"", "Hard", inInit, "initContainers[i]"},
		{"Soft", "", zero, "a request of cpu is mandatory, and more than zero"}, {"Hard", "", zero, "more than zero"}, {"Hard", "", zeros, "more than zero"},
		{"Hard", "", endless, "the limit of memory must equal its request (1Gi)"}, {"Hard", "", sidecar, "initContainers[s]"},
		{"Hard", "", byPod, ""}, {"Hard", "", byPod0, "more than zero"}, {"Soft", "", byPod0, "more than zero"},
	} {
		l := &Ledger{options: Options{Limits: tc.flag}}
		refusal := l.checkDeclaration(specOf(t, tc.spec), &offloading.Quota{Spec: offloading.QuotaSpec{LimitsEnforcement: tc.quota}})
		switch {
		case tc.want == "" && refusal != nil:
			t.Errorf("%q, %q: %s is refused: %s", tc.quota, tc.flag, tc.spec, refusal)
		case tc.want != "" && (refusal == nil || !strings.Contains(refusal.Error(), tc.want)):
			t.Errorf("%q, %q: %s: %v, want %q", tc.quota, tc.flag, tc.spec, refusal, tc.want)
		}
	}
}

// TestDeclaredForTheResourcesOfTheQuota checks that each container must declare the resources that a Quota limits.
// Otherwise their usage could not be counted.
func TestDeclaredForTheResourcesOfTheQuota(t *testing.T) {
	const sized = `containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]`
	for _, tc := range []struct {
		resource, spec string
		level          offloading.LimitsEnforcement
		want           string
	}{
		{"limits.cpu", sized, "None", "a limit of cpu is mandatory, and more than zero"},
		{"limits.cpu", `containers: [{name: a, resources: {limits: {cpu: 0}}}]`, "None", "more than zero"},
		{"limits.cpu", `containers: [{name: a, resources: {limits: {cpu: 1}}}]`, "None", ""},
		{"limits.cpu", "containers: [{name: a}]\nresources: {limits: {cpu: 1}}", "None", ""},
		{"ephemeral-storage", sized, "Soft", "a request of ephemeral-storage is mandatory"},
		{"requests.ephemeral-storage", sized, "Soft", "a request of ephemeral-storage is mandatory"},
		{"ephemeral-storage", sized, "None", ""},
	} {
		q := &offloading.Quota{Spec: offloading.QuotaSpec{LimitsEnforcement: tc.level, Resources: corev1.ResourceList{corev1.ResourceName(tc.resource): resource.MustParse("9")}}}
		refusal := (&Ledger{}).checkDeclaration(specOf(t, tc.spec), q)
		if (refusal != nil) != (tc.want != "") || refusal != nil && !strings.Contains(refusal.Error(), tc.want) {
			t.Errorf("%s, %s, %s: %v, want %q", tc.resource, tc.level, tc.spec, refusal, tc.want)
		}
	}
}

// sized returns a request to create a pod in a namespace of rome. The pod has one container, which requests the given
// CPU.
func sized(name, creator, cpu string) Request {
	labels := map[string]string{wire.OriginLabel: "rome"}
	if creator != "" {
		labels[wire.CreatorUserLabel] = creator
	}
	return Request{Key: types.NamespacedName{Namespace: "shop", Name: name}, Labels: labels, Spec: &corev1.PodSpec{Containers: []corev1.Container{
		{Name: "main", Image: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}}}
}

// resized returns a request to change a pod that has the CPU from and the resourceVersion 1.
func resized(request Request, from string) Request {
	before := sized(request.Key.Name, request.Labels[wire.CreatorUserLabel], from)
	request.Present = podOf(before, "1")
	return request
}

func podOf(request Request, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: request.Key.Namespace, Name: request.Key.Name, Labels: request.Labels, ResourceVersion: version}, Spec: *request.Spec}
}

// shelf replaces the cache, and contains the objects of a test.
type shelf struct {
	client.Reader
	pods   []corev1.Pod
	quotas []offloading.Quota
	tenant bool
}

// List implements client.Reader.
func (s *shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *corev1.PodList:
		l.Items = s.pods
	case *offloading.QuotaList:
		l.Items = append([]offloading.Quota(nil), s.quotas...)
	case *corev1.NamespaceList:
		l.Items = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}}
	case *auth.TenantList:
		if s.tenant {
			l.Items = []auth.Tenant{{Spec: auth.TenantSpec{ClusterID: "rome"}}}
		}
	}
	return nil
}

func quotaFor(user, cpu string) offloading.Quota {
	return offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: user},
		Spec: offloading.QuotaSpec{User: user, Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
}

func take(t *testing.T, l *Ledger, request Request, fits bool) {
	t.Helper()
	if refusal, err := l.ReserveResources(t.Context(), request); err != nil || (refusal == nil) != fits {
		t.Errorf("pod %s: %v, %v, want it to fit: %t", request.Key.Name, refusal, err, fits)
	}
}

// TestWritesOfUnknownOutcomeFollowALoweredQuota checks that a pod whose resize may or may not have been executed does
// not exceed a Quota that was lowered afterwards, and that the resources of the first attempt stay reserved.
func TestWritesOfUnknownOutcomeFollowALoweredQuota(t *testing.T) {
	shelf := &shelf{quotas: []offloading.Quota{quotaFor("rome", "2")}}
	l := New(shelf, Options{})
	resize := resized(sized("web", "rome", "1500m"), "100m")
	shelf.pods = []corev1.Pod{*resize.Present}
	take(t, l, resize, true)
	shelf.quotas = []offloading.Quota{quotaFor("rome", "1")}
	take(t, l, resize, false)
	take(t, l, resized(sized("web", "rome", "1"), "100m"), true)
	l.ReleaseReservation(resize.Key)
	take(t, l, resize, false)
	take(t, l, sized("other", "rome", "900m"), true)
}

// TestWithoutQuota checks that an option determines whether consumers without a Quota are limited. If they are, running
// pods may stay or shrink, but may not grow or be replaced.
func TestWithoutQuota(t *testing.T) {
	fresh := sized("web", "rome", "1")
	again, smaller, larger, other := fresh, resized(fresh, "2"), resized(fresh, "500m"), resized(fresh, "1")
	again.Returns, other.Replaces = true, true
	for _, tc := range []struct {
		options  Options
		tenant   bool
		request  Request
		accepted bool
	}{
		{Options{}, true, fresh, true}, {Options{Required: true, Off: true}, true, fresh, true},
		{Options{OfTenants: true}, false, fresh, true}, {Options{OfTenants: true}, true, fresh, false}, {Options{OfTenants: true}, true, again, true},
		{Options{Required: true}, false, fresh, false}, {Options{Required: true}, false, again, true}, {Options{Required: true}, false, smaller, true},
		{Options{Required: true}, false, larger, false}, {Options{Required: true}, false, other, false},
	} {
		take(t, New(&shelf{tenant: tc.tenant}, tc.options), tc.request, tc.accepted)
	}
}

// TestCordonedQuota checks that if a Quota is cordoned, running pods may stay or shrink, but may not grow or be
// replaced.
func TestCordonedQuota(t *testing.T) {
	q := quotaFor("rome", "10")
	q.Spec.Cordoned = new(bool)
	*q.Spec.Cordoned = true
	fresh := sized("web", "rome", "1")
	again, other := fresh, resized(fresh, "1")
	again.Returns, other.Replaces = true, true
	for _, tc := range []struct {
		request  Request
		accepted bool
	}{{fresh, false}, {again, true}, {resized(fresh, "2"), true}, {resized(fresh, "1"), true}, {resized(fresh, "500m"), false}, {other, false}} {
		take(t, New(&shelf{quotas: []offloading.Quota{q}}, Options{}), tc.request, tc.accepted)
	}
}

// TestUserWithoutAQuota checks that a user may not start or enlarge pods if only other users of the same consumer have
// a Quota.
func TestUserWithoutAQuota(t *testing.T) {
	l := New(&shelf{quotas: []offloading.Quota{quotaFor("rome-gpu", "10")}}, Options{})
	fresh := sized("web", "rome", "1")
	again := fresh
	again.Returns = true
	take(t, l, fresh, false)
	take(t, l, resized(fresh, "500m"), false)
	take(t, l, resized(fresh, "2"), true)
	take(t, l, again, true)
}

// TestDeclarationsAreRequired checks that a new pod must declare the requests that its Quota requires, but that a
// recreated pod need not.
func TestDeclarationsAreRequired(t *testing.T) {
	q := quotaFor("rome", "10")
	q.Spec.LimitsEnforcement = offloading.SoftLimitsEnforcement
	l := New(&shelf{quotas: []offloading.Quota{q}}, Options{})
	silent := sized("web", "rome", "1") // this pod does not request memory
	again := silent
	again.Returns = true
	take(t, l, silent, false)
	take(t, l, resized(silent, "2"), false)
	take(t, l, again, true)
}

// TestWrittenSizesMayStay checks that a pod may keep a size that was just written, even if the cache still contains the
// former size and the Quota was lowered.
func TestWrittenSizesMayStay(t *testing.T) {
	cache := &shelf{quotas: []offloading.Quota{quotaFor("rome", "2")}, pods: []corev1.Pod{*podOf(sized("web", "rome", "100m"), "1")}}
	l := New(cache, Options{})
	larger := sized("web", "rome", "2")
	take(t, l, resized(larger, "100m"), true)
	l.SettleReservation(podOf(larger, "5"))
	cache.quotas = []offloading.Quota{quotaFor("rome", "1")}
	take(t, l, resized(larger, "100m"), true)
	take(t, l, resized(sized("web", "rome", "2001m"), "100m"), false)
}

// TestPendingPodsCount checks that a pod that was created a moment ago counts although it is not in the cache yet.
func TestPendingPodsCount(t *testing.T) {
	l := New(&shelf{quotas: []offloading.Quota{quotaFor("rome", "1")}}, Options{})
	first, second := sized("first", "rome", "1"), sized("second", "rome", "1")
	take(t, l, first, true)
	take(t, l, first, true) // a retry of the request for the first pod
	take(t, l, second, false)
	l.ReleaseReservation(first.Key)
	take(t, l, second, true)
}

// TestReservations checks that concurrent resizes together cannot exceed a Quota, and that no pod loses its present
// resources.
func TestReservations(t *testing.T) {
	cache := &shelf{quotas: []offloading.Quota{quotaFor("rome", "2")}}
	l := New(cache, Options{})
	first, second := sized("first", "rome", "1300m"), sized("second", "rome", "1300m")
	cache.pods = []corev1.Pod{*podOf(sized("first", "rome", "100m"), "1"), *podOf(sized("second", "rome", "100m"), "1")}
	take(t, l, resized(first, "100m"), true)
	take(t, l, resized(second, "100m"), false)

	// A failed write releases the reservation. A successful write keeps it until the cache contains the written
	// version.
	l.ReleaseReservation(first.Key)
	take(t, l, resized(second, "100m"), true)
	l.SettleReservation(podOf(second, "5"))
	take(t, l, resized(first, "100m"), false)
	cache.pods[1].ResourceVersion = "4" // this is the version of another change
	take(t, l, resized(first, "100m"), false)
	cache.pods[1] = *podOf(sized("second", "rome", "200m"), "6")
	take(t, l, resized(first, "100m"), true)
	l.SettleReservation(podOf(first, "7"))

	// A pod that shrinks counts with its former size until the cache contains the new size.
	take(t, l, resized(sized("first", "rome", "100m"), "1300m"), true)
	take(t, l, resized(second, "200m"), false)
	l.SettleReservation(podOf(sized("first", "rome", "100m"), "8"))
	cache.pods[0] = *podOf(first, "7")
	take(t, l, resized(second, "200m"), false)
	cache.pods[0] = *podOf(sized("first", "rome", "100m"), "8")
	take(t, l, resized(second, "200m"), true)
}

// TestAllocatedResourcesCount checks that a resize that a node has not completed yet counts with the allocated
// resources.
func TestAllocatedResourcesCount(t *testing.T) {
	pod := podOf(sized("web", "rome", "100m"), "1")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}
	if cpu := demandOf(pod)[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse("1")) != 0 {
		t.Errorf("it counts with %s", cpu.String())
	}
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("3")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
	if cpu := demandOf(pod)[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse("3")) != 0 {
		t.Errorf("with a resize that its node has no room for, it counts with %s", cpu.String())
	}
}

// TestPodsWithoutACreator checks that a pod with an unknown creator counts towards every Quota of its consumer, and
// must fit into all of them.
func TestPodsWithoutACreator(t *testing.T) {
	cache := &shelf{quotas: []offloading.Quota{quotaFor("rome", "2"), quotaFor("rome-gpu", "1")}, pods: []corev1.Pod{*podOf(sized("old", "", "600m"), "1")}}
	l := New(cache, Options{})
	take(t, l, sized("a", "rome", "1500m"), false)
	take(t, l, sized("a", "rome", "1400m"), true)
	take(t, l, sized("b", "rome-gpu", "500m"), false)
	take(t, l, sized("b", "", "400m"), false)
	l.ReleaseReservation(sized("a", "rome", "1").Key)
	take(t, l, sized("b", "", "400m"), true)
	again := sized("old", "", "2")
	again.Returns = true
	take(t, l, again, false)
	take(t, l, resized(sized("old", "", "700m"), "600m"), false)
	take(t, l, resized(sized("old", "", "500m"), "600m"), true)
}

// TestAnnouncements checks that the webhook counts the changes that it has admitted, and that the controller does not
// count them again.
func TestAnnouncements(t *testing.T) {
	l := New(&shelf{quotas: []offloading.Quota{quotaFor("rome", "2")}}, Options{})
	now := time.Now()
	l.now = func() time.Time { return now }
	announce := func(name string, dryRun, fits bool) {
		t.Helper()
		if refusal, err := l.AnnounceRequest(t.Context(), sized(name, "rome", "1300m"), dryRun); err != nil || (refusal == nil) != fits {
			t.Errorf("pod %s: %v, %v, want it to fit: %t", name, refusal, err, fits)
		}
	}
	announce("first", true, true)
	announce("second", false, true)
	announce("third", false, false)
	announce("second", false, true)
	take(t, l, sized("fourth", "rome", "1300m"), true)
	l.ReleaseReservation(sized("fourth", "rome", "1").Key)
	now = now.Add(announcementPeriod)
	announce("third", false, true)
}
