// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var (
	options  = testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}
	consumer = controllertest.Cluster{ID: "rome", Options: options}
	provider = controllertest.Cluster{ID: "milan", Options: options}
)

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer, &provider)) }

// peering contains a tenant namespace in each of the two clusters. rome has access to milan.
type peering struct {
	*testing.T
	here, there string
}

// peer gives rome the access that refractctl peer gives. If older is true, the roles are missing, as in an earlier
// version.
func peer(t *testing.T, older bool) *peering {
	t.Helper()
	p := &peering{T: t, here: consumer.Namespace(t)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-", Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: consumer.ID}}}
	provider.Create(t, namespace)
	p.there = namespace.Name
	group := rbac.Peer("", consumer.ID)
	if !older {
		require.NoError(t, provider.Grant(t.Context(), append(group.Objects(), group.TenantNamespace(p.there))...))
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, provider.KubeconfigFor(path, "kubelet-of-rome", consumer.ID))
	kubeconfig, err := os.ReadFile(path)
	require.NoError(t, err)
	manager := rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, consumer.Grant(t.Context(), manager.Provider(p.here, "kubeconfig")...))
	consumer.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: "kubeconfig", Annotations: map[string]string{wire.RemoteTenantNamespaceAnnotation: p.there}},
		Data:       map[string][]byte{wire.KubeconfigSecretKey: kubeconfig},
	})
	return p
}

func resources(cpu, pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse(pods)}
}

// ask creates the ResourceSlice of a virtual node with the requested resources.
func (p *peering) ask(name string, asked corev1.ResourceList) *auth.ResourceSlice {
	p.Helper()
	slice := &auth.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.there, Name: name, Labels: map[string]string{wire.NegotiateLabel: "true"}},
		Spec:       auth.ResourceSliceSpec{ConsumerClusterID: ptr.To(core.ClusterID(consumer.ID)), Resources: asked},
	}
	provider.Create(p.T, slice)
	return slice
}

// node creates a VirtualNode in the way refractctl does. The fields in set are set by flags.
func (p *peering) node(name string, asked corev1.ResourceList, spec map[string]any, set ...negotiation.Field) {
	p.Helper()
	hard := map[string]any{}
	for resource, quantity := range asked {
		hard[string(resource)] = quantity.String()
	}
	fields := map[string]any{"clusterID": provider.ID, "kubeconfigSecretRef": map[string]any{"name": "kubeconfig"}, "resourceQuota": map[string]any{"hard": hard}}
	for field, value := range spec {
		fields[field] = value
	}
	vn := &unstructured.Unstructured{Object: map[string]any{"apiVersion": offloading.GroupVersion.String(), "kind": offloading.VirtualNodeKind, "spec": fields}}
	vn.SetNamespace(p.here)
	vn.SetName(name)
	vn.SetAnnotations(negotiation.Annotations(asked, set...))
	require.NoError(p, consumer.Client.Apply(p.Context(), client.ApplyConfigurationFromUnstructured(vn), client.FieldOwner(negotiation.Creator), client.ForceOwnership))
}

func (p *peering) get(name string) *offloading.VirtualNode {
	p.Helper()
	vn := &offloading.VirtualNode{}
	consumer.Get(p.T, vn, p.here, name)
	return vn
}

// await waits until holds returns true for the VirtualNode.
func (p *peering) await(name, what string, holds func(*offloading.VirtualNode) bool) *offloading.VirtualNode {
	p.Helper()
	vn := &offloading.VirtualNode{}
	controllertest.Eventually(p.T, what, func() error {
		if err := consumer.Client.Get(p.Context(), types.NamespacedName{Namespace: p.here, Name: name}, vn); err != nil {
			return err
		}
		if !holds(vn) {
			return fmt.Errorf("it has %v, %+v", vn.Annotations, vn.Spec)
		}
		return nil
	})
	return vn
}

func cpu(text string) func(*offloading.VirtualNode) bool {
	return func(vn *offloading.VirtualNode) bool {
		return vn.Spec.ResourceQuota.Hard.Cpu().Equal(resource.MustParse(text))
	}
}

