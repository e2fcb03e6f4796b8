// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/folderplugins"
)

func TestVirtualNodeShapesTheNode(t *testing.T) {
	id := Identity{Name: "milan", RemoteClusterID: "milan", Address: "10.0.0.7", Port: 10250, KubeletVersion: "v1.36.3",
		Labels: map[string]string{"zone": "flag", "tier": "flag"}, Annotations: map[string]string{"a": "flag"}}
	vn := &offloadingv1beta1.VirtualNode{Spec: offloadingv1beta1.VirtualNodeSpec{
		Labels:      map[string]string{"tier": "resource", corev1.LabelArchStable: "arm64", wire.RemoteClusterIDLabel: "forged"},
		Annotations: map[string]string{"a": "resource", "b": "resource"},
		Taints: []corev1.Taint{
			{Key: "gpu", Effect: corev1.TaintEffectNoSchedule},
			{Key: wire.VirtualNodeTaint, Value: "other", Effect: corev1.TaintEffectNoExecute},
		},
		ResourceQuota:  corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), "nvidia.com/gpu": resource.MustParse("1")}},
		StorageClasses: []offloadingv1beta1.StorageType{{StorageClassName: "liqo"}},
	}}
	node := id.desiredNode(vn)

	wantLabels := map[string]string{
		"zone": "flag", "tier": "resource",
		"kubernetes.io/hostname": "milan", "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "kubernetes.io/role": "agent",
		"type": "virtual-kubelet", "liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan",
		"node.kubernetes.io/exclude-from-external-load-balancers": "true",
		"alpha.service-controller.kubernetes.io/exclude-balancer": "true",
		"storage.liqo.io/available":                               "true",
	}
	if diff := cmp.Diff(wantLabels, node.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "resource", "b": "resource"}, node.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	wantTaints := []corev1.Taint{
		{Key: "virtual-node.liqo.io/not-allowed", Value: "true", Effect: corev1.TaintEffectNoExecute},
		{Key: "gpu", Effect: corev1.TaintEffectNoSchedule},
	}
	if diff := cmp.Diff(wantTaints, node.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(vn.Spec.ResourceQuota.Hard, node.Status.Allocatable); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
	if node.Status.NodeInfo.Architecture != "arm64" || node.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("node info %+v, endpoints %+v", node.Status.NodeInfo, node.Status.DaemonEndpoints)
	}
}

