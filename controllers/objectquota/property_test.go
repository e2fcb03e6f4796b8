// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objectquota_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/tenantlimits"
)

var seed = flag.Uint64("objects-seed", 0, "seed of TestObjectsNeverExceedTheQuota; 0 takes a new one")

const (
	objectClients = 4
	goldStorage   = "gold.storageclass.storage.k8s.io/requests.storage"
)

// objectLimits permits a few objects of each kind. The API server itself creates one of the ConfigMaps.
var objectLimits = list("services", "10", "services.nodeports", "3", "services.loadbalancers", "2",
	"requests.storage", "10Gi", goldStorage, "3Gi", "persistentvolumeclaims", "20", "configmaps", "5", "count/secrets", "4")

// TestObjectsNeverExceedTheQuota lets clients with a consumer's identity create random Services, claims, ConfigMaps and
// Secrets concurrently. Each limit in the Quota must have refused some of them, and in the end no limit may be
// exceeded. Nothing is deleted, so the usage is largest at the end.
func TestObjectsNeverExceedTheQuota(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("go test ./controllers/objectquota -run TestObjectsNeverExceedTheQuota -objects-seed=%d", *seed)
	tenant := provider.Namespace(t)
	consumer := "arezzo-" + tenant // each run uses another consumer
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}, fmt.Sprintf(
		`{"metadata":{"labels":{%q:"true",%q:%q}}}`, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, consumer))
	provider.Create(t, &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: consumer},
		Spec: offloading.QuotaSpec{User: consumer, Resources: objectLimits}})
	namespace := provider.Extended(t, consumer)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, fmt.Sprintf(
		`{"metadata":{"annotations":{%q:"silver,gold"}}}`, tenantlimits.StorageClasses.Annotation()))
	peer := rbac.Peer("", consumer)
	require.NoError(t, provider.Grant(t.Context(), append(peer.Objects(), peer.RemoteNamespace(namespace))...))
	provider.StartManager(t)
	awaitHard(t, namespace, objectLimits)

	refusals := &refusalCounter{counts: map[corev1.ResourceName]int{}}
	// Objects that use two resources are created first. Otherwise objects that use only one of them could exhaust it.
	for phase, makers := range [][]objectMaker{
		{nodePort, loadBalancer, goldClaim, configMap, secret}, {clusterIP, silverClaim}, {tinyClaim},
	} {
		createAtOnce(t, consumer, namespace, uint64(phase), makers, refusals)
	}

	require.NoError(t, refusals.other)
	used := usedObjects(t, namespace)
	for name, limit := range objectLimits {
		amount := used[name]
		t.Logf("%s: %s of %s, %d times refused", name, amount.String(), limit.String(), refusals.counts[name])
		if amount.Cmp(limit) > 0 {
			t.Errorf("%s: %s exist, limited %s", name, amount.String(), limit.String())
		}
		if refusals.counts[name] == 0 {
			t.Errorf("no object was refused because of %s", name)
		}
	}
}

// objectMaker returns a new object of one kind.
type objectMaker func(random *rand.Rand, namespace, name string) client.Object

func nodePort(_ *rand.Rand, namespace, name string) client.Object {
	return service(namespace, name, corev1.ServiceTypeNodePort)
}

func clusterIP(_ *rand.Rand, namespace, name string) client.Object {
	return service(namespace, name, corev1.ServiceTypeClusterIP)
}

// loadBalancer returns a Service of type LoadBalancer. It has no node ports, because it would otherwise count against their limit.
func loadBalancer(_ *rand.Rand, namespace, name string) client.Object {
	balanced := service(namespace, name, corev1.ServiceTypeLoadBalancer)
	balanced.Spec.AllocateLoadBalancerNodePorts = ptr.To(false)
	return balanced
}

func silverClaim(random *rand.Rand, namespace, name string) client.Object {
	return claimOf("silver", namespace, name, randomSize(random))
}

func goldClaim(random *rand.Rand, namespace, name string) client.Object {
	return claimOf("gold", namespace, name, randomSize(random))
}