func storage(names ...string) func(*offloading.VirtualNode) bool {
	return func(vn *offloading.VirtualNode) bool {
		return equality.Semantic.DeepEqual(negotiation.StorageNames(vn.Spec.StorageClasses), names)
	}
}

func start(t *testing.T) *controllertest.Manager {
	t.Helper()
	return consumer.StartManager(t, func(o *controllers.Options) {
		o.Negotiation.Settle, o.Negotiation.AcceptedLabels = time.Millisecond, negotiation.Acceptance{"topology.kubernetes.io/*", "example.com/tier"}
	})
}

// byHand patches a VirtualNode in the way kubectl does.
func (p *peering) byHand(name, patch string) {
	p.Helper()
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: name}}
	require.NoError(p, consumer.Client.Patch(p.Context(), vn, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")))
}

// TestAVirtualNodeFollowsItsProvider checks that a virtual node follows its provider's offers, starting with the first
// response.
func TestAVirtualNodeFollowsItsProvider(t *testing.T) {
	p := peer(t, false)
	require.NoError(t, provider.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.ResourceOffers()...))
	fast := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.com/disk"}
	provider.Create(t, fast)
	there := provider.StartManager(t, func(o *controllers.Options) {
		o.ResourceOffers.Enabled = true
		offer := &o.ResourceOffers.Offer
		offer.Storage, offer.DefaultStorageClass, offer.Labels = true, "fast", map[string]string{"topology.kubernetes.io/zone": "eu-1"}
		offer.IngressClasses = []offloading.IngressType{{IngressClassName: "nginx", Default: true}}
		offer.LoadBalancerClasses = []offloading.LoadBalancerType{{LoadBalancerClassName: "public"}}
	})
	here := start(t)
	asked := resources("4", "10")
	slice := p.ask("milan", asked)
	p.node("milan", asked, nil)
	vn := p.await("milan", "the classes", storage("fast (default)"))
	assert.Equal(t, []string{"nginx (default)"}, negotiation.IngressNames(vn.Spec.IngressClasses))
	assert.Equal(t, []string{"public"}, negotiation.LoadBalancerNames(vn.Spec.LoadBalancerClasses))
	assert.Equal(t, map[string]string{"topology.kubernetes.io/zone": "eu-1"}, vn.Spec.Labels)
	assert.True(t, cpu("4")(vn))
	assert.Equal(t, "Accepted", vn.Annotations[wire.OfferAnnotation])
	assert.Contains(t, consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "milan", "OfferFollowed").Note, "updated to the offer of provider milan: spec.storageClasses: fast (default)")

	provider.Create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "archive"}, Provisioner: "example.com/tape"})
	p.await("milan", "the class that was added", storage("archive", "fast (default)"))
	quota := &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: p.there, Name: "rome"}, Spec: offloading.QuotaSpec{User: "rome", LimitsEnforcement: offloading.NoLimitsEnforcement, Resources: resources("1", "10")}}
	provider.Create(t, quota)
	p.await("milan", "the resources that are left", cpu("1"))

	t.Run("another virtual node without a slice has its classes", func(t *testing.T) {
		p.node("milan-b", resources("2", "10"), map[string]any{"storageClasses": []any{map[string]any{"storageClassName": "by-flag"}}}, negotiation.StorageClasses)
		vn := p.await("milan-b", "the classes", func(vn *offloading.VirtualNode) bool { return len(vn.Spec.IngressClasses) == 1 })
		assert.True(t, storage("by-flag")(vn), "a flag wins")
		assert.True(t, cpu("2")(vn), "the resources are those of another node")
	})

	t.Run("what is set by hand wins", func(t *testing.T) {
		p.byHand("milan", `{"spec":{"storageClasses":[{"storageClassName":"mine"}],"labels":{"team":"a"}}}`)
		provider.Patch(t, quota, `{"spec":{"resources":{"cpu":"2"}}}`)
		vn := p.await("milan", "the resources", cpu("2"))
		assert.True(t, storage("mine")(vn), "it is %v", vn.Spec.StorageClasses)
		assert.Equal(t, map[string]string{"topology.kubernetes.io/zone": "eu-1", "team": "a"}, vn.Spec.Labels)
		p.byHand("milan", `{"spec":{"resourceQuota":{"hard":{"cpu":"3"}}}}`)
		p.node("milan-c", resources("1", "10"), nil)
		provider.Patch(t, slice, `{"spec":{"resources":{"cpu":"1"}}}`)
		provider.Create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Provisioner: "example.com/new"})
		p.await("milan-c", "the same change", func(vn *offloading.VirtualNode) bool { return len(vn.Spec.StorageClasses) == 3 })
		provider.PatchStatus(t, slice, `{"status":{"ingressClasses":null}}`) // the controller restores this field immediately
		p.await("milan", "nothing else to be changed", func(vn *offloading.VirtualNode) bool { return cpu("3")(vn) && len(vn.Spec.IngressClasses) == 1 })
	})

	t.Run("nothing is taken away on doubt", func(t *testing.T) {
		p.node("kept", resources("1", "5"), nil)
		p.ask("kept", resources("1", "5"))
		p.await("kept", "an answer", func(vn *offloading.VirtualNode) bool { return len(vn.Spec.StorageClasses) == 3 && cpu("1")(vn) })
		before := p.get("kept").Spec
		there.Stop(t)
		all := &auth.ResourceSliceList{}
		require.NoError(t, provider.Client.List(t.Context(), all, client.InNamespace(p.there)))
		for i := range all.Items {
			provider.Delete(t, &all.Items[i])
		}
		p.await("kept", "the loss to be noticed", func(vn *offloading.VirtualNode) bool {
			return strings.HasPrefix(vn.Annotations[wire.OfferAnnotation], "NotNegotiated: ResourceSlice kept does not exist")
		})
		assert.Contains(t, consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "kept", "NotNegotiated").Note, "refractctl peer")
		assert.Equal(t, before, p.get("kept").Spec)

		require.NoError(t, provider.StopAPIServer())
		defer func() { require.NoError(t, provider.StartAPIServer(t.Context())) }()
		failures := func() float64 { return here.Metric(t, "refract_controller_errors_total", "controller", "negotiation") }
		failed := failures()
		p.byHand("kept", `{"metadata":{"labels":{"look":"again"}}}`)
		controllertest.Eventually(t, "the provider to be asked in vain", func() error {
			if failures() == failed {
				return fmt.Errorf("there were %v failures", failed)
			}
			return nil
		})
		assert.Equal(t, before, p.get("kept").Spec)
	})
}