func TestConditionsFollowTheProvider(t *testing.T) {
	offered := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	tests := []struct {
		name        string
		health      health
		resources   corev1.ResourceList
		want        map[corev1.NodeConditionType]string
		wantMessage string // message of the condition Ready
	}{
		{"all well, no network to check", health{}, offered, map[corev1.NodeConditionType]string{
			"Ready": "True KubeletReady", "MemoryPressure": "False RemoteClusterHasSufficientMemory",
			"DiskPressure": "False RemoteClusterHasNoDiskPressure", "PIDPressure": "False RemoteClusterHasNoPIDPressure",
		}, "The provider's API server answers"},
		{"a plugin of the folder fails", health{folder: []folderplugins.Plugin{{Name: "strip", State: folderplugins.FailedState}}}, offered, map[corev1.NodeConditionType]string{
			"Ready": "True KubeletReady", "MemoryPressure": "False RemoteClusterHasSufficientMemory",
			"DiskPressure": "False RemoteClusterHasNoDiskPressure", "PIDPressure": "False RemoteClusterHasNoPIDPressure",
			"FolderPluginsLoaded": "False PluginsFailed",
		}, "The provider's API server answers"},
		{"network up", health{network: networkUp}, offered, map[corev1.NodeConditionType]string{
			"Ready": "True KubeletReady", "MemoryPressure": "False RemoteClusterHasSufficientMemory",
			"DiskPressure": "False RemoteClusterHasNoDiskPressure", "PIDPressure": "False RemoteClusterHasNoPIDPressure",
			"NetworkUnavailable": "False LiqoNetworkingUp",
		}, "The provider's API server answers"},
		{"network down", health{network: networkDown}, offered, map[corev1.NodeConditionType]string{
			"Ready": "False KubeletNotReady", "MemoryPressure": "False RemoteClusterHasSufficientMemory",
			"DiskPressure": "False RemoteClusterHasNoDiskPressure", "PIDPressure": "False RemoteClusterHasNoPIDPressure",
			"NetworkUnavailable": "True LiqoNetworkingDown",
		}, networkIsDown},
		{"API server down", health{unreachable: "does not answer: connection refused"}, offered, map[corev1.NodeConditionType]string{
			"Ready": "False KubeletNotReady", "MemoryPressure": "False RemoteClusterHasSufficientMemory",
			"DiskPressure": "False RemoteClusterHasNoDiskPressure", "PIDPressure": "False RemoteClusterHasNoPIDPressure",
		}, "The provider's API server does not answer: connection refused"},
		{"API server down with an answer of several lines", health{unreachable: "answers:\n\x1b[2Jall  is well"}, offered, map[corev1.NodeConditionType]string{
			"Ready": "False KubeletNotReady", "MemoryPressure": "False RemoteClusterHasSufficientMemory",
			"DiskPressure": "False RemoteClusterHasNoDiskPressure", "PIDPressure": "False RemoteClusterHasNoPIDPressure",
		}, `The provider's API server answers: \u001b[2Jall is well`},
		{"nothing offered", health{}, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}, map[corev1.NodeConditionType]string{
			"Ready": "False KubeletNotReady", "MemoryPressure": "True RemoteClusterHasMemoryPressure",
			"DiskPressure": "True RemoteClusterHasDiskPressure", "PIDPressure": "True RemoteClusterHasPIDPressure",
		}, noResources},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := map[corev1.NodeConditionType]string{}
			for _, c := range test.health.nodeConditions(test.resources, nil, metav1.Now()) {
				got[c.Type] = string(c.Status) + " " + c.Reason
				if c.Type == corev1.NodeReady && c.Message != test.wantMessage {
					t.Errorf("Ready says %q, want %q", c.Message, test.wantMessage)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTransitionTimeIsThatOfTheStatus(t *testing.T) {
	begin := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	later := metav1.NewTime(begin.Add(time.Hour))
	before := (&health{unreachable: "a"}).nodeConditions(nil, nil, begin)
	for _, c := range (&health{unreachable: "b"}).nodeConditions(nil, before, later) {
		if !c.LastTransitionTime.Equal(&begin) {
			t.Errorf("%s has the same status but changed at %s", c.Type, c.LastTransitionTime)
		}
	}
	offered := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	for _, c := range (&health{}).nodeConditions(offered, before, later) {
		if !c.LastTransitionTime.Equal(&later) {
			t.Errorf("%s changed its status but is said to have it since %s", c.Type, c.LastTransitionTime)
		}
	}
}

func TestNetworkOfForeignCluster(t *testing.T) {
	cluster := func(generation int64, enabled bool, status corev1beta1.ConditionStatus) *corev1beta1.ForeignCluster {
		fc := &corev1beta1.ForeignCluster{}
		fc.Status.ObservedGeneration = generation
		fc.Status.Modules.Networking.Enabled = enabled
		fc.Status.Modules.Networking.Conditions = []corev1beta1.Condition{{Type: corev1beta1.NetworkConnectionStatusCondition, Status: status}}
		return fc
	}
	tests := []struct {
		name string
		fc   *corev1beta1.ForeignCluster
		want network
	}{
		{"missing", nil, networkIgnored},
		{"module disabled", cluster(1, false, corev1beta1.ConditionStatusError), networkIgnored},
		{"never reconciled", cluster(0, false, corev1beta1.ConditionStatusNone), networkDown},
		{"established", cluster(2, true, corev1beta1.ConditionStatusEstablished), networkUp},
		{"pending", cluster(2, true, corev1beta1.ConditionStatusPending), networkDown},
	}
	for _, test := range tests {
		if got := networkOf(test.fc); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestTaintsOfOthersStay(t *testing.T) {
	ours := corev1.Taint{Key: "ours", Effect: corev1.TaintEffectNoSchedule}
	former := corev1.Taint{Key: "former", Effect: corev1.TaintEffectNoSchedule}
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: time.Now()}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{appliedTaintsAnnotation: encodeTaints([]corev1.Taint{ours, former})}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{former, notReady, ours}}}

	got, applied, changed := mergeTaints(node, []corev1.Taint{ours})
	if diff := cmp.Diff([]corev1.Taint{ours, notReady}, got); !changed || diff != "" {
		t.Fatalf("changed %v, taints (-want +got):\n%s", changed, diff)
	}
	node.Spec.Taints, node.Annotations[appliedTaintsAnnotation] = []corev1.Taint{notReady, ours}, applied
	if got, _, changed := mergeTaints(node, []corev1.Taint{ours}); changed {
		t.Errorf("a second look still wants to change the taints to %v", got)
	}
}

func TestSpoiledTaintAnnotationIsRepaired(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{appliedTaintsAnnotation: "{"}}}
	want := []corev1.Taint{{Key: "ours", Effect: corev1.TaintEffectNoSchedule}}
	got, applied, changed := mergeTaints(node, want)
	if diff := cmp.Diff(want, got); !changed || diff != "" || applied != encodeTaints(want) {
		t.Errorf("changed %v, annotation %s, taints (-want +got):\n%s", changed, applied, diff)
	}
}