// tinyClaim returns a claim of one byte, which always fits into the remaining storage.
func tinyClaim(_ *rand.Rand, namespace, name string) client.Object {
	return claimOf("silver", namespace, name, "1")
}

// randomSize returns a size from one to four gibibytes.
func randomSize(random *rand.Rand) string { return strconv.FormatInt(1<<30+random.Int64N(3<<30), 10) }

func claimOf(class, namespace, name, size string) client.Object {
	claim := claim(namespace, name, size)
	claim.Spec.StorageClassName = &class
	return claim
}

func configMap(_ *rand.Rand, namespace, name string) client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func secret(_ *rand.Rand, namespace, name string) client.Object {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// refusalCounter counts the refusals by ResourceQuotas, by the exceeded resource.
type refusalCounter struct {
	mu     sync.Mutex
	counts map[corev1.ResourceName]int
	// other is an error that is not a refusal by a ResourceQuota.
	other error
}

// add counts the resources that are exceeded according to an error of the API server.
func (r *refusalCounter) add(err error) {
	_, text, isRefusal := strings.Cut(err.Error(), "exceeded quota: "+wire.ConsumerQuota+", requested: ")
	requested, _, _ := strings.Cut(text, ", used: ")
	r.mu.Lock()
	defer r.mu.Unlock()
	if !isRefusal {
		if !apierrors.IsConflict(err) { // after a conflict, the API server gave up recording the usage
			r.other = err
		}
		return
	}
	for _, one := range strings.Split(requested, ",") {
		name, _, _ := strings.Cut(one, "=")
		r.counts[corev1.ResourceName(name)]++
	}
}

// createAtOnce lets several clients of a consumer concurrently create eight objects of each kind. Each client creates
// them in another order.
func createAtOnce(t *testing.T, consumer, namespace string, phase uint64, makers []objectMaker, refusals *refusalCounter) {
	t.Helper()
	const each = 8
	var clients sync.WaitGroup
	for i := range uint64(objectClients) {
		config, err := provider.ConfigFor(consumer, consumer)
		require.NoError(t, err)
		config.QPS = -1
		own, err := client.New(config, client.Options{Scheme: provider.Client.Scheme()})
		require.NoError(t, err)
		random := rand.New(rand.NewPCG(*seed, phase<<8+i))
		clients.Go(func() {
			for turn, which := range random.Perm(each * len(makers)) {
				object := makers[which%len(makers)](random, namespace, fmt.Sprintf("o-%d-%d-%d", phase, i, turn))
				if err := own.Create(t.Context(), object); err != nil {
					refusals.add(err)
				}
			}
		})
	}
	clients.Wait()
}

// usedObjects returns how much of each limited resource the objects in a namespace use.
func usedObjects(t *testing.T, namespace string) corev1.ResourceList {
	t.Helper()
	used := corev1.ResourceList{}
	count := func(name corev1.ResourceName, amount resource.Quantity) {
		sum := used[name]
		sum.Add(amount)
		used[name] = sum
	}
	number := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	services, claims := &corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{}
	configMaps, secrets := &corev1.ConfigMapList{}, &corev1.SecretList{}
	for _, list := range []client.ObjectList{services, claims, configMaps, secrets} {
		require.NoError(t, provider.Client.List(t.Context(), list, client.InNamespace(namespace)))
	}
	count("services", number(len(services.Items)))
	for i := range services.Items {
		spec := &services.Items[i].Spec
		if spec.Type == corev1.ServiceTypeLoadBalancer {
			count("services.loadbalancers", number(1))
		}
		for _, port := range spec.Ports {
			if port.NodePort != 0 {
				count("services.nodeports", number(1))
			}
		}
	}
	count("persistentvolumeclaims", number(len(claims.Items)))
	for i := range claims.Items {
		size := claims.Items[i].Spec.Resources.Requests[corev1.ResourceStorage]
		count("requests.storage", size)
		if ptr.Deref(claims.Items[i].Spec.StorageClassName, "") == "gold" {
			count(goldStorage, size)
		}
	}
	count("configmaps", number(len(configMaps.Items)))
	count("count/secrets", number(len(secrets.Items)))
	return used
}