// TestWhatAProviderMayNotOffer checks that only valid values within the request are used, because a compromised
// provider may write arbitrary values to the status. An Event must list the refused values. If the provider denies the
// request, the VirtualNode must stay unchanged.
func TestWhatAProviderMayNotOffer(t *testing.T) {
	p := peer(t, false)
	start(t)
	asked := resources("4", "10")
	slice := p.ask("milan", asked)
	p.node("milan", asked, nil)
	provider.PatchStatus(t, slice, `{"status":{"conditions":[{"type":"Resources","status":"Accepted"}],"resources":{"cpu":"64","pods":"5","example.com/gpu":"8"},
		"storageClasses":[{"storageClassName":"a --token=b"},{"storageClassName":"good"}],"nodeLabels":{"node-role.kubernetes.io/control-plane":"","liqo.io/type":"x","example.com/tier":"gold"}}}`)
	vn := p.await("milan", "what is fine of it", storage("good"))
	assert.True(t, cpu("4")(vn), "as was asked for")
	assert.Equal(t, "5", vn.Spec.ResourceQuota.Hard.Pods().String())
	assert.Len(t, vn.Spec.ResourceQuota.Hard, 2)
	assert.Equal(t, map[string]string{"example.com/tier": "gold"}, vn.Spec.Labels)
	note := consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "milan", "OfferRefused").Note
	for _, word := range []string{"a --token=b", "node-role.kubernetes.io/control-plane", "liqo.io/type"} {
		assert.Contains(t, note, word)
	}

	provider.PatchStatus(t, slice, `{"status":{"conditions":[{"type":"Resources","status":"Denied","message":"no more"}],"resources":null,"storageClasses":null,"nodeLabels":null}}`)
	assert.Contains(t, consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "milan", "OfferDenied").Note, `VirtualNode left unchanged: "no more"`)
	assert.Equal(t, vn.Spec, p.get("milan").Spec)
}

