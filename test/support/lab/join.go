// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/crds"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/tenantlimits"
	"github.com/refract-project/refract/test/support/testenv/policies"
)

// kubeconfigSecret is the name of the Secret with the kubeconfig for the provider. It is in the tenant namespace on the
// consumer.
const kubeconfigSecret = "kubeconfig-resourceslice-cloud"

// join creates the objects of a peering: CRDs, tenant namespaces, roles, admission policies, an identity of the
// consumer on the provider, and a VirtualNode.
func (l *Lab) join(ctx context.Context) error {
	for _, side := range []*Side{l.Consumer, l.Provider} {
		if err := installCRDs(side); err != nil {
			return err
		}
	}
	if err := l.createNamespaces(ctx); err != nil {
		return err
	}
	if err := l.createAccounts(ctx); err != nil {
		return err
	}
	if err := l.grant(ctx); err != nil {
		return err
	}
	for _, side := range []*Side{l.Consumer, l.Provider} {
		if err := policies.Install(ctx, side.Config(), policies.Options{Namespace: SystemNamespace, ClusterID: side.ID}); err != nil {
			return fmt.Errorf("installing the admission policies in %s, %w", side.ID, err)
		}
	}
	webhook := address(l.ports.consumerWebhook)
	if l.Webhook != nil {
		webhook = l.Webhook.Address()
	}
	for side, at := range map[*Side]string{l.Consumer: webhook, l.Provider: address(l.ports.providerWebhook)} {
		if err := side.installWebhook(ctx, at, l.opts.Quotas && side == l.Provider); err != nil {
			return err
		}
	}
	if err := l.storeIdentity(ctx); err != nil {
		return err
	}
	return l.createVirtualNode(ctx)
}

func installCRDs(side *Side) error {
	dir, err := os.MkdirTemp("", "refract-crds-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(dir, crds.FS()); err != nil {
		return fmt.Errorf("unpacking the CRDs, %w", err)
	}
	if _, err := envtest.InstallCRDs(side.Config(), envtest.CRDInstallOptions{Paths: []string{dir}}); err != nil {
		return fmt.Errorf("installing the CRDs in %s, %w", side.ID, err)
	}
	return nil
}

// RemoteStorageClass is the provider's storage class that the consumer may use.
const RemoteStorageClass = "local"

// providerLimits are the limits of the consumer. They are generous, because the provider has no hosts and classes to
// protect, and because some offloaded applications have annotations for the load balancers of their own cluster.
var providerLimits = map[string]string{
	tenantlimits.IngressHosts.Annotation():   "*",
	tenantlimits.IngressClasses.Annotation(): "*",
	tenantlimits.StorageClasses.Annotation(): RemoteStorageClass,
	tenantlimits.MaxNamespaces.Annotation():  "1000", // benchmarks need more namespaces than the default limit
	"tenants.refract.io/allowed-annotations": "cloud.google.com/*",
}

func (l *Lab) createNamespaces(ctx context.Context) error {
	for side, tenant := range map[*Side]string{l.Consumer: TenantNamespace, l.Provider: ProviderTenantNamespace} {
		other := ProviderID
		if side == l.Provider {
			other = ConsumerID
		}
		for name, labels := range map[string]map[string]string{
			SystemNamespace: nil,
			tenant:          {wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: other},
		} {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
			if name == ProviderTenantNamespace && side == l.Provider {
				namespace.Annotations = providerLimits
			}
			if _, err := side.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating namespace %s in %s, %w", name, side.ID, err)
			}
		}
	}
	return nil
}

func (l *Lab) createAccounts(ctx context.Context) error {
	for _, account := range []struct {
		side            *Side
		namespace, name string
	}{
		{l.Consumer, TenantNamespace, kubeletAccount},
		{l.Consumer, SystemNamespace, managerAccount},
		{l.Provider, SystemNamespace, managerAccount},
	} {
		object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account.name}}
		if _, err := account.side.Client.CoreV1().ServiceAccounts(account.namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating service account %s/%s in %s, %w", account.namespace, account.name, account.side.ID, err)
		}
	}
	return nil
}

