// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/test/support/testenv/machine"
	"github.com/refract-project/refract/test/support/testenv/proxy"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Delims("<<", ">>").ParseFS(templateFiles, "templates/*"))

// hostsOfCluster is the distance of host numbers between the clusters of one StartAll. The host number of a node is
// its number in the cluster (from 1) plus hostsOfCluster for each cluster up to its own, so the first node has the
// host number 11.
const hostsOfCluster = 10

// addMachines creates the machines of the real nodes, and connects this process to the API server.
func (c *Cluster) addMachines() (err error) {
	for i := range c.opts.Nodes {
		m, err := c.opts.Network.Add(fmt.Sprintf("%s-node-%d", c.opts.Name, i+1), hostsOfCluster*(c.index+1)+i+1)
		if err != nil {
			return err
		}
		c.machines = append(c.machines, m)
	}
	if c.nodeTools, err = tools.FindNode(); err != nil {
		return err
	}
	c.front, err = proxy.NewLinkTo(func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), proxy.DialTimeout)
		defer cancel()
		return c.machines[0].Dial(ctx, net.JoinHostPort(c.host(), c.apiServerPort()))
	})
	return err
}

// dial connects to an address from the machine on which the control plane runs.
func (c *Cluster) dial(ctx context.Context, address string) (net.Conn, error) {
	if len(c.machines) > 0 {
		return c.machines[0].Dial(ctx, address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp4", address)
}

// Machines returns the machines of the real nodes, in the order of the nodes. The control plane runs on the first
// machine.
func (c *Cluster) Machines() []*machine.Machine { return c.machines }

// Network returns the network of the machines.
func (c *Cluster) Network() *machine.Network { return c.opts.Network }

// node contains the values for the templates of a node's configuration files.
type node struct {
	Name, Address, PodCIDR, ClusterCIDR, DNS, Registry string
	Dir, PKI                                           string // paths on this computer, which are the same on the machine
	Shim, Runc, CNI                                    string
}

// startNodes starts the real nodes concurrently, and CoreDNS. It returns when the nodes are Ready and DNS works.
func (c *Cluster) startNodes(ctx context.Context) error {
	if len(c.machines) == 0 {
		return nil
	}
	begun := time.Now()
	if err := c.kubectl(strings.NewReader(proxyRole), "apply", "--filename=-"); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, m := range c.machines {
		group.Go(func() error {
			if err := c.startNode(groupCtx, m); err != nil {
				return fmt.Errorf("starting the node %s, %w", m.Name(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.opts.Log("cluster %s: its nodes are Ready after another %.1f s", c.opts.Name, time.Since(begun).Seconds())
	if err := c.routeBetween(c.machines, c.machines); err != nil {
		return err
	}
	return c.startDNS(ctx)
}

func (c *Cluster) startNode(ctx context.Context, m *machine.Machine) error {
	n := node{
		Name: m.Name(), Address: m.Address(), ClusterCIDR: c.opts.PodCIDR, DNS: c.dnsAddress(), Registry: c.opts.Registry.NodeAddress(),
		Dir: c.path(m.Name()), PKI: c.path("pki"),
		Shim: c.nodeTools.Shim, Runc: c.nodeTools.Runc, CNI: filepath.Dir(c.nodeTools.CNIBridge),
	}
	if err := c.writeNodeState(m, n); err != nil {
		return err
	}
	path := "PATH=" + filepath.Dir(n.Shim) + ":" + filepath.Dir(n.Runc) + ":" + os.Getenv("PATH")
	if err := c.startOn(m, "containerd", []string{path}, c.nodeTools.Containerd, "--config="+n.Dir+"/containerd.toml", "--log-level=warn"); err != nil {
		return err
	}
	if err := c.await(ctx, "containerd of "+m.Name(), func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", m.Path("/run/containerd/containerd.sock"))
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		return err
	}
	if err := c.startOn(m, "kubelet", []string{path}, c.nodeTools.Kubelet, "--config="+n.Dir+"/kubelet.yaml", "--kubeconfig="+n.Dir+"-kubelet.conf", "--hostname-override="+n.Name, "--node-ip="+n.Address); err != nil {
		return err
	}
	if err := c.await(ctx, "the pod range of "+m.Name(), func(ctx context.Context) error {
		object, err := c.clients.CoreV1().Nodes().Get(ctx, m.Name(), metav1.GetOptions{})
		if err == nil && object.Spec.PodCIDR == "" {
			err = errors.New("it has none yet")
		}
		if err == nil {
			n.PodCIDR = object.Spec.PodCIDR
		}
		return err
	}); err != nil {
		return err
	}
	if err := c.connectPods(m, n); err != nil {
		return err
	}
	if err := c.startOn(m, "kube-proxy", nil, c.nodeTools.KubeProxy, "--config="+n.Dir+"/kube-proxy.yaml"); err != nil {
		return err
	}
	return c.await(ctx, "the node "+m.Name()+" to be Ready", func(ctx context.Context) error { return c.nodeReady(ctx, m.Name()) })
}

// startOn starts a component on a node. The process is recorded under the names of the node and of the component.
func (c *Cluster) startOn(m *machine.Machine, name string, env []string, path string, args ...string) error {
	cmd := m.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return fmt.Errorf("starting %s, cluster %s has been stopped", name, c.opts.Name)
	}
	return c.start(m.Name()+"-"+name, cmd)
}

func (c *Cluster) writeNodeState(m *machine.Machine, n node) error {
	ip := []net.IP{net.ParseIP(n.Address)}
	cert, key, err := c.IssueServing("system:node:"+n.Name, []string{"system:nodes"}, ip, []string{n.Name})
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(filepath.Join(n.Dir, "registries", "_default"), 0o700),
		c.writePair(n.Name, cert, key),
		c.componentKubeconfig(n.Name+"-kubelet.conf", "system:node:"+n.Name, "system:nodes"),
		c.componentKubeconfig(n.Name+"-kube-proxy.conf", "system:kube-proxy"),
		// Names outside of the cluster cannot be resolved.
		os.WriteFile(filepath.Join(n.Dir, "resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o600),
		n.render("containerd.toml", filepath.Join(n.Dir, "containerd.toml")),
		n.render("hosts.toml", filepath.Join(n.Dir, "registries", "_default", "hosts.toml")),
		n.render("kubelet.yaml", filepath.Join(n.Dir, "kubelet.yaml")),
		n.render("kube-proxy.yaml", filepath.Join(n.Dir, "kube-proxy.yaml")),
	)
}

// proxyRole is the ClusterRoleBinding that cluster installers create for kube-proxy.
const proxyRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kube-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-proxier"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:kube-proxy"}]
`

// render writes the result of a template to a file. The file appears only when it is complete.
func (n node) render(name, path string) error {
	var content bytes.Buffer
	if err := templates.ExecuteTemplate(&content, name, n); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// connectPods configures the network of the pods of a node, with the node's range of addresses. Addresses of pods are
// not translated if the destination has a route back.
func (c *Cluster) connectPods(m *machine.Machine, n node) error {
	if err := n.render("masquerade.nft", filepath.Join(n.Dir, "masquerade.nft")); err != nil {
		return err
	}
	if err := m.Run("nft", "-f", filepath.Join(n.Dir, "masquerade.nft")); err != nil {
		return err
	}
	// The API server calls webhooks at the cluster IPs of their Services.
	if err := m.RouteAny(c.opts.ServiceCIDR); err != nil {
		return err
	}
	c.mu.Lock()
	c.podCIDRs[m] = n.PodCIDR
	c.mu.Unlock()
	folder := m.Path("/etc/cni/net.d")
	return errors.Join(os.MkdirAll(folder, 0o755), n.render("pods.conflist", filepath.Join(folder, "10-pods.conflist")))
}

// routeBetween adds routes to the pods on the machines of one list, to, to each machine of the other list, from.
func (c *Cluster) routeBetween(from, to []*machine.Machine) error {
	for _, a := range from {
		for _, b := range to {
			if a == b {
				continue
			}
			if err := a.Route(c.podCIDRs[b], b); err != nil {
				return err
			}
		}
	}
	return nil
}

// Connect connects the pods of two clusters with real nodes. The pods can reach each other by their addresses, as
// within one VPC.
func Connect(a, b *Cluster) error {
	for _, sides := range [][2]*Cluster{{a, b}, {b, a}} {
		from, to := sides[0], sides[1]
		for _, m := range from.machines {
			if err := m.Run("nft", "add", "element", "ip", "network", "connected", "{", to.opts.PodCIDR, "}"); err != nil {
				return err
			}
		}
		if err := to.routeBetween(from.machines, to.machines); err != nil {
			return fmt.Errorf("connecting the clusters %s and %s, %w", a.Name(), b.Name(), err)
		}
	}
	return nil
}

// nodeReady returns an error unless a node is Ready and has no taints.
func (c *Cluster) nodeReady(ctx context.Context, name string) error {
	node, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node %s has the taint %s", name, node.Spec.Taints[0].Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready", name)
}

// dnsAddress returns the tenth address of the Service range. Cluster installers use it for DNS.
func (c *Cluster) dnsAddress() string {
	ip := firstAddress(c.opts.ServiceCIDR)
	ip[len(ip)-1] += 9
	return ip.String()
}

func (c *Cluster) startDNS(ctx context.Context) error {
	return c.deploy(ctx, "coredns", node{DNS: c.dnsAddress()})
}

// StartMetricsServer runs metrics-server in a cluster with real nodes, for `kubectl top` and autoscalers. It returns
// when the metrics API is served. The first measurements are available half a minute later.
func (c *Cluster) StartMetricsServer(ctx context.Context) error {
	if err := c.deploy(ctx, "metrics-server", node{}); err != nil {
		return err
	}
	return c.await(ctx, "the metrics API", func(ctx context.Context) error {
		return c.clients.Discovery().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1").Do(ctx).Error()
	})
}

// deploy applies a manifest from the templates, and waits until the Deployment with this name is available.
func (c *Cluster) deploy(ctx context.Context, name string, values node) error {
	var manifest bytes.Buffer
	if err := templates.ExecuteTemplate(&manifest, name+".yaml", values); err != nil {
		return err
	}
	if err := c.kubectl(&manifest, "apply", "--filename=-"); err != nil {
		return err
	}
	return c.await(ctx, name, func(ctx context.Context) error {
		deployment, err := c.clients.AppsV1().Deployments("kube-system").Get(ctx, name, metav1.GetOptions{})
		if err == nil && deployment.Status.AvailableReplicas == 0 {
			err = errors.New("it has no replica that is available")
		}
		return err
	})
}

// kubectl runs kubectl as the administrator.
func (c *Cluster) kubectl(stdin interface{ Read([]byte) (int, error) }, args ...string) error {
	cmd := exec.Command(c.tools.Kubectl, append(args, "--kubeconfig="+c.Kubeconfig())...)
	cmd.Stdin = stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
