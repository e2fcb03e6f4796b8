// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/refract-project/refract/test/support/testenv/internal/pki"
)

// components lists the names of the processes of a control plane, and of kwok.
var components = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

// etcd and the API server communicate over a Unix socket in the state folder. Its name is relative, so the length of
// the folder's path is not limited. A socket needs no port and no TLS.
const (
	etcdSocket     = "unix://etcd.sock"
	etcdPeerSocket = "unix://etcd-peer.sock"
)

// clientLimits are flags that prevent client-side throttling in the controller manager and the scheduler.
var clientLimits = []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}

// writeState writes the certificates, keys and kubeconfigs of the components, the administrator's kubeconfig, and the
// audit policy.
func (c *Cluster) writeState() error {
	for _, sub := range []string{"log", "pki"} {
		if err := os.MkdirAll(filepath.Join(c.dir, sub), 0o700); err != nil {
			return err
		}
	}
	if err := c.writeCertificates(); err != nil {
		return err
	}
	for _, name := range []string{"system:kube-controller-manager", "system:kube-scheduler"} {
		if err := c.componentKubeconfig(name+".conf", name); err != nil {
			return err
		}
	}
	if err := c.writeAuditPolicy(); err != nil {
		return err
	}
	return c.KubeconfigFor(c.Kubeconfig(), "kubernetes-admin", "system:masters")
}

func (c *Cluster) writeCertificates() error {
	server := pki.Subject{
		Name: "kube-apiserver",
		IPs:  []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(c.host()), firstAddress(c.opts.ServiceCIDR)},
		DNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
	}
	for name, issue := range map[string]struct {
		by *pki.Authority
		to pki.Subject
	}{
		"apiserver":          {c.ca, server},
		"kubelet-client":     {c.ca, pki.Subject{Name: "kube-apiserver-kubelet-client", Orgs: []string{"system:masters"}}},
		"front-proxy-client": {c.frontProxyCA, pki.Subject{Name: "front-proxy-client"}},
	} {
		cert, key, err := issue.by.Issue(issue.to)
		if err != nil {
			return err
		}
		if err := c.writePair(name, cert, key); err != nil {
			return err
		}
	}
	if err := c.writePair("ca", c.ca.CertPEM, c.ca.KeyPEM); err != nil {
		return err
	}
	if err := c.writePair("front-proxy-ca", c.frontProxyCA.CertPEM, c.frontProxyCA.KeyPEM); err != nil {
		return err
	}
	return c.writeServiceAccountKey()
}

func (c *Cluster) writeServiceAccountKey() error {
	key, keyPEM, err := pki.NewKey()
	if err != nil {
		return err
	}
	public, err := pki.EncodePublic(key)
	if err != nil {
		return err
	}
	return c.writePair("service-account", public, keyPEM)
}

func (c *Cluster) writePair(name string, cert, key []byte) error {
	if err := os.WriteFile(c.crt(name), cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.key(name), key, 0o600)
}

func (c *Cluster) etcdArgs() []string {
	return []string{
		"--name=etcd", "--data-dir=etcd", "--log-level=warn",
		"--listen-client-urls=" + etcdSocket, "--advertise-client-urls=" + etcdSocket,
		"--listen-peer-urls=" + etcdPeerSocket, "--initial-advertise-peer-urls=" + etcdPeerSocket, "--initial-cluster=etcd=" + etcdPeerSocket,
		// The data does not have to survive a power failure.
		"--unsafe-no-fsync",
	}
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--bind-address=" + c.host(), "--advertise-address=" + c.host(), "--secure-port=" + c.apiServerPort(),
		"--etcd-servers=" + etcdSocket,
		"--service-cluster-ip-range=" + c.opts.ServiceCIDR,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--client-ca-file=" + c.crt("ca"),
		"--tls-cert-file=" + c.crt("apiserver"), "--tls-private-key-file=" + c.key("apiserver"),
		"--kubelet-certificate-authority=" + c.crt("ca"), "--kubelet-preferred-address-types=InternalIP,Hostname",
		"--kubelet-client-certificate=" + c.crt("kubelet-client"), "--kubelet-client-key=" + c.key("kubelet-client"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.crt("service-account"),
		"--service-account-signing-key-file=" + c.key("service-account"),
		"--requestheader-client-ca-file=" + c.crt("front-proxy-ca"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.crt("front-proxy-client"), "--proxy-client-key-file=" + c.key("front-proxy-client"),
		"--profiling=false",
	}
	if len(c.machines) == 0 {
		args = append(args,
			// The test process has bound the port, too (see ports.Reservation).
			"--permit-port-sharing",
			// Endpoints cannot contain loopback addresses.
			"--endpoint-reconciler-type=none")
	}
	if c.opts.audited() {
		args = append(args, "--audit-policy-file="+c.path("audit-policy.yaml"), "--audit-log-path="+c.AuditLogPath(),
			// The log is not rotated, because the tests would then miss writes.
			"--audit-log-maxsize=100000")
	}
	return append(args, c.opts.ExtraAPIServerArgs...)
}

func (c *Cluster) controllerManagerArgs() []string {
	args := []string{
		"--kubeconfig=" + c.path("system:kube-controller-manager.conf"), "--secure-port=0", "--leader-elect=false",
		// Each controller uses its own identity, as on any real cluster, because audit logs distinguish the
		// controllers.
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + c.key("service-account"), "--root-ca-file=" + c.crt("ca"),
		"--cluster-signing-cert-file=" + c.crt("ca"), "--cluster-signing-key-file=" + c.key("ca"),
		"--service-cluster-ip-range=" + c.opts.ServiceCIDR, "--profiling=false",
	}
	if len(c.machines) > 0 {
		args = append(args, "--allocate-node-cidrs", "--cluster-cidr="+c.opts.PodCIDR,
			// With the defaults, a test would wait for minutes until the autoscaler considers a pod.
			"--horizontal-pod-autoscaler-sync-period=2s", "--horizontal-pod-autoscaler-cpu-initialization-period=5s")
	}
	return append(append(args, clientLimits...), c.opts.ExtraControllerManagerArgs...)
}

func (c *Cluster) schedulerArgs() []string {
	return append([]string{
		"--kubeconfig=" + c.path("system:kube-scheduler.conf"), "--secure-port=0", "--leader-elect=false", "--profiling=false",
	}, clientLimits...)
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }
func (c *Cluster) crt(name string) string  { return filepath.Join(c.dir, "pki", name+".crt") }
func (c *Cluster) key(name string) string  { return filepath.Join(c.dir, "pki", name+".key") }

// host returns the host on which the API server listens.
func (c *Cluster) host() string {
	if len(c.machines) > 0 {
		return c.machines[0].Address()
	}
	return "127.0.0.1"
}

func (c *Cluster) apiServerPort() string {
	if len(c.machines) > 0 {
		return "6443"
	}
	return strconv.Itoa(c.port.Port)
}

// server returns the URL at which this process reaches the API server.
func (c *Cluster) server() string {
	if c.front != nil {
		return "https://" + c.front.Address()
	}
	return c.Server()
}

// Server returns the URL of the API server for the components of the cluster and for other clusters on the same
// Network. If the cluster has real nodes, its pods can use it, too.
func (c *Cluster) Server() string { return "https://" + net.JoinHostPort(c.host(), c.apiServerPort()) }
