// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/netlab"
	"github.com/refract-project/refract/test/support/testenv"
)

// Names of objects in both clusters.
const (
	installation               = "liqo"
	gatewayName                = "peer"
	agentsGroup, gatewaysGroup = "agents", "gateways"
)

// secondNodeIP is the second InternalIP of the node of the gateway.
const secondNodeIP = "192.168.1.2"

// site is a cluster of network namespaces with an API server. The command gateway runs according to the objects on this
// API server.
type site struct {
	*cluster
	control       *testenv.Cluster
	client        client.WithWatch
	tenant        string
	configuration *networking.Configuration
	run           *command
	nodeAgents    []*command
	agentArgs     []string // further arguments of agents
	// electing is true if the pods of the gateway write status.internalEndpoint.
	electing bool
	// keysDir and alternateKeysDir are where the two Secrets with keys of the gateway would be mounted.
	keysDir, alternateKeysDir string
}

// TestPodsByObjects writes the objects of a peering to the API servers of two clusters with the same addresses. It runs
// the command gateway on their nodes and in their gateways, with only the permissions that it needs.
func TestPodsByObjects(t *testing.T) {
	netlab.Need(t)
	options := testenv.Options{CRDPaths: []string{"../../api/crds/network"}, NoScheduler: true, AuditWritesOf: []string{agentsGroup}}
	romeOptions, milanOptions := options, options
	romeOptions.Name, milanOptions.Name = "rome", "milan"
	clusters := testenv.ForTest(t, romeOptions, milanOptions)
	rome, milan := newSite(t, clusters[0]), newSite(t, clusters[1])
	netlab.Cable(rome.gatewayNode, "internet", internetRome+"/24", milan.gatewayNode, "internet", internetMil+"/24")
	forwardPort(t, milan.gatewayNode, tunnelPort, gatewayIP)
	for _, s := range []*site{rome, milan} {
		s.startCommands(t)
		listen(t, s.pod)
	}
	for _, s := range []*site{rome, milan} {
		for _, c := range append(s.nodeAgents, s.run) {
			await(t, func() error { return expect(c.ready(), true) })
			require.Empty(t, dump(t, c.host).routes)
		}
	}
	foreign := &networking.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "gw-" + gatewayName}}
	foreign.Spec.Type = networking.ServerConnection
	rome.create(t, foreign)
	rome.createPeering(t, milan, milanInRome)
	milan.createPeering(t, rome, romeInMilan)

	await(t, func() error { return expect(connects(rome.pod, "10.61.1.10:8080"), true) })
	toMilan, source := dial(t, rome.pod, "10.61.1.10:8080")
	require.Equal(t, "10.71.1.10", source)
	toRome, source := dial(t, milan.pod, "10.71.1.10:8080")
	require.Equal(t, "10.61.1.10", source)
	_, source = dial(t, rome.node, "10.61.1.10:8080")
	require.Equal(t, "10.72.0.5", source, "a process of a node has the address of the IP object")
	pass := func() {
		t.Helper()
		exchange(t, toMilan)
		exchange(t, toRome)
	}
	pass()
	await(t, func() error { return rome.hasEvent("does not belong to this gateway") })
	require.NoError(t, rome.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	require.Empty(t, foreign.Status, "the Connection of another owner is not written")
	require.NoError(t, rome.client.Delete(t.Context(), foreign))
	all := func() []*command {
		return append([]*command{rome.run, milan.run}, append(rome.nodeAgents, milan.nodeAgents...)...)
	}
	for _, c := range all() {
		await(t, func() error { return expect(c.metric("refract_gateway_refused"), 0.0) })
	}

	t.Run("Connections", func(t *testing.T) { checkConnections(t, rome, milan); pass() })
	t.Run("nodes that do not reach the gateway", func(t *testing.T) { checkNodeLeg(t, rome); pass() })
	t.Run("second address of a node", func(t *testing.T) {
		translateSource(t, rome.gatewayNode, desired.VXLANPort, secondNodeIP)
		// Only a new connection is sent from the other address.
		dial(t, rome.pod, "10.61.1.10:8080")
		pass()
	})
	t.Run("strict reverse path filter", func(t *testing.T) {
		rome.gate.Sysctl(reversePathFilter, "1")
		rome.run.restart()
		await(t, func() error { return rome.hasEvent("net.ipv4.conf.all.rp_filter is 1 in the pod of the gateway") })
		require.Equal(t, 1.0, rome.run.metric("refract_gateway_refused"))
		pass()
		rome.gate.Sysctl(reversePathFilter, "0")
		rome.run.restart()
		rome.run.awaitApplied()
		require.Zero(t, rome.run.metric("refract_gateway_refused"))
		pass()
	})
	t.Run("restart changes nothing", func(t *testing.T) {
		for _, c := range all() {
			before := dump(t, c.host)
			c.restart()
			c.awaitApplied()
			require.Zero(t, c.metric(`refract_gateway_writes_total{part="network"}`), "%s", c)
			require.Equal(t, before, dump(t, c.host))
		}
		pass()
	})
	t.Run("API server away", func(t *testing.T) {
		before := dump(t, rome.node)
		rome.nodeAgents[0].cut()
		rome.nodeAgents[0].restart()
		await(t, func() error { return expect(rome.nodeAgents[0].alive(), true) })
		pass()
		require.False(t, rome.nodeAgents[0].ready())
		require.Equal(t, before, dump(t, rome.node))
		rome.nodeAgents[0].connect()
		rome.nodeAgents[0].awaitApplied()
		require.Equal(t, before, dump(t, rome.node))
	})
	t.Run("malformed Configuration", func(t *testing.T) {
		commands := []*command{rome.run, rome.nodeAgents[0], rome.nodeAgents[1]}
		before := []state{dump(t, rome.gate), dump(t, rome.node), dump(t, rome.gatewayNode)}
		unchanged := func(text string) {
			t.Helper()
			for i, c := range commands {
				await(t, func() error { return expect(c.metric("refract_gateway_refused"), 1.0) })
				require.Contains(t, c.log.String(), text)
				require.Equal(t, before[i], dump(t, c.host), "%s", c)
			}
			pass()
		}
		good := rome.configuration.DeepCopy()
		rome.configuration.Spec.Remote.CIDR.Pod = []networking.CIDR{"0.0.0.0/0"}
		require.NoError(t, rome.client.Update(t.Context(), rome.configuration))
		unchanged("its status is that of an earlier spec")
		await(t, func() error { return rome.hasEvent("its status is that of an earlier spec") })
		for _, c := range commands {
			c.restart()
		}
		unchanged("its status is that of an earlier spec")
		for _, c := range rome.nodeAgents {
			c.awaitApplied()
			require.Zero(t, c.metric(`refract_gateway_writes_total{part="network"}`), "%s", c)
		}
		// The range must not be applied even though the status contains it.
		rome.configuration.Status.Remote.CIDR.Pod = []networking.CIDR{"0.0.0.0/0"}
		rome.configuration.Status.Conditions[0].ObservedGeneration = rome.configuration.Generation
		require.NoError(t, rome.client.Status().Update(t.Context(), rome.configuration))
		for _, c := range commands {
			await(t, func() error { return c.logged("0.0.0.0/0 is larger") })
		}
		unchanged("0.0.0.0/0 is larger")
		// The pod must give up its role even while the objects are refused, and must take over again with its previous
		// configuration.
		rome.setActivePod(t, "10.1.2.99")
		milan.awaitConnection(t, networking.ConnectionFailed)
		rome.setActivePod(t, gatewayIP)
		milan.awaitConnection(t, networking.Connected)
		unchanged("0.0.0.0/0 is larger")
		good.ResourceVersion = rome.configuration.ResourceVersion
		require.NoError(t, rome.client.Update(t.Context(), good))
		rome.configuration = good
		rome.setStatus(t, milanInRome)
		for _, c := range commands {
			await(t, func() error { return expect(c.metric("refract_gateway_refused"), 0.0) })
		}
		pass()
	})
	t.Run("gateway deleted", func(t *testing.T) {
		gatewayClient := &networking.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: gatewayName}}
		require.NoError(t, rome.client.Delete(t.Context(), gatewayClient))
		// Without a peer, nothing remains on the nodes: they stay as they are if Refract is uninstalled.
		await(t, func() error {
			left := dump(t, rome.node)
			return expect(fmt.Sprint(left.links, left.neighbours, left.routes, left.rules), "[] [] [] []")
		})
		rules, err := rome.node.Links().RuleList(unix.AF_INET)
		require.NoError(t, err)
		require.Len(t, rules, 3, "the kernel has three rules of its own")
	})
	for _, s := range []*site{rome, milan} {
		audit, err := os.ReadFile(s.control.AuditLogPath())
		require.True(t, err == nil || os.IsNotExist(err), err)
		require.Empty(t, string(audit), "an agent writes nothing")
		for _, c := range append(s.nodeAgents, s.run) {
			require.NotContains(t, c.log.String(), "forbidden", "%s", c)
		}
	}
}

