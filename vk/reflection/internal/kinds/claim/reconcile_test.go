// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/kindtest"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

var (
	claimGVK  = corev1.SchemeGroupVersion.WithKind(Name)
	volumeGVK = corev1.SchemeGroupVersion.WithKind(volumeKind)
	classGVK  = storagev1.SchemeGroupVersion.WithKind("StorageClass")
)

// virtualClaim is an unbound claim of the virtual class. The virtual node was selected for it.
const virtualClaim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: shop
  annotations: {volume.kubernetes.io/storage-provisioner: ` + wire.StorageProvisioner + `, volume.kubernetes.io/selected-node: milan}
spec: {storageClassName: ` + wire.DefaultStorageClass + `, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
status: {phase: Pending}`

// lab evaluates a claim with the name data.
type lab struct {
	*kindtest.Pair
	t     *testing.T
	h     *handler
	scope *engine.Scope
}

// newLab returns a lab with the virtual storage class. isEnabled determines whether claims of this class are reflected.
func newLab(t *testing.T, isEnabled bool) *lab {
	t.Helper()
	l := &lab{Pair: kindtest.New(t, func(o *engine.Options) { o.Storage.Enabled = isEnabled }, Kind(), pod.Kind()), t: t}
	l.scope = l.Prepare(Name, pod.Name)
	l.h = l.Manager.Handler(Name).(*handler)
	node := kindtest.Object(t, `{apiVersion: v1, kind: Node, metadata: {name: milan,
  labels: {`+wire.TypeLabel+`: `+wire.VirtualNodeType+`, `+wire.RemoteClusterIDLabel+`: milan}}}`)
	require.NoError(t, l.h.Settings.Nodes.Put(node))
	l.Here.Put(t, kindtest.Object(t, `{apiVersion: storage.k8s.io/v1, kind: StorageClass,
  metadata: {name: `+wire.DefaultStorageClass+`}, provisioner: `+wire.StorageProvisioner+`, volumeBindingMode: WaitForFirstConsumer}`))
	l.sync()
	return l
}

// claim stores the claim with further fields in its spec and status.
func (l *lab) claim(spec, status string) *unstructured.Unstructured {
	l.t.Helper()
	object := kindtest.Object(l.t, virtualClaim)
	if present := l.Here.Get(claimGVK, kindtest.Namespace, "data"); present != nil {
		object.SetUID(present.GetUID())
	}
	merge(l.t, object, "spec", spec)
	merge(l.t, object, "status", status)
	l.Here.Put(l.t, object)
	l.sync()
	return l.Here.Get(claimGVK, kindtest.Namespace, "data")
}

func merge(t *testing.T, object *unstructured.Unstructured, field, text string) {
	t.Helper()
	added := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &added))
	present, _ := object.Object[field].(map[string]any)
	merged := maps.Clone(present)
	if merged == nil {
		merged = map[string]any{}
	}
	maps.Copy(merged, added)
	object.Object[field] = merged
}

func (l *lab) sync() {
	l.t.Helper()
	claims, copied := l.scope.Caches()
	l.Sync(l.Here, claims, claimGVK, kindtest.Namespace, "data")
	l.Sync(l.Provider, copied, claimGVK, kindtest.RemoteNamespace, "data")
	l.Sync(l.Here, l.h.volumes.classes, classGVK, "", wire.DefaultStorageClass)
	for _, volume := range append(l.Here.All(volumeGVK, ""), l.h.volumes.informer.All()...) {
		l.Sync(l.Here, l.h.volumes.informer, volumeGVK, "", volume.GetName())
	}
}

func (l *lab) reconcile() error {
	l.t.Helper()
	err := l.Reconcile(Name, "data")
	l.sync()
	return err
}

func (l *lab) remote() *unstructured.Unstructured {
	return l.Provider.Get(claimGVK, kindtest.RemoteNamespace, "data")
}

// volume returns the volume of the claim, or nil if it does not exist.
func (l *lab) volume() *unstructured.Unstructured {
	all := l.Here.All(volumeGVK, "")
	if len(all) == 0 {
		return nil
	}
	require.Len(l.t, all, 1)
	return all[0]
}

// bind binds the claims and volumes in both clusters, as Kubernetes would.
func (l *lab) bind() {
	l.t.Helper()
	require.NoError(l.t, l.reconcile())
	volume := l.volume()
	require.NotNil(l.t, volume)
	l.setVolume("Bound", "")
	l.claim(`{volumeName: `+volume.GetName()+`}`, `{phase: Bound, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}`)
	l.setRemote(`{volumeName: real}`, `{phase: Bound, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}`)
}

func (l *lab) setRemote(spec, status string) {
	l.t.Helper()
	remote := l.remote()
	merge(l.t, remote, "spec", spec)
	merge(l.t, remote, "status", status)
	l.Provider.Put(l.t, remote)
	l.sync()
}

func (l *lab) setVolume(phase, policy string) {
	l.t.Helper()
	volume := l.volume()
	volume.Object["status"] = map[string]any{"phase": phase}
	if policy != "" {
		volume.Object["spec"].(map[string]any)["persistentVolumeReclaimPolicy"] = policy
	}
	l.Here.Put(l.t, volume)
	l.sync()
}

// TestAClaimIsProvisioned checks that a claim is created on the provider, and a volume that represents it in this
// cluster.
func TestAClaimIsProvisioned(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	created := l.claim("{}", "{}")
	require.NoError(t, l.reconcile())
	require.NotNil(t, l.remote())
	assert.Equal(t, "pvc-"+string(created.GetUID()), l.volume().GetName())
	assert.Equal(t, l.volume().GetName(), l.remote().GetAnnotations()[OriginVolumeAnnotation])
	assert.True(t, isFor(l.volume(), created))
	assert.True(t, l.h.isOurs(l.volume()))
	writes := l.Here.Writes() + l.Provider.Writes()
	require.NoError(t, l.reconcile())
	assert.Equal(t, writes, l.Here.Writes()+l.Provider.Writes(), "nothing is written twice")
}

// TestABoundClaimFollows checks that a new size is reflected to the provider, and that the provider's capacity is
// reflected back. A claim that the provider has expanded must not shrink.
func TestABoundClaimFollows(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	l.claim("{}", "{}")
	l.bind()
	volume := l.volume().GetName()
	l.claim(`{volumeName: `+volume+`, resources: {requests: {storage: 2Gi}}}`, `{phase: Bound, capacity: {storage: 1Gi}}`)
	require.NoError(t, l.reconcile())
	assert.Equal(t, "2Gi", sizeOf(l.remote()))
	l.setRemote("{}", `{capacity: {storage: 2Gi}}`)
	require.NoError(t, l.reconcile())
	assert.Equal(t, "2Gi", raw.Nested(l.volume().Object, "spec", "capacity", "storage"))
	assert.Equal(t, "2Gi", raw.Nested(l.Here.Get(claimGVK, kindtest.Namespace, "data").Object, "status", "capacity", "storage"))
	// The provider has expanded its claim further, so it cannot shrink.
	l.setRemote(`{resources: {requests: {storage: 4Gi}}}`, `{capacity: {storage: 4Gi}}`)
	require.NoError(t, l.reconcile())
	assert.Equal(t, "4Gi", sizeOf(l.remote()))
	in := l.h.Inputs(l.scope, l.scope.Object(kindtest.Key("data")))
	assert.NotNil(t, in.Outgoing)
	assert.NotNil(t, in.Incoming)
}

// TestStepsOfAClaim checks, for each state of a claim, the error, the Event, and whether a volume is created.
func TestStepsOfAClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		isDisabled bool
		spec       string
		edit       func(l *lab, claim *unstructured.Unstructured)
		class      failure.Class
		text       string // text that the error must contain
		event      string
		hasVolume  bool
	}{
		"storage is disabled": {isDisabled: true, event: "storage is disabled on this provider"},
		"another class":       {spec: `{storageClassName: fast}`, edit: forgetProvisioner, event: "has no volumes on virtual nodes"},
		"no class yet":        {spec: `{storageClassName: null}`, edit: forgetProvisioner},
		"another node": {edit: func(_ *lab, claim *unstructured.Unstructured) {
			annotate(claim,
				wire.SelectedNodeAnnotation, "worker")
		}},
		"no node yet": {edit: func(_ *lab, claim *unstructured.Unstructured) {
			annotate(claim,
				wire.SelectedNodeAnnotation, "")
		}},
		"being deleted": {edit: func(_ *lab, claim *unstructured.Unstructured) {
			claim.SetFinalizers([]string{"a/b"})
			now := claim.GetCreationTimestamp()
			claim.SetDeletionTimestamp(&now)
		}},
		"an ephemeral volume": {edit: func(_ *lab, claim *unstructured.Unstructured) { own(claim) }, hasVolume: true},
		"a skipped claim": {edit: func(l *lab, _ *unstructured.Unstructured) {
			l.Chains.Set(host.Outgoing,
				kindtest.Skip)
		}, class: failure.Input, text: "keeps the claim on this cluster"},
		"a failed plugin": {edit: func(l *lab, _ *unstructured.Unstructured) {
			l.Chains.Set(host.Outgoing,
				kindtest.Fail)
		}, class: failure.Plugin},
		"no storage class": {edit: func(l *lab, _ *unstructured.Unstructured) {
			l.Here.Remove(classGVK, "",
				wire.DefaultStorageClass)
		}, class: failure.Input, text: "no longer exists"},
		"an eager storage class": {edit: eagerClass, class: failure.Input, text: "recreate the class with WaitForFirstConsumer"},
		"a foreign volume": {edit: foreignVolume, class: failure.Input,
			text: "does not belong to this claim on this provider: delete it"},
		"a quota of the provider": {edit: refuseCreate("exceeded quota: x"), class: failure.Refused,
			text: "request less in spec.resources.requests"},
		"a missing permission": {edit: refuseCreate("cannot create resource"), class: failure.Refused,
			text: "grant access to persistentvolumeclaims"},
		"an admission webhook": {edit: refuseCreate("no"), class: failure.Refused, text: "rejected by an admission policy"},
		"an invalid claim": {edit: failCreate(apistub.Invalid), class: failure.Refused,
			text: "correct the field, or the annotation that sets it"},
		"an unreachable provider": {edit: failCreate(apistub.Lost), class: failure.Unreachable},
		"a busy provider":         {edit: failCreate(apistub.Overloaded), class: failure.Throttled},
		"a foreign claim": {edit: func(l *lab, _ *unstructured.Unstructured) {
			l.Provider.Put(l.t, kindtest.Object(l.t, `{apiVersion: v1, kind: PersistentVolumeClaim,
  metadata: {name: data, namespace: shop-rome}}`))
		}, class: failure.Foreign},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, !c.isDisabled)
			object := l.claim(cmpOr(c.spec, "{}"), "{}")
			if c.edit != nil {
				c.edit(l, object)
				l.Here.Put(t, object)
				l.sync()
			}
			err := l.reconcile()
			kindtest.RequireClass(t, c.class, evaluation.Out, err)
			if c.text != "" {
				require.ErrorContains(t, err, c.text)
			}
			assert.Equal(t, c.hasVolume, l.volume() != nil && l.h.isOurs(l.volume()))
			if c.event != "" {
				l.Events.Await(t, wire.ReschedulingRequiredReason, c.event)
				assert.NotContains(t, l.Here.Get(claimGVK, kindtest.Namespace, "data").GetAnnotations(), wire.SelectedNodeAnnotation)
			}
		})
	}
}

func cmpOr(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func annotate(object *unstructured.Unstructured, key, value string) {
	annotations := object.GetAnnotations()
	annotations[key] = value
	object.SetAnnotations(annotations)
}

func forgetProvisioner(_ *lab, claim *unstructured.Unstructured) {
	annotate(claim, wire.StorageProvisionerAnnotation, "another")
}

func own(claim *unstructured.Unstructured) {
	claim.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1",
		"kind": "Pod", "name": "web", "uid": "u", "controller": true}}
}

func eagerClass(l *lab, _ *unstructured.Unstructured) {
	class := l.Here.Get(classGVK, "", wire.DefaultStorageClass)
	class.Object["volumeBindingMode"] = "Immediate"
	l.Here.Put(l.t, class)
}

func foreignVolume(l *lab, claim *unstructured.Unstructured) {
	l.Here.Put(l.t, kindtest.Object(l.t, `{apiVersion: v1, kind: PersistentVolume,
  metadata: {name: pvc-`+string(claim.GetUID())+`}, spec: {}}`))
}

func refuseCreate(problem string) func(*lab, *unstructured.Unstructured) {
	return failCreate(apistub.Refuse(apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", errors.New(problem))))
}

func failCreate(with *apistub.Failure) func(*lab, *unstructured.Unstructured) {
	return func(l *lab, _ *unstructured.Unstructured) {
		l.Provider.OnRequest(func(r apistub.Request) *apistub.Failure {
			if r.IsWrite() {
				return with
			}
			return nil
		})
	}
}

// TestTheEndOfAClaim checks, for each reclaim policy and each phase of the volume, whether the data on the provider is
// kept after the claim was deleted.
func TestTheEndOfAClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		phase, policy string
		isKept        bool
	}{
		"in use":               {"Bound", "Delete", true},
		"released, Delete":     {"Released", "Delete", false},
		"failed, Delete":       {"Failed", "Delete", false},
		"released, Retain":     {"Released", "Retain", true},
		"available, in doubt":  {"Available", "Delete", true},
		"released, by default": {"Released", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, true)
			l.claim("{}", "{}")
			l.bind()
			l.Here.Remove(claimGVK, kindtest.Namespace, "data")
			l.setVolume(c.phase, c.policy)
			for range 3 {
				require.NoError(t, l.reconcile())
			}
			assert.Equal(t, c.isKept, l.remote() != nil, "the data")
			assert.Equal(t, c.isKept, l.volume() != nil, "the volume")
		})
	}
}

// TestARetainedClaimKeepsItsName checks that a new claim with the name of a retained claim is refused until the
// retained data is discarded, so that it never gets this data.
func TestARetainedClaimKeepsItsName(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	l.claim("{}", "{}")
	l.bind()
	before := l.remote().GetUID()
	l.Here.Remove(claimGVK, kindtest.Namespace, "data")
	l.setVolume("Released", "Retain")
	require.NoError(t, l.reconcile())
	l.claim("{}", "{}")
	err := l.reconcile()
	kindtest.RequireClass(t, failure.Input, evaluation.Out, err)
	require.ErrorContains(t, err, "keeps the data of an earlier claim of this name")
	assert.Equal(t, before, l.remote().GetUID())
	l.setVolume("Released", "Delete")
	for range 4 {
		require.NoError(t, l.reconcile())
	}
	assert.NotEqual(t, before, l.remote().GetUID(), "the data was discarded, and the new claim is provisioned")
}

// TestAClaimThatIsGoneThere checks that the provider's claim is not recreated, because it would be empty.
func TestAClaimThatIsGoneThere(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	l.claim("{}", "{}")
	l.bind()
	l.Provider.Remove(claimGVK, kindtest.RemoteNamespace, "data")
	l.sync()
	err := l.reconcile()
	kindtest.RequireClass(t, failure.Foreign, evaluation.Out, err)
	require.ErrorContains(t, err, "may be lost")
	assert.Nil(t, l.remote())
}

// TestAVolumeOfLiqoIsAdopted checks that a volume without our labels gets these labels.
func TestAVolumeOfLiqoIsAdopted(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	l.claim("{}", "{}")
	l.bind()
	volume := l.volume()
	volume.SetLabels(nil)
	l.Here.Put(t, volume)
	known := l.h.volumes.informer.Get("", volume.GetName())
	require.NoError(t, l.h.volumes.informer.Drop(known))
	require.NoError(t, l.Reconcile(Name, "data"))
	assert.Subset(t, l.volume().GetLabels(), l.h.Ownership())
}

// TestErrorsOfAVolume checks the class of each error of this cluster's API server.
func TestErrorsOfAVolume(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure *apistub.Failure
		class   failure.Class
	}{
		"refused":     {apistub.Forbidden, failure.Refused},
		"overloaded":  {apistub.Overloaded, failure.Throttled},
		"unavailable": {apistub.Unavailable, failure.Unreachable},
	} {
		t.Run("create/"+name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, true)
			l.claim("{}", "{}")
			l.Here.Once("create", c.failure)
			kindtest.RequireClass(t, c.class, evaluation.Out, l.reconcile())
			require.NotNil(t, l.remote())
			require.NoError(t, l.reconcile())
			require.NotNil(t, l.volume(), "the next attempt creates it")
		})
		t.Run("delete/"+name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, true)
			l.claim("{}", "{}")
			l.bind()
			l.Here.Remove(claimGVK, kindtest.Namespace, "data")
			l.setVolume("Released", "Delete")
			require.NoError(t, l.reconcile())
			l.Here.Once("delete", c.failure)
			kindtest.RequireClass(t, c.class, evaluation.Out, l.reconcile())
			require.NoError(t, l.reconcile())
			assert.Nil(t, l.volume())
		})
	}
}

// TestKeptClaims checks which claims keep their pods in this cluster, and that these pods are enqueued when a claim
// changes.
func TestKeptClaims(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	kept := func() bool { _, kept := l.h.KeptClass(kindtest.Namespace, "data"); return kept }
	assert.False(t, kept(), "there is no claim")
	l.claim("{}", "{}")
	assert.False(t, kept(), "the virtual class")
	object := l.claim(`{storageClassName: fast}`, "{}")
	forgetProvisioner(l, object)
	l.Here.Put(t, object)
	l.sync()
	assert.True(t, kept(), "another class")
	_, isKept := l.h.KeptClass("elsewhere", "data")
	assert.False(t, isKept, "a namespace that is not offloaded")
	pods := l.Manager.Scope(pod.Name, kindtest.Namespace)
	objects, _ := pods.Caches()
	refers := kindtest.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, uid: u,
  resourceVersion: "1"}, spec: {enableServiceLinks: false, containers: [{name: web, image: "web:1"}],
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}, status: {phase: Pending}}`)
	l.Here.Put(t, refers)
	require.NoError(t, objects.Put(l.Here.Get(corev1.SchemeGroupVersion.WithKind("Pod"), kindtest.Namespace, "web")))
	require.NoError(t, l.Reconcile(pod.Name, "web"))
	l.Events.Await(t, wire.ReflectionDisabledReason, "exists in this cluster only")
	l.Queued(pod.Name)
	l.claim("{}", "{}")
	assert.Equal(t, []string{"web"}, l.Queued(pod.Name))
}