// grant gives each of Refract's processes exactly the roles in the chart.
func (l *Lab) grant(ctx context.Context) error {
	kubelet := rbac.Kubelet{NodeName: NodeName, TenantNamespace: TenantNamespace, KubeconfigSecret: kubeconfigSecret, Subject: rbac.ServiceAccount(TenantNamespace, kubeletAccount), Plugins: l.opts.DeclaredPlugins}
	manager := rbac.Manager{Namespace: SystemNamespace, Subject: rbac.ServiceAccount(SystemNamespace, managerAccount)}
	objects := slices.Concat(kubelet.Objects(), manager.Objects(), manager.VirtualNodes(), manager.Provider(TenantNamespace, kubeconfigSecret))
	if l.opts.DeclaredPlugins {
		objects = append(objects, manager.Plugins()...)
	}
	if err := rbac.Install(ctx, l.Consumer.Client, objects...); err != nil {
		return err
	}
	consumer := rbac.Peer("", ConsumerID)
	objects = append(slices.Concat(consumer.Objects(), manager.Objects(), manager.GrantedKinds()), consumer.TenantNamespace(ProviderTenantNamespace))
	return rbac.Install(ctx, l.Provider.Client, objects...)
}

// storeIdentity stores the consumer's kubeconfig for the provider in the Secret from which the virtual kubelet and the
// controller manager read it.
func (l *Lab) storeIdentity(ctx context.Context) error {
	kubeconfig, err := l.NewIdentity()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: kubeconfigSecret, Namespace: TenantNamespace,
			Labels:      map[string]string{wire.RemoteClusterIDLabel: ProviderID},
			Annotations: map[string]string{wire.RemoteTenantNamespaceAnnotation: ProviderTenantNamespace},
		},
		Data: map[string][]byte{wire.KubeconfigSecretKey: kubeconfig},
	}
	if _, err := l.Consumer.Client.CoreV1().Secrets(TenantNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("storing the provider's kubeconfig, %w", err)
	}
	return nil
}

// NewIdentity returns a kubeconfig for the provider with a new certificate, as after a renewal.
func (l *Lab) NewIdentity() ([]byte, error) {
	path := filepath.Join(l.dir, "remote.conf")
	if err := l.Provider.KubeconfigFor(path, RemoteUser, ConsumerID); err != nil {
		return nil, err
	}
	if err := l.Provider.direct(path); err != nil {
		return nil, err
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil || l.Link == nil {
		return kubeconfig, err
	}
	return bytes.ReplaceAll(kubeconfig, []byte(l.Provider.address()), []byte(l.Link.Address())), nil
}

// ReplaceIdentity replaces the stored kubeconfig for the provider.
func (l *Lab) ReplaceIdentity(ctx context.Context, kubeconfig []byte) error {
	patch, err := json.Marshal(corev1.Secret{Data: map[string][]byte{wire.KubeconfigSecretKey: kubeconfig}})
	if err != nil {
		return err
	}
	_, err = l.Consumer.Client.CoreV1().Secrets(TenantNamespace).Patch(ctx, kubeconfigSecret, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (l *Lab) createVirtualNode(ctx context.Context) error {
	capacity := corev1.ResourceList{}
	for name, quantity := range l.opts.Capacity {
		parsed, err := resource.ParseQuantity(quantity)
		if err != nil {
			return fmt.Errorf("parsing the virtual node's %s, %w", name, err)
		}
		capacity[corev1.ResourceName(name)] = parsed
	}
	yes := true
	return l.Consumer.create(ctx, offloadingv1beta1.VirtualNodeGVR, &offloadingv1beta1.VirtualNode{
		TypeMeta: metav1.TypeMeta{APIVersion: offloadingv1beta1.GroupVersion.String(), Kind: offloadingv1beta1.VirtualNodeKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: NodeName, Namespace: TenantNamespace, Labels: map[string]string{wire.RemoteClusterIDLabel: ProviderID},
		},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID: corev1beta1.ClusterID(ProviderID), CreateNode: &yes, DisableNetworkCheck: &yes,
			KubeconfigSecretRef: &corev1.LocalObjectReference{Name: kubeconfigSecret},
			ResourceQuota:       corev1.ResourceQuotaSpec{Hard: capacity},
		},
	})
}

// create creates an object of any type as the administrator.
func (s *Side) create(ctx context.Context, gvr schema.GroupVersionResource, object metav1.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("converting %s %s, %w", gvr.Resource, object.GetName(), err)
	}
	_, err = s.Dynamic.Resource(gvr).Namespace(object.GetNamespace()).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating %s %s/%s in %s, %w", gvr.Resource, object.GetNamespace(), object.GetName(), s.ID, err)
	}
	return nil
}