func await(t *testing.T, check func() error) {
	t.Helper()
	testenv.Eventually(t, check)
}

func expect[T comparable](found, want T) error {
	if found != want {
		return fmt.Errorf("%v instead of %v", found, want)
	}
	return nil
}

// newSite creates the nodes and the permissions of a cluster.
func newSite(t *testing.T, control *testenv.Cluster) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networking.AddToScheme, ipam.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c, err := client.NewWithWatch(control.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	s := &site{cluster: newCluster(t, control.Name()), control: control, client: c, keysDir: t.TempDir(), alternateKeysDir: t.TempDir()}
	s.tenant = "liqo-tenant-" + s.other()
	for _, name := range []string{installation, s.tenant} {
		s.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, addresses := range map[string][2]string{"node": {nodeIP, "10.1.1.0/24"}, "gateway-node": {gatewayNodeIP, "10.1.2.0/24"}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.NodeSpec{PodCIDR: addresses[1], PodCIDRs: addresses[1:]}}
		s.create(t, node)
		before := node.DeepCopy() // the controller manager may change the Node in the meantime
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeInternalIP, Address: addresses[0]}}
		if name == "gateway-node" {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: secondNodeIP})
		}
		require.NoError(t, c.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	}
	ip := &ipam.IP{ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: "node",
		Labels: map[string]string{"networking.liqo.io/host-unreachable": "true"}}, Spec: ipam.IPSpec{IP: nodeIP}}
	s.create(t, ip)
	ip.Status.IP, ip.Status.CIDR = nodeExternal, externalRange
	require.NoError(t, c.Status().Update(t.Context(), ip))
	s.grant(t)
	return s
}

