// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package peeringtest provides clusters for tests of the commands that join clusters. Their API servers are stubs
// (package apistub), and this package does the work of their controllers: it makes virtual nodes ready, grants
// ResourceSlices, and signs certificates.
package peeringtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/scheme"
	"github.com/refract-project/refract/test/support/apistub"
)

// Side is one of the two clusters, accessed with the permissions of its administrator.
type Side struct {
	*apistub.Server
	// ID is the ID of the cluster.
	ID        string
	Config    *rest.Config
	Client    client.Client
	Clientset kubernetes.Interface
}

// RolePrefix is the prefix of the names of an installation's roles.
const RolePrefix = "liqo"

// newScheme returns the scheme of refractctl, made once.
var newScheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	log.SetLogger(logr.Discard())
	return scheme.New()
})

// New starts a cluster without an installation.
func New(tb testing.TB, id string) *Side {
	tb.Helper()
	kinds, err := newScheme()
	require.NoError(tb, err)
	server := apistub.New(tb, kinds)
	// The UID of this namespace is the UID of the cluster.
	server.Put(tb, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID("uid-of-" + id)}})
	return (&Side{Server: server, ID: id}).As(tb, server.Config())
}

// Install creates the objects of a Refract installation and one node in the cluster.
func (s *Side) Install(tb testing.TB, podCIDR string) *Side {
	tb.Helper()
	labels := map[string]string{"app.kubernetes.io/component": "controller-manager", "app.kubernetes.io/name": "controller-manager", "app.kubernetes.io/instance": "refract",
		"app.kubernetes.io/version": "0.2.0", "helm.sh/chart": "refract-0.2.0"}
	arguments := []string{"--cluster-id=" + s.ID, "--remote-cluster-role=liqo-virtual-kubelet-remote", "--vk-options-default-template=liqo/default",
		"--enable-resource-enforcement=true", "--enable-scheduling-webhook=true"}
	s.Put(tb,
		&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "liqo"}},
		&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: corev1.NodeSpec{PodCIDR: podCIDR, PodCIDRs: []string{podCIDR}}},
		&appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "refract-controller-manager", Labels: labels},
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				ServiceAccountName: "refract-controller-manager", NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
				Containers: []corev1.Container{{Name: "controller-manager", Image: "refract/controller-manager:0.2.0", Args: arguments}}}}}},
	)
	for _, role := range []rbac.Role{rbac.VirtualKubeletLocal(), rbac.VirtualKubeletExtended(), rbac.VirtualKubeletRemote(), rbac.VirtualKubeletRemoteClusterwide(), rbac.RemoteControlPlane()} {
		s.PutRole(tb, role)
	}
	return s
}

// PutRole creates a ClusterRole of the chart in the cluster.
func (s *Side) PutRole(tb testing.TB, role rbac.Role) {
	tb.Helper()
	s.Put(tb, &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: role.Named(RolePrefix)}})
}

// As returns the same cluster, accessed as another user.
func (s *Side) As(tb testing.TB, config *rest.Config) *Side {
	tb.Helper()
	kinds, err := newScheme()
	require.NoError(tb, err)
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes, config.QPS = runtime.ContentTypeJSON, runtime.ContentTypeJSON, -1
	c, err := client.New(config, client.Options{Scheme: kinds})
	require.NoError(tb, err)
	clientset, err := kubernetes.NewForConfig(config)
	require.NoError(tb, err)
	return &Side{Server: s.Server, ID: s.ID, Config: config, Client: c, Clientset: clientset}
}

// Play does the work of the controllers: each VirtualNode gets a ready Node, each tenant namespace gets a
// ForeignCluster, ResourceSlices are granted as requested, and approved CertificateSigningRequests are signed.
func (s *Side) Play(tb testing.TB) *Side {
	tb.Helper()
	authority := newAuthority(tb)
	s.AfterWrite(func(change apistub.Change) {
		object := change.Object.DeepCopy()
		name, peer := object.GetName(), object.GetLabels()[wire.RemoteClusterIDLabel]
		switch kind := object.GetKind(); {
		case kind == offloading.VirtualNodeKind && change.Verb == "delete":
			s.Remove(corev1.SchemeGroupVersion.WithKind("Node"), "", name)
			// The stub has no garbage collector, so the VirtualNode's objects are deleted here.
			s.Remove(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), object.GetNamespace(), "vk-"+name)
		case change.Verb == "delete":
		case kind == offloading.VirtualNodeKind:
			s.Put(tb, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType}},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
		case kind == "Namespace" && peer != "":
			s.Put(tb, &core.ForeignCluster{TypeMeta: metav1.TypeMeta{APIVersion: core.GroupVersion.String(), Kind: "ForeignCluster"}, ObjectMeta: metav1.ObjectMeta{Name: peer}, Spec: core.ForeignClusterSpec{ClusterID: core.ClusterID(peer)}})
		case kind == "ResourceSlice":
			requested, _, _ := unstructured.NestedMap(object.Object, "spec", "resources")
			object.Object["status"] = map[string]any{"resources": requested, "conditions": []any{map[string]any{"type": string(auth.ResourcesCondition), "status": string(auth.ResourceSliceAccepted)}}}
			s.Put(tb, object)
		case kind == "CertificateSigningRequest":
			csr := &certificatesv1.CertificateSigningRequest{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, csr) != nil || len(csr.Status.Conditions) == 0 || len(csr.Status.Certificate) > 0 {
				return
			}
			_ = unstructured.SetNestedField(object.Object, base64.StdEncoding.EncodeToString(authority.sign(tb, csr.Spec.Request)), "status", "certificate")
			s.Put(tb, object)
		}
	})
	return s
}

// authority is a certificate authority that signs client certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

const (
	// clockSkew is how far the clocks of two clusters may differ. With a smaller value, certificates might not be
	// valid yet.
	clockSkew = time.Minute
	// authorityLifetime is longer than any test.
	authorityLifetime = time.Hour
)

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-clockSkew), NotAfter: time.Now().Add(authorityLifetime), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(tb, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(tb, err)
	return &authority{certificate, key}
}

// sign returns a certificate for a certificate request. The certificate is valid for a year.
func (a *authority) sign(tb testing.TB, request []byte) []byte {
	tb.Helper()
	block, _ := pem.Decode(request)
	require.NotNil(tb, block)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	require.NoError(tb, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: parsed.Subject, NotBefore: time.Now().Add(-clockSkew), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, parsed.PublicKey, a.key)
	require.NoError(tb, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
