// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/vk/kubeletapi"
)

// clientAuthority returns the CA that signs the client certificates of clients of the kubelet API.
func (a *active) clientAuthority(ctx context.Context) (dynamiccertificates.CAContentProvider, error) {
	if a.ClientCA != "" {
		file, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", a.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("--client-ca-file: %w", err)
		}
		go file.Run(ctx, 1)
		return file, nil
	}
	published, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca",
		metav1.NamespaceSystem, "extension-apiserver-authentication", "client-ca-file", a.client)
	if err != nil {
		return nil, fmt.Errorf("watching the client CA of this cluster (set --client-ca-file if it publishes none), %w", err)
	}
	go published.Run(ctx, 1)
	return published, nil
}

// servingCertificate returns the serving certificate of the kubelet API.
func (a *active) servingCertificate(ctx context.Context) (kubeletapi.CertificateSource, error) {
	if a.TlsCertFile != "" {
		source, err := kubeletapi.CertificateFromFiles(ctx, a.TlsCertFile, a.TlsKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
		}
		return reportErrors(source, a.warnCertificate(ctx, "logs, exec, attach and port-forward do not work")), nil
	}
	ip := net.ParseIP(a.NodeIP)
	signer, signed := kubeletapi.SignerOf(a.CertificateType)
	selfSigned := kubeletapi.SelfSignedCertificate(a.NodeName, ip, clock.RealClock{})
	if !signed {
		return selfSigned, nil
	}
	dir := cmp.Or(a.CertificateDir, defaultCertificateDir(a.local, a.NodeName))
	source, err := kubeletapi.CertificateFromSigner(ctx, a.client, signer, a.NodeName, dir, ip)
	if err != nil {
		return nil, fmt.Errorf("--certificate-type=%s --cert-dir=%s: %w", a.CertificateType, dir, err)
	}
	warn := a.warnCertificate(ctx, "logs, exec, attach and port-forward do not work if the API server verifies kubelets")
	// A self-signed certificate is served until there is a signed one, because most API servers do not verify the
	// certificates of kubelets.
	return kubeletapi.Either(reportErrors(source, warn), selfSigned), nil
}

// defaultCertificateDir returns the folder with the serving certificates of a node. Each cluster, identified by its
// address and CA, has its own folder, because nodes of two clusters may have the same name. In a common folder, a
// certificate from the signer of the other cluster would be served until it expires.
func defaultCertificateDir(home *rest.Config, node string) string {
	authority := home.CAData
	if len(authority) == 0 {
		// The error is ignored, because the file may be missing if the cluster uses a CA that the system trusts.
		authority, _ = os.ReadFile(home.CAFile)
	}
	cluster := sha256.Sum256(append([]byte(home.Host+"\n"), authority...))
	return filepath.Join(os.TempDir(), "certs", fmt.Sprintf("%s-%x", node, cluster[:8]))
}

// noCertificateReason is the reason of Events about handshakes that fail because there is no serving certificate.
const noCertificateReason = "NoServingCertificate"

func (a *active) warnCertificate(ctx context.Context, consequence string) func(error) {
	return func(err error) {
		log.FromContext(ctx).Error(err, "No serving certificate for a logs, exec, attach or port-forward request")
		a.report.reportWarning(noCertificateReason, fmt.Sprintf("%s: %v", consequence, err))
	}
}

// reportErrors returns source, wrapped so that its errors are reported, because callers only notice a failed handshake.
// report is called for the first error and whenever the error changes.
func reportErrors(source kubeletapi.CertificateSource, report func(error)) kubeletapi.CertificateSource {
	var mu sync.Mutex
	said := ""
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, err := source(hello)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			report(err)
		}
		return certificate, err
	}
}