func (s *site) other() string { return map[string]string{"rome": "milan", "milan": "rome"}[s.name] }

func (s *site) create(t *testing.T, object client.Object) {
	t.Helper()
	require.NoError(t, s.client.Create(t.Context(), object))
}

// grant creates the permissions of a gateway in its tenant namespace, and of the agents.
func (s *site) grant(t *testing.T) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(s.control.Config())
	require.NoError(t, err)
	gateways := rbac.Gateways{}
	objects := append(gateways.Roles(), gateways.Bindings(s.tenant, rbac.User("gateway"))...)
	agents := rbac.GatewayAgents{Subject: rbac.Group(agentsGroup), Addresses: true}
	require.NoError(t, rbac.Install(t.Context(), clients, append(objects, agents.Objects()...)...))
}

// createPeering creates the objects that describe the peer, in the same way as the controllers and refractctl. The
// server is in milan.
func (s *site) createPeering(t *testing.T, peer *site, ranges seen) {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: s.tenant, Name: name, Labels: map[string]string{wire.RemoteClusterIDLabel: peer.name}}
	}
	s.complete(peer.cluster)
	s.configuration = configuration(peer.name, ranges)
	s.configuration.ObjectMeta = meta(peer.name)
	s.configuration.Status = networking.ConfigurationStatus{}
	s.create(t, s.configuration)
	s.setStatus(t, ranges)
	public := peer.key.PublicKey()
	s.create(t, &networking.PublicKey{ObjectMeta: meta(peer.name), Spec: networking.PublicKeySpec{PublicKey: public[:]}})
	s.mountKey(t)
	ip := networking.IP(gatewayIP)
	internal := &networking.InternalGatewayEndpoint{IP: &ip}
	template := corev1.ObjectReference{Namespace: installation}
	s.create(t, &discoveryv1.EndpointSlice{ObjectMeta: meta(wire.GatewayElection), AddressType: discoveryv1.AddressTypeIPv4})
	if s.name == "milan" {
		server := &networking.GatewayServer{ObjectMeta: meta(gatewayName), Spec: networking.GatewayServerSpec{MTU: 1340,
			ServerTemplateRef: template, Endpoint: networking.Endpoint{Port: tunnelPort, ServiceType: corev1.ServiceTypeNodePort}}}
		s.create(t, server)
		if s.electing {
			return
		}
		server.Status.InternalEndpoint = internal
		require.NoError(t, s.client.Status().Update(t.Context(), server))
		return
	}
	gatewayClient := &networking.GatewayClient{ObjectMeta: meta(gatewayName), Spec: networking.GatewayClientSpec{MTU: 1340,
		ClientTemplateRef: template, Endpoint: networking.EndpointStatus{Addresses: []string{internetMil}, Port: tunnelPort}}}
	s.create(t, gatewayClient)
	if s.electing {
		return
	}
	gatewayClient.Status.InternalEndpoint = internal
	require.NoError(t, s.client.Status().Update(t.Context(), gatewayClient))
}