// TestLabelsThatAreNotAccepted checks that a provider cannot set labels that this cluster has not accepted, because a
// clusterSelector may match any label of a virtual node. Existing labels must be kept.
func TestLabelsThatAreNotAccepted(t *testing.T) {
	p := peer(t, false)
	start(t)
	asked := resources("4", "10")
	slice := p.ask("milan", asked)
	// An earlier version set these labels.
	p.node("milan", asked, map[string]any{"labels": map[string]any{"tier": "trusted", "site": "old"}})
	offer := func(labels string) {
		p.Helper()
		provider.PatchStatus(t, slice, `{"status":{"conditions":[{"type":"Resources","status":"Accepted"}],"nodeLabels":`+labels+`}}`)
	}
	offered := func(want map[string]string) func(*offloading.VirtualNode) bool {
		return func(vn *offloading.VirtualNode) bool { return equality.Semantic.DeepEqual(vn.Spec.Labels, want) }
	}
	offer(`{"tier":"trusted","site":"new","vault":"yes","topology.kubernetes.io/zone":"eu-1","example.com/tier":"gold"}`)
	p.await("milan", "the labels that are accepted", offered(map[string]string{"tier": "trusted", "topology.kubernetes.io/zone": "eu-1", "example.com/tier": "gold"}))
	note := consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "milan", "LabelsNotAccepted").Note
	for _, words := range []string{"site=new, vault=yes", "refractctl peer --accept-label=KEY", "offloading.acceptedOfferLabels"} {
		assert.Contains(t, note, words)
	}

	// A label that the provider has withdrawn and offers again must be accepted like a new label.
	offer(`{"tier":null,"site":null,"vault":null,"example.com/tier":null}`)
	p.await("milan", "the label to go", offered(map[string]string{"topology.kubernetes.io/zone": "eu-1"}))
	offer(`{"tier":"trusted","vault":"yes","topology.kubernetes.io/zone":"eu-2"}`)
	p.await("milan", "the accepted label alone", offered(map[string]string{"topology.kubernetes.io/zone": "eu-2"}))

	vn := p.get("milan")
	consumer.Patch(t, vn, fmt.Sprintf(`{"metadata":{"annotations":{%q:"vault=yes, tier=other"}}}`, wire.AcceptedLabelsAnnotation))
	p.await("milan", "the label that was accepted for this node", offered(map[string]string{"topology.kubernetes.io/zone": "eu-2", "vault": "yes"}))
}

// TestAnOlderProvider checks that the VirtualNode keeps its values if the provider runs an older version, which does
// not let this cluster read ResourceSlices. An Event and an annotation must contain the reason.
func TestAnOlderProvider(t *testing.T) {
	p := peer(t, true)
	start(t)
	asked := resources("4", "10")
	p.node("milan", asked, nil)
	assert.Contains(t, consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "milan", "NotNegotiated").Note, "this cluster may not list ResourceSlices there: its Tenant was drained or removed")
	vn := p.await("milan", "what was reported", func(vn *offloading.VirtualNode) bool {
		return strings.Contains(vn.Annotations[wire.OfferAnnotation], "NotNegotiated")
	})
	assert.True(t, cpu("4")(vn))
}

// TestChangesAreTakenTogether checks that frequent changes of an offer are combined, so that the virtual kubelet does
// not restart each time.
func TestChangesAreTakenTogether(t *testing.T) {
	p := peer(t, false)
	manager := consumer.StartManager(t, func(o *controllers.Options) { o.Negotiation.Settle = 3 * time.Second })
	slice := p.ask("milan", resources("4", "10"))
	p.node("milan", resources("4", "10"), nil)
	for i := range 10 {
		provider.PatchStatus(t, slice, fmt.Sprintf(`{"status":{"conditions":[{"type":"Resources","status":"Accepted"}],"storageClasses":[{"storageClassName":"class-%d"}]}}`, i))
		if i == 0 {
			p.await("milan", "the first offer", storage("class-0"))
		}
	}
	p.await("milan", "the last offer", storage("class-9"))
	assert.LessOrEqual(t, len(manager.Writes.About("PATCH", p.here+"/virtualnodes/milan")), 4, "the finalizer, and two offers")
}