// TestVolumesOfOtherNamespaces checks that a released volume is deleted if its namespace is no longer offloaded, unless
// its reclaim policy is Retain, and that a bound volume is kept.
func TestVolumesOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	p := kindtest.New(t, func(o *engine.Options) { o.Storage.Enabled = true }, Kind())
	put := func(name, phase, policy string) {
		h := p.Manager.Handler(Name).(*handler)
		volume := h.newVolume(kindtest.Object(t, `{apiVersion: v1, kind: PersistentVolumeClaim,
  metadata: {name: `+name+`, namespace: elsewhere, uid: `+name+`}, spec: {accessModes: [ReadWriteOnce],
  resources: {requests: {storage: 1Gi}}}}`), &unstructured.Unstructured{})
		volume.Object["spec"].(map[string]any)["persistentVolumeReclaimPolicy"] = policy
		volume.Object["status"] = map[string]any{"phase": phase}
		p.Here.Put(t, volume)
	}
	put("released", "Released", "Delete")
	put("retained", "Released", "Retain")
	put("bound", "Bound", "Delete")
	p.Run()
	p.Await("a released volume stays", func() bool { return p.Here.Get(volumeGVK, "", "pvc-released") == nil })
	assert.NotNil(t, p.Here.Get(volumeGVK, "", "pvc-retained"))
	assert.NotNil(t, p.Here.Get(volumeGVK, "", "pvc-bound"))
}