// mountKey writes the private key to the directory where its Secret would be mounted.
func (s *site) mountKey(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.keysDir, "privateKey"), s.key[:], 0o400))
}

// setStatus grants the ranges of the Configuration.
func (s *site) setStatus(t *testing.T, ranges seen) {
	t.Helper()
	s.configuration.Status = configuration("", ranges).Status
	s.configuration.Status.Conditions = []metav1.Condition{{Type: networking.ConfiguredCondition, Status: metav1.ConditionTrue,
		Reason: "NetworkCIDRsConfigured", ObservedGeneration: s.configuration.Generation, LastTransitionTime: metav1.Now()}}
	require.NoError(t, s.client.Status().Update(t.Context(), s.configuration))
}

func (s *site) hasEvent(text string) error {
	var events corev1.EventList
	if err := s.client.List(context.Background(), &events, client.InNamespace(s.tenant)); err != nil {
		return err
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "GatewayClient" && e.InvolvedObject.Name == gatewayName && strings.Contains(e.Message, text) {
			return nil
		}
	}
	return fmt.Errorf("no Event says: %s", text)
}

func (s *site) startCommands(t *testing.T) {
	t.Helper()
	s.run = s.startCommand(t, s.gate, "gateway", "127.0.0.1:8081", "127.0.0.1:8082", "run", "--cluster-id="+s.name,
		"--namespace="+s.tenant, "--name="+gatewayName, "--keys-dir="+s.keysDir, "--pod-ip="+gatewayIP)
	s.startAgents(t)
}

func (s *site) startAgents(t *testing.T) {
	t.Helper()
	for name, host := range map[string]*netlab.Host{"node": s.node, "gateway-node": s.gatewayNode} {
		s.nodeAgents = append(s.nodeAgents, s.startCommand(t, host, "agent", "127.0.0.1:6094", "127.0.0.1:6095", append([]string{"agent",
			"--node-name=" + name}, s.agentArgs...)...))
	}
	if s.nodeAgents[0].host != s.node {
		s.nodeAgents[0], s.nodeAgents[1] = s.nodeAgents[1], s.nodeAgents[0]
	}
}

// command is a process of the command gateway.
type command struct {
	t               *testing.T
	host            *netlab.Host
	health, metrics string
	args            []string
	apiServer       string // address and port of the API server
	log             *logBuffer
	process         *exec.Cmd
	listener        net.Listener
	mutex           sync.Mutex
	connections     []net.Conn
}

func (s *site) startCommand(t *testing.T, host *netlab.Host, user, health, metrics string, args ...string) *command {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, s.control.KubeconfigFor(kubeconfig, user, user+"s"))
	c := &command{t: t, host: host, health: health, metrics: metrics, args: append(args, "--kubeconfig="+kubeconfig),
		apiServer: strings.TrimPrefix(s.control.Server(), "https://")}
	c.connect()
	t.Cleanup(c.cut)
	c.start()
	return c
}

func (c *command) String() string { return c.args[0] + " of " + c.host.String() }

// connect makes the API server reachable from the host. The API server listens only on the loopback interface of this
// machine.
func (c *command) connect() {
	c.t.Helper()
	require.NoError(c.t, c.host.Do(func() (err error) {
		c.listener, err = net.Listen("tcp4", c.apiServer)
		return err
	}))
	go func(listener net.Listener) {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp4", c.apiServer)
			if err != nil {
				_ = near.Close()
				continue
			}
			c.mutex.Lock()
			c.connections = append(c.connections, near, far)
			c.mutex.Unlock()
			go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
			go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		}
	}(c.listener)
}

// cut closes the connections to the API server, and rejects new ones.
func (c *command) cut() {
	_ = c.listener.Close()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, connection := range c.connections {
		_ = connection.Close()
	}
	c.connections = nil
}

