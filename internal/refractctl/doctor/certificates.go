// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// checkWebhookAuthority checks the webhook CA, both in its Secret and in each webhook.
func (p *Examination) checkWebhookAuthority(ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration, installed *release.Installation) error {
	secret := &corev1.Secret{}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: installed.Namespace, Name: rbac.WebhookName}, secret)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	for i := range configuration.Webhooks {
		p.checkAuthority(&configuration.Webhooks[i], secret.Data["ca.crt"], installed)
	}
	return nil
}

// checkAuthority checks that the CA bundle of a webhook contains signs, the CA certificate that signs the webhook's
// certificate. signs is empty if this CA certificate is not known.
func (p *Examination) checkAuthority(webhook *admissionregistrationv1.MutatingWebhook, signs []byte, installed *release.Installation) {
	subject, bundle := "webhook "+webhook.Name, webhook.ClientConfig.CABundle
	restart := fmt.Sprintf("restart the controller manager, which renews it: kubectl -n %s rollout restart deployment %s-controller-manager", installed.Namespace, installed.Name)
	certificates, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		p.addFinding(subject, Error, "clientConfig.caBundle cannot be read, %v: %s", err, restart)
		return
	}
	ends := earliestExpiry(certificates)
	switch {
	case !p.Now.Before(ends):
		p.addFinding(subject, Error, "the CA in clientConfig.caBundle expired on %s: %s", formatDay(ends), restart)
	case len(signs) > 0 && !bytes.Equal(signs, bundle):
		p.addFinding(subject, Warning, "clientConfig.caBundle is not ca.crt of Secret %s/%s, which signs the certificates of the webhook, so the API server may refuse them: %s", installed.Namespace, rbac.WebhookName, restart)
	case ends.Sub(p.Now) < expiryWarningPeriod:
		p.addFinding(subject, Warning, "the CA in clientConfig.caBundle expires on %s, and should have been renewed: %s", formatDay(ends), restart)
	}
}

// expiryWarningPeriod is the remaining lifetime below which a certificate should have been renewed. The webhook CA is
// renewed when a third of its lifetime is left. Certificates of virtual kubelets are renewed when a fifth is left, and
// may be valid for only one day.
const expiryWarningPeriod = 2 * time.Hour

func earliestExpiry(certificates []*x509.Certificate) time.Time {
	return slices.MinFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

func formatDay(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// servingCertificate checks the certificate with which a virtual kubelet serves logs and exec to the API server.
func (p *Examination) servingCertificate(ctx context.Context, vn *offloading.VirtualNode, node *corev1.Node) error {
	requests := &certificatesv1.CertificateSigningRequestList{}
	err := p.Client.List(ctx, requests)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	if len(requests.Items) > 0 {
		p.certificateRequest(vn, latestFor(vn, requests.Items))
	}
	if shown := shownBy(ctx, node); shown != nil {
		p.checkCertificate(vn, shown)
	}
	if _, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); p.Cluster == nil || ready == nil || ready.Status != corev1.ConditionTrue {
		return nil
	}
	// The request takes the same path as requests for logs and exec, so it also shows whether the API server trusts the
	// certificate.
	answer, err := p.Cluster.Clientset.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).SubResource("proxy").Suffix("healthz").Do(ctx).Raw()
	p.checkConnection(vn, string(answer), err)
	return nil
}

// latestFor returns the latest request for a serving certificate of the virtual kubelet, or nil if there is none.
func latestFor(vn *offloading.VirtualNode, requests []certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	var latest *certificatesv1.CertificateSigningRequest
	user := "system:serviceaccount:" + vn.Namespace + ":" + vn.Name
	for i := range requests {
		request := &requests[i]
		if request.Spec.Username == user && slices.Contains(request.Spec.Usages, certificatesv1.UsageServerAuth) &&
			(latest == nil || request.CreationTimestamp.After(latest.CreationTimestamp.Time)) {
			latest = request
		}
	}
	return latest
}

// signingGrace is how long a signer may take.
const signingGrace = time.Minute