func TestDrift(t *testing.T) {
	id := Identity{Name: "milan", RemoteClusterID: "milan", Address: "10.0.0.7", Port: 10250}
	vn := &offloadingv1beta1.VirtualNode{Spec: offloadingv1beta1.VirtualNodeSpec{
		ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}}
	want := id.desiredNode(vn)
	want.Status.Conditions = (&health{}).nodeConditions(want.Status.Allocatable, nil, metav1.Now())
	tests := []struct {
		name   string
		change func(*corev1.Node)
		want   bool
	}{
		{"nothing", func(*corev1.Node) {}, false},
		{"a label of others", func(n *corev1.Node) { n.Labels["other"] = "x" }, false},
		{"another spelling of an amount", func(n *corev1.Node) { n.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("1") }, false},
		{"a condition of others", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock"})
		}, false},
		{"a label that we wrote and no longer want", func(n *corev1.Node) {
			n.Labels["former"], n.Annotations[lastMetaAnnotation] = "x", `{"labels":{"former":"x"}}`
		}, true},
		{"an annotation that we wrote and no longer want", func(n *corev1.Node) {
			n.Annotations["former"], n.Annotations[lastMetaAnnotation] = "x", `{"annotations":{"former":"x"}}`
		}, true},
		{"an amount that we wrote and no longer want", func(n *corev1.Node) {
			n.Status.Capacity["gpu"], n.Annotations[lastStatusAnnotation] = resource.MustParse("1"), `{"capacity":{"gpu":"1","cpu":"1"}}`
		}, true},
		{"what we wrote and no longer want is gone", func(n *corev1.Node) {
			n.Annotations[lastMetaAnnotation], n.Annotations[lastStatusAnnotation] = `{"labels":{"former":"x"}}`, `{"capacity":{"gpu":"1"}}`
		}, false},
		{"a label of ours", func(n *corev1.Node) { delete(n.Labels, wire.TypeLabel) }, true},
		{"an amount", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("2") }, true},
		{"the address", func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.8" }, true},
		{"readiness set by the node lifecycle controller", func(n *corev1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
		}, true},
		{"a condition about plugins that should be gone", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: folderplugins.ConditionType})
		}, true},
		{"a network condition that should be gone", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Reason: wire.NodeNetworkDownReason})
		}, true},
	}
	for _, test := range tests {
		actual := want.DeepCopy()
		test.change(actual)
		if got := hasDrifted(actual, want); got != test.want {
			t.Errorf("%s: drifted is %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSpoiledMemoryIsFound(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lastMetaAnnotation: "{", lastStatusAnnotation: `{"capacity":{}}`}}}
	_, spoiled := lastWritten(node)
	if diff := cmp.Diff([]string{lastMetaAnnotation}, spoiled); diff != "" {
		t.Errorf("spoiled (-want +got):\n%s", diff)
	}
	if _, spoiled := lastWritten(&corev1.Node{}); len(spoiled) > 0 {
		t.Errorf("a new node is spoiled: %v", spoiled)
	}
}

func TestEndedLibraryHoldsNobodyUp(t *testing.T) {
	c := &Controller{trigger: make(chan struct{}, 1)}
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	c.deliverNode(node("early")) // this call must not block although the library is not running yet

	ended := make(chan struct{})
	defer close(ended)
	provider{c}.NotifyNodeStatus(t.Context(), func(*corev1.Node) { <-ended })
	c.deliverNode(node("lost"))
	c.deliverNode(node("lost, too"))

	got := make(chan string)
	provider{c}.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { got <- n.Name })
	c.deliverNode(node("first"))
	if name := <-got; name != "first" {
		t.Errorf("the library that runs got %s", name)
	}
}