func (c *command) start() {
	c.t.Helper()
	c.log = &logBuffer{}
	c.process = exec.Command(os.Args[0], c.args...)
	c.process.Env = append(os.Environ(), roleVariable+"=command")
	c.process.Stderr = c.log
	_, err := c.process.StdinPipe() // the process ends when this pipe is closed
	require.NoError(c.t, err)
	require.NoError(c.t, c.host.Start(c.process))
	process := c.process
	c.t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", c, c.log)
		}
	})
}

// kill ends the process as a crash would.
func (c *command) kill() {
	c.t.Helper()
	_ = c.process.Process.Kill()
	_ = c.process.Wait()
}

// restart kills the process, and starts it again.
func (c *command) restart() {
	c.t.Helper()
	c.kill()
	c.start()
}

// awaitApplied waits until the process has compared the kernel's configuration with its objects.
func (c *command) awaitApplied() {
	c.t.Helper()
	await(c.t, func() error {
		if c.metric(`refract_gateway_comparisons_total{part="network"}`) < 1 {
			return fmt.Errorf("%s has applied nothing", c)
		}
		return nil
	})
}

func (c *command) logged(text string) error {
	if !strings.Contains(c.log.String(), text) {
		return fmt.Errorf("%s does not log: %s", c, text)
	}
	return nil
}

func (c *command) alive() bool {
	status, _ := c.get(c.health, "/healthz")
	return status == http.StatusOK
}

func (c *command) ready() bool {
	status, _ := c.get(c.health, "/readyz")
	return status == http.StatusOK
}

// metric returns the value of a metric. It returns 0 if the metric does not exist yet, and -1 if the process does not
// respond.
func (c *command) metric(name string) float64 {
	status, body := c.get(c.metrics, "/metrics")
	if status != http.StatusOK {
		return -1
	}
	for line := range strings.Lines(body) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			value, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return value
		}
	}
	return 0
}

func (c *command) get(address, path string) (status int, body string) {
	_ = c.host.Do(func() error {
		connection, err := net.Dial("tcp4", address)
		if err != nil {
			return err
		}
		defer connection.Close()
		if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
			return err
		}
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		status, body = response.StatusCode, string(text)
		return err
	})
	return status, body
}

// logBuffer is a buffer for a process' log.
type logBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

// state is the kernel's configuration on a gateway or a node. Handles and indices are included, so that replaced rules
// and links are noticed.
type state struct{ links, routes, rules, neighbours []string }

// routesOf returns the routes in a table.
func routesOf(t *testing.T, host *netlab.Host, table int) []netlink.Route {
	t.Helper()
	routes, err := host.Links().RouteListFiltered(unix.AF_INET, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	require.NoError(t, err)
	return routes
}

func dump(t *testing.T, host *netlab.Host) (s state) {
	t.Helper()
	for _, name := range []string{desired.VXLANLink, desired.TunnelLink} {
		link, err := host.Links().LinkByName(name)
		if err != nil {
			continue
		}
		a := link.Attrs()
		s.links = append(s.links, fmt.Sprint(a.Index, a.Name, a.MTU, a.HardwareAddr))
		for _, family := range []int{unix.AF_BRIDGE, unix.AF_INET} {
			entries, err := host.Links().NeighList(a.Index, family)
			require.NoError(t, err)
			for _, e := range entries {
				if e.State&netlink.NUD_PERMANENT != 0 {
					s.neighbours = append(s.neighbours, fmt.Sprint(e.IP, e.HardwareAddr))
				}
			}
		}
	}
	slices.Sort(s.neighbours)
	for _, scope := range []int{desired.NodeScope.RouteTables[0], desired.GatewayScope.RouteTables[0], desired.GatewayScope.RouteTables[1]} {
		for _, r := range routesOf(t, host, scope) {
			s.routes = append(s.routes, fmt.Sprint(scope, r.Dst, r.Gw, r.LinkIndex, r.MTU))
		}
	}
	inNFTables(t, host, func(c *nftables.Conn) {
		chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
		require.NoError(t, err)
		for _, chain := range chains {
			if chain.Table.Name != desired.TableName {
				continue
			}
			rules, err := c.GetRules(chain.Table, chain)
			require.NoError(t, err)
			for _, r := range rules {
				s.rules = append(s.rules, fmt.Sprint(chain.Name, r.Handle, r.UserData))
			}
		}
	})
	return s
}