// certificateRequest checks the request for a serving certificate. If request is nil, this is not a problem, because
// Kubernetes deletes requests an hour after they were signed.
func (p *Examination) certificateRequest(vn *offloading.VirtualNode, request *certificatesv1.CertificateSigningRequest) {
	if request == nil {
		return
	}
	subject, approved := "CertificateSigningRequest "+request.Name, false
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			p.addFinding(subject, Warning, "the serving certificate of virtual node %s was not signed (%s, %s): logs and exec fail where the API server verifies kubelets; fix that and delete the request, another one is created", vn.Name, cmp.Or(condition.Reason, string(condition.Type)), condition.Message)
			return
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	switch waited := p.Now.Sub(request.CreationTimestamp.Time); {
	case len(request.Status.Certificate) > 0:
		if certificates, err := cert.ParseCertsPEM(request.Status.Certificate); err == nil {
			p.checkCertificate(vn, certificates[0])
		}
	case waited < signingGrace:
	case !approved:
		p.addFinding(subject, Warning, "the serving certificate of virtual node %s is not approved: logs and exec fail where the API server verifies kubelets; approve it with kubectl certificate approve %s, the Events of VirtualNode %s/%s say why the controller manager has not", vn.Name, request.Name, vn.Namespace, vn.Name)
	default:
		p.addFinding(subject, Warning, "the serving certificate of virtual node %s is approved, and not signed: check whether the signer %s runs in this cluster, or set virtualKubelet.certificateType", vn.Name, request.Spec.SignerName)
	}
}

// checkCertificate checks the certificate that a virtual kubelet serves.
func (p *Examination) checkCertificate(vn *offloading.VirtualNode, shown *x509.Certificate) {
	restart := fmt.Sprintf("restart its virtual kubelet to request another one: kubectl -n %s rollout restart deployment vk-%s", vn.Namespace, vn.Name)
	switch left := shown.NotAfter.Sub(p.Now); {
	case left <= 0:
		p.addFinding("node "+vn.Name, Warning, "its serving certificate expired on %s, so logs and exec fail where the API server verifies kubelets: %s", formatDay(shown.NotAfter), restart)
	case left < expiryWarningPeriod:
		p.addFinding("node "+vn.Name, Warning, "its serving certificate expires at %s, and should have been renewed: %s", shown.NotAfter.UTC().Format(time.RFC3339), restart)
	}
}

// dialTimeout is short, because users are often outside the network of the cluster.
const dialTimeout = time.Second

// shownBy connects to the virtual kubelet of a node and returns its serving certificate. It returns nil if this
// computer cannot reach the virtual kubelet.
func shownBy(ctx context.Context, node *corev1.Node) *x509.Certificate {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	for _, address := range node.Status.Addresses {
		if address.Type != corev1.NodeInternalIP || port == 0 {
			continue
		}
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is looked at, not trusted
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address.Address, strconv.Itoa(int(port))))
		if err != nil {
			return nil
		}
		defer connection.Close()
		if shown := connection.(*tls.Conn).ConnectionState().PeerCertificates; len(shown) > 0 {
			return shown[0]
		}
	}
	return nil
}

// checkConnection adds a finding about whether the API server reaches a virtual kubelet, unless err does not show this.
// If err is not nil, answer contains the Status object of the error.
func (p *Examination) checkConnection(vn *offloading.VirtualNode, answer string, err error) {
	subject, text, status := "node "+vn.Name, fmt.Sprint(err), &metav1.Status{}
	if json.Unmarshal([]byte(answer), status) == nil && status.Message != "" {
		text = status.Message
	}
	switch {
	case err == nil:
		p.addFinding(subject, OK, "the API server reaches its virtual kubelet")
	case !apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err):
		// Three causes are possible: the virtual kubelet has responded, the user has no permission, or the API server
		// does not proxy to such addresses.
	case strings.Contains(text, "x509:") || strings.Contains(text, "tls:"):
		p.addFinding(subject, Warning, "logs and exec fail, because the API server does not trust its serving certificate (%s): see kubectl get csr, and the Events of VirtualNode %s/%s", text, vn.Namespace, vn.Name)
	default:
		p.addFinding(subject, Warning, "logs and exec fail, because the API server does not reach its virtual kubelet (%s): let control plane nodes connect to the pods of Deployment %s/vk-%s on the port kubelet", text, vn.Namespace, vn.Name)
	}
}
