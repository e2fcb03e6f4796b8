// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package servingcertificate_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

// consumer is a cluster with a signer for approved requests and without a scheduler.
var consumer = controllertest.Cluster{ID: "consumer", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer)) }

const (
	tenant        = "peer-milan"
	address       = "10.1.2.3"
	ofWorker      = "10.1.9.1" // this address is also in the status of a virtual kubelet's pod
	onHostNetwork = "10.1.9.2" // address of a virtual kubelet's pod with hostNetwork
)

// ask requests a certificate as a service account.
func ask(t *testing.T, account string, change func(*x509.CertificateRequest, *certificatesv1.CertificateSigningRequestSpec)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:milan", Organization: []string{"system:nodes"}}, IPAddresses: []net.IP{net.ParseIP(address)}}
	spec := certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeletServingSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}
	if change != nil {
		change(template, &spec)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	require.NoError(t, err)
	spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	config, err := consumer.ServiceAccountConfig(t.Context(), tenant, account)
	require.NoError(t, err)
	csr, err := kubernetes.NewForConfigOrDie(config).CertificatesV1().CertificateSigningRequests().Create(t.Context(),
		&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	return csr
}

// virtualKubelet creates the virtual nodes with their service accounts, and the pods of their virtual kubelets.
func virtualKubelet(t *testing.T) {
	t.Helper()
	consumer.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "milan"}}})
	for _, account := range []string{"milan", "other", "worker"} {
		consumer.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: account}})
	}
	for _, name := range []string{"milan", "worker"} { // worker is also the name of a real node
		consumer.Create(t, &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: offloading.VirtualNodeSpec{ClusterID: "milan"}})
	}
	real := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	consumer.Create(t, real)
	consumer.PatchStatus(t, real, `{"status":{"addresses":[{"type":"InternalIP","address":"`+ofWorker+`"}]}}`)
	for name, pod := range map[string]struct {
		account, node, ip string
		hostNetwork       bool
	}{
		"vk-milan": {"milan", "milan", address, false}, "vk-other": {"other", "milan", "10.1.2.4", false}, "vk-worker": {"worker", "worker", address, false},
		"vk-on-host": {"milan", "milan", onHostNetwork, true}, "vk-forged": {"milan", "milan", ofWorker, false},
	} {
		created := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{wire.ComponentLabel: wire.VirtualKubeletComponent, wire.VirtualNodeLabel: pod.node}},
			Spec:       corev1.PodSpec{ServiceAccountName: pod.account, HostNetwork: pod.hostNetwork, Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/vk"}}},
		}
		consumer.Create(t, created)
		consumer.PatchStatus(t, created, `{"status":{"podIP":"`+pod.ip+`","podIPs":[{"ip":"`+pod.ip+`"}]}}`)
	}
	consumer.Create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "ask"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}}}})
	consumer.Create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ask"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ask"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"}}})
}

func TestServingCertificates(t *testing.T) {
	virtualKubelet(t)
	require.NoError(t, consumer.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.ServingCertificates()...))
	type spec = certificatesv1.CertificateSigningRequestSpec
	refused := map[string]struct {
		account string
		change  func(*x509.CertificateRequest, *spec)
		event   string // text of the Event about the request, or empty if no Event is written
	}{
		"another node": {"milan", func(r *x509.CertificateRequest, _ *spec) { r.Subject.CommonName = "system:node:turin" }, "not that of node milan"},
		"an administrator": {"milan", func(r *x509.CertificateRequest, _ *spec) {
			r.Subject.Organization = append(r.Subject.Organization, "admins")
		}, "not that of node milan"},
		"a name":                  {"milan", func(r *x509.CertificateRequest, _ *spec) { r.DNSNames = []string{"kubernetes.default"} }, "it requests DNS names"},
		"a client":                {"milan", func(_ *x509.CertificateRequest, s *spec) { s.Usages = append(s.Usages, certificatesv1.UsageClientAuth) }, `usage "client auth"`},
		"no address":              {"milan", func(r *x509.CertificateRequest, _ *spec) { r.IPAddresses, r.DNSNames = nil, nil }, "it requests no IP address"},
		"the name of a real node": {"worker", func(r *x509.CertificateRequest, _ *spec) { r.Subject.CommonName = "system:node:worker" }, "node worker is not a virtual node"},
		"the address of a real node": {"milan", func(r *x509.CertificateRequest, _ *spec) {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP(ofWorker))
		}, "it requests address 10.1.9.1, which node worker has"},
		"another account": {"other", nil, ""},
		"of another signer": {"milan", func(_ *x509.CertificateRequest, s *spec) {
			s.SignerName = certificatesv1.KubeAPIServerClientSignerName
			s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
		}, ""},
	}
	var asked []*certificatesv1.CertificateSigningRequest
	for _, r := range refused {
		asked = append(asked, ask(t, r.account, r.change))
	}
	// A pod of the virtual kubelet may get these addresses later, so the requests must be neither approved nor
	// reported.
	for _, ip := range []string{"10.1.2.4", onHostNetwork} {
		asked = append(asked, ask(t, "milan", func(r *x509.CertificateRequest, _ *spec) { r.IPAddresses = []net.IP{net.ParseIP(ip)} }))
	}

	consumer.StartManager(t, func(o *controllers.Options) { o.ServingCertificates.Enabled = true })
	good := ask(t, "milan", nil)
	controllertest.Eventually(t, "the certificate", func() error {
		if err := consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(good), good); err != nil {
			return err
		}
		if len(good.Status.Certificate) == 0 {
			return errors.New("it is not signed")
		}
		return nil
	})
	events := &eventsv1.EventList{}
	controllertest.Eventually(t, "the Events", func() error {
		if err := consumer.Client.List(t.Context(), events, client.InNamespace(tenant)); err != nil {
			return err
		}
		var notes strings.Builder
		for i := range events.Items {
			notes.WriteString(events.Items[i].Note + "\n")
		}
		for _, r := range refused {
			if !strings.Contains(notes.String(), r.event) {
				return errors.New("no " + r.event + " in " + notes.String())
			}
		}
		return nil
	})
	for _, csr := range asked {
		require.NoError(t, consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(csr), csr))
		assert.Empty(t, csr.Status.Conditions, "%s", csr.Spec.Request)
	}
}
