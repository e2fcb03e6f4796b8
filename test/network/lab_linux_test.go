// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/cmd/gateway/app"
	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/nodeleg"
	"github.com/refract-project/refract/gateway/tunnel"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/test/support/netlab"
)

// roleVariable is an environment variable. If it is set, this test binary runs as a gateway, an agent, a plain tunnel or a fabric
// that reads its objects from standard input, or as the command gateway.
const roleVariable = "REFRACT_NETLAB_ROLE"

// lastEndpointVariable is an environment variable with the endpoint of the peer that another pod of the gateway has used.
const lastEndpointVariable = "REFRACT_NETLAB_LAST_ENDPOINT"

func lastEndpoint() netip.AddrPort {
	endpoint, _ := netip.ParseAddrPort(os.Getenv(lastEndpointVariable))
	return endpoint
}

// activeFileVariable is an environment variable with the name of a file. As long as the file exists, the API server confirms that
// the pod is active.
const activeFileVariable = "REFRACT_NETLAB_ACTIVE_FILE"

func confirmActive(context.Context) bool {
	_, err := os.Stat(os.Getenv(activeFileVariable))
	return err == nil
}

// wireGuardVariable is an environment variable with the implementation of WireGuard that gateways use. The default is Auto.
const wireGuardVariable = "REFRACT_NETLAB_WIREGUARD"

func wireGuard() tunnel.Implementation {
	return cmp.Or(tunnel.Implementation(os.Getenv(wireGuardVariable)), tunnel.Auto)
}

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "gateway":
		cmdutil.SpareGC(context.Background(), cmdutil.GatewayMemoryShare)
		serve(func(ctx context.Context, p <-chan desired.Peering, report func(gateway.Report)) error {
			return gateway.RunGateway(ctx, p, gateway.Options{Implementation: wireGuard(), Report: report, LastPeerEndpoint: lastEndpoint,
				ConfirmActive: confirmActive})
		})
	case "agent":
		serve(gateway.RunAgent)
	case "plain":
		serve(runPlainTunnel)
	case "fabric":
		serve(runFabric)
	case "command":
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0) // the test process has ended
		}()
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		defer stop()
		cmdutil.SpareGC(ctx, cmdutil.GatewayMemoryShare)
		if err := app.NewCommand(os.Getenv).ExecuteContext(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "gateway:", err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// event is a report of a process, encoded as JSON.
type event struct {
	Refused, Failed string
	Network, Repair bool
	Connected       *bool
	Active          *bool
	Writes          int
	TunnelWrites    int
	PeerEndpoint    netip.AddrPort
	Leg             *nodeleg.Reached
	PathMTU         *gateway.PathMTU
}

// serve runs a process. Each line of standard input contains a new version of its objects. Each line of standard output
// is an event.
func serve[T any](run func(context.Context, <-chan T, func(gateway.Report)) error) {
	inputs := make(chan T)
	go func() {
		for decoder := json.NewDecoder(os.Stdin); ; {
			var input T
			if err := decoder.Decode(&input); err != nil {
				os.Exit(0) // the test process has ended
			}
			inputs <- input
		}
	}()
	var mutex sync.Mutex
	encoder := json.NewEncoder(os.Stdout)
	err := run(context.Background(), inputs, func(r gateway.Report) {
		e := event{Active: r.Active, TunnelWrites: r.TunnelWrites, PeerEndpoint: r.PeerEndpoint, Leg: r.Leg, PathMTU: r.PathMTU}
		if r.Refused != nil {
			e.Refused = r.Refused.Error()
		}
		if r.TunnelError != nil {
			e.Failed = r.TunnelError.Error()
		}
		if r.Connection != nil {
			e.Connected = &r.Connection.Connected
		}
		if r.Network != nil {
			e.Network, e.Repair, e.Writes = true, r.Network.Repair, r.Network.Writes
			if r.Network.Err != nil {
				e.Failed = r.Network.Err.Error()
			}
		}
		mutex.Lock()
		defer mutex.Unlock()
		_ = encoder.Encode(e)
	})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// process is a gateway or an agent.
type process struct {
	t       *testing.T
	host    *netlab.Host
	role    string
	command *exec.Cmd
	input   io.Writer
	events  chan event
}

func start(t *testing.T, host *netlab.Host, role string) *process {
	t.Helper()
	p := &process{t: t, host: host, role: role, command: exec.Command(os.Args[0]), events: make(chan event, 1000)}
	p.command.Env = append(os.Environ(), roleVariable+"="+role)
	p.command.Stderr = os.Stderr
	input, err := p.command.StdinPipe()
	require.NoError(t, err)
	output, err := p.command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, host.Start(p.command))
	p.input = input
	t.Cleanup(p.kill)
	go func() {
		defer close(p.events)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			var e event
			if json.Unmarshal(scanner.Bytes(), &e) == nil {
				p.events <- e
			}
		}
	}()
	return p
}

// restart starts another process in the same role. It runs until the test that started the first one ends.
func (p *process) restart() *process { return start(p.t, p.host, p.role) }

// kill ends the process immediately, as a crash would.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// apply sends objects to the process, and returns the number of writes to links, routes and rules that they cause.
func (p *process) apply(objects any) int {
	p.t.Helper()
	require.NoError(p.t, json.NewEncoder(p.input).Encode(objects))
	return p.await(false)
}

// awaitRepair waits until the process has reverted a change of its configuration.
func (p *process) awaitRepair() int {
	p.t.Helper()
	return p.await(true)
}

func (p *process) await(repair bool) int {
	p.t.Helper()
	return p.awaitEvent(func(e event) bool { return e.Network && e.Repair == repair }).Writes
}

func (p *process) awaitEvent(matches func(event) bool) event {
	p.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e, ok := <-p.events:
			require.True(p.t, ok, "%s of %s ended", p.role, p.host)
			require.Empty(p.t, e.Failed)
			require.Empty(p.t, e.Refused)
			if matches(e) {
				return e
			}
		case <-timeout:
			p.t.Fatalf("%s of %s reports nothing", p.role, p.host)
		}
	}
}

// cluster is a cluster with a pod on its first node and a gateway on its second node.
type cluster struct {
	name                         string
	pod, node, gatewayNode, gate *netlab.Host
	key                          wgtypes.Key
	agents                       []*process
	gateway                      *process
	peering                      desired.Peering
	hosts                        []desired.Host
}

// These addresses are used in both clusters.
const (
	podRange, externalRange   = "10.1.0.0/16", "10.70.0.0/16"
	podIP, gatewayIP          = "10.1.1.10", "10.1.2.5"
	nodeIP, gatewayNodeIP     = "192.168.0.1", "192.168.0.2"
	nodeExternal              = "10.70.0.5"
	hop                       = "169.254.1.1" // next hop of pods, which is their node
	tunnelPort                = 51840
	internetRome, internetMil = "203.0.113.1", "203.0.113.2"
)

// seen contains the ranges that a cluster uses for the pods and the external addresses of the other cluster.
type seen struct{ pods, external string }

var (
	milanInRome = seen{"10.61.0.0/16", "10.62.0.0/16"}
	romeInMilan = seen{"10.71.0.0/16", "10.72.0.0/16"}
)

// newClusters creates two clusters that are joined by gateways. The server is in milan.
func newClusters(t *testing.T) (rome, milan *cluster) {
	t.Helper()
	return newClustersWith(t, func(*cluster) {})
}

// newClustersWith does the same as newClusters, and calls prepare for both clusters before their processes start.
func newClustersWith(t *testing.T, prepare func(*cluster)) (rome, milan *cluster) {
	t.Helper()
	rome, milan = newCluster(t, "rome"), newCluster(t, "milan")
	netlab.Cable(rome.gatewayNode, "internet", internetRome+"/24", milan.gatewayNode, "internet", internetMil+"/24")
	forwardPort(t, milan.gatewayNode, tunnelPort, gatewayIP)
	describePeerings(rome, milan)
	prepare(rome)
	prepare(milan)
	for _, c := range []*cluster{rome, milan} {
		c.start(t)
	}
	return rome, milan
}

// describePeerings sets the objects of the gateways and the agents of two clusters. The server is in milan.
func describePeerings(rome, milan *cluster) {
	rome.peering.Configuration, milan.peering.Configuration = configuration("milan", milanInRome), configuration("rome", romeInMilan)
	meta := metav1.ObjectMeta{Namespace: "liqo-tenant", Name: "peer", UID: types.UID("uid")}
	ip := networking.IP(gatewayIP)
	internal := &networking.InternalGatewayEndpoint{IP: &ip}
	rome.peering.Client = &networking.GatewayClient{ObjectMeta: meta, Spec: networking.GatewayClientSpec{MTU: 1340},
		Status: networking.GatewayClientStatus{InternalEndpoint: internal}}
	rome.peering.Endpoint = netip.AddrPortFrom(netip.MustParseAddr(internetMil), tunnelPort)
	milan.peering.Server = &networking.GatewayServer{ObjectMeta: meta,
		Spec: networking.GatewayServerSpec{MTU: 1340, Endpoint: networking.Endpoint{Port: tunnelPort,
			ServiceType: corev1.ServiceTypeNodePort}},
		Status: networking.GatewayServerStatus{InternalEndpoint: internal}}
	for _, c := range []*cluster{rome, milan} {
		c.complete(map[*cluster]*cluster{rome: milan, milan: rome}[c])
	}
}

func newCluster(t *testing.T, name string) *cluster {
	t.Helper()
	c := &cluster{name: name, pod: netlab.NewHost(t, name+"-pod"), node: netlab.NewHost(t, name+"-node"),
		gatewayNode: netlab.NewHost(t, name+"-gateway-node"), gate: netlab.NewHost(t, name+"-gateway")}
	c.peering.PodIP = netip.MustParseAddr(gatewayIP)
	netlab.Cable(c.node, "pod", hop+"/32", c.pod, "eth0", podIP+"/32")
	netlab.Cable(c.node, "eth0", nodeIP+"/24", c.gatewayNode, "eth0", gatewayNodeIP+"/24")
	netlab.Cable(c.gatewayNode, "gateway", hop+"/32", c.gate, "eth0", gatewayIP+"/32")
	c.node.Route(podIP+"/32", "", "pod")
	c.node.Route("10.1.2.0/24", gatewayNodeIP, "eth0")
	c.gatewayNode.Route(gatewayIP+"/32", "", "gateway")
	c.gatewayNode.Route("10.1.1.0/24", nodeIP, "eth0")
	for _, pod := range []*netlab.Host{c.pod, c.gate} {
		pod.Route("0.0.0.0/0", hop, "eth0")
	}
	for _, node := range []*netlab.Host{c.node, c.gatewayNode} {
		node.Sysctl("net/ipv4/ip_forward", "1")
		masquerade(t, node)
	}
	c.node.Route("0.0.0.0/0", gatewayNodeIP, "eth0")
	return c
}

func configuration(peer string, s seen) *networking.Configuration {
	ranges := func(pods, external string) networking.ClusterConfig {
		return networking.ClusterConfig{CIDR: networking.ClusterConfigCIDR{Pod: []networking.CIDR{networking.CIDR(pods)},
			External: []networking.CIDR{networking.CIDR(external)}}}
	}
	local, remote := ranges(podRange, externalRange), ranges(s.pods, s.external)
	return &networking.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant", Name: peer},
		Spec:   networking.ConfigurationSpec{Local: &local, Remote: ranges(podRange, externalRange)},
		Status: networking.ConfigurationStatus{Remote: &remote}}
}

// complete adds the keys, the nodes and the agents' objects.
func (c *cluster) complete(other *cluster) {
	for _, each := range []*cluster{c, other} {
		if each.key == (wgtypes.Key{}) {
			each.key, _ = wgtypes.GeneratePrivateKey()
		}
	}
	public := other.key.PublicKey()
	c.peering.PublicKey = &networking.PublicKey{Spec: networking.PublicKeySpec{PublicKey: public[:]}}
	c.peering.ClusterID, c.peering.RemoteClusterID = c.name, other.name
	c.peering.PrivateKey, c.peering.PodMTU = c.key[:], 1500
	node, gatewayNode := netip.MustParseAddr(nodeIP), netip.MustParseAddr(gatewayNodeIP)
	c.peering.Nodes = []desired.Node{
		{Name: "node", IP: node, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")},
			External: netip.MustParseAddr(nodeExternal)},
		{Name: "gateway-node", IP: gatewayNode, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}},
	}
	peer := desired.Peer{Configuration: c.peering.Configuration, Server: c.peering.Server, Client: c.peering.Client}
	for _, n := range c.peering.Nodes {
		c.hosts = append(c.hosts, desired.Host{Name: n.Name, IP: n.IP, External: n.External, Nodes: []netip.Addr{node, gatewayNode},
			MTU: 1500, Peers: []desired.Peer{peer}})
	}
}

func (c *cluster) start(t *testing.T) {
	t.Helper()
	for i, host := range []*netlab.Host{c.node, c.gatewayNode} {
		c.agents = append(c.agents, start(t, host, "agent"))
		require.Positive(t, c.agents[i].apply(c.hosts[i]))
	}
	c.gateway = start(t, c.gate, "gateway")
	require.Positive(t, c.gateway.apply(c.peering))
}

// use passes another Configuration to the gateway and the agents.
func (c *cluster) use(configuration *networking.Configuration) {
	c.peering.Configuration = configuration
	c.gateway.apply(c.peering)
	for i := range c.agents {
		c.hosts[i].Peers[0].Configuration = configuration
		c.agents[i].apply(c.hosts[i])
	}
}

// refusalTimeout is how long the test tries to open a connection that must fail. With a shorter timeout, the attempt
// might end before the first packet is dropped.
const refusalTimeout = 300 * time.Millisecond

// connects reports whether the host can open a connection to the address.
func connects(host *netlab.Host, address string) bool { return connectsFrom(host, "", address) }

// connectsFrom reports whether the host can open a connection to address from the address source.
func connectsFrom(host *netlab.Host, source, address string) bool {
	return host.Do(func() error {
		dialer := net.Dialer{Timeout: refusalTimeout}
		if source != "" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
		}
		connection, err := dialer.Dial("tcp4", address)
		if err == nil {
			_ = connection.Close()
		}
		return err
	}) == nil
}

// dropped returns the numbers of packets that a gateway's rules have counted, by the comment of the rule.
func dropped(t *testing.T, host *netlab.Host) map[string]uint64 {
	t.Helper()
	return droppedBy(t, host, "arrival", "forward", "input")
}

// droppedBy does the same for the given chains of a gateway or a node.
func droppedBy(t *testing.T, host *netlab.Host, chains ...string) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	inNFTables(t, host, func(c *nftables.Conn) {
		table := &nftables.Table{Name: desired.TableName, Family: nftables.TableFamilyIPv4}
		for _, chain := range chains {
			rules, err := c.GetRules(table, &nftables.Chain{Name: chain, Table: table})
			require.NoError(t, err)
			for _, r := range rules {
				comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
				for _, e := range r.Exprs {
					if counter, ok := e.(*expr.Counter); ok {
						counts[comment] += counter.Packets
					}
				}
			}
		}
	})
	return counts
}

// listen serves connections on port 8080 of a host. It sends a line with the client's address as the server sees it,
// and then echoes each byte.
func listen(t *testing.T, host *netlab.Host) {
	t.Helper()
	serveTCP(t, host, "8080", func(connection net.Conn) {
		source := connection.RemoteAddr().(*net.TCPAddr).IP
		if _, err := fmt.Fprintln(connection, source); err == nil {
			_, _ = io.Copy(connection, connection)
		}
	})
}

// serveTCP serves connections on a port of a host until the test ends. Each one is closed when handle returns.
func serveTCP(t *testing.T, host *netlab.Host, port string, handle func(net.Conn)) {
	t.Helper()
	var listener net.Listener
	require.NoError(t, host.Do(func() (err error) {
		listener, err = net.Listen("tcp4", ":"+port)
		return err
	}))
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				handle(connection)
			}()
		}
	}()
}

// dial opens a connection from a host. It returns the connection and the source address that the server sees.
func dial(t *testing.T, host *netlab.Host, address string) (net.Conn, string) {
	t.Helper()
	return dialFrom(t, host, "", address)
}

// dialFrom does the same as dial, from the address own of the host.
func dialFrom(t *testing.T, host *netlab.Host, own, address string) (net.Conn, string) {
	t.Helper()
	var connection net.Conn
	require.NoError(t, host.Do(func() (err error) {
		dialer := net.Dialer{Timeout: 10 * time.Second}
		if own != "" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(own)}
		}
		connection, err = dialer.Dial("tcp4", address)
		return err
	}))
	t.Cleanup(func() { _ = connection.Close() })
	var source string
	_, err := fmt.Fscanln(connection, &source)
	require.NoError(t, err)
	return connection, source
}

// exchange sends bytes and waits for their echo. It returns how long this took.
func exchange(t *testing.T, connection net.Conn) time.Duration {
	t.Helper()
	begun := time.Now()
	message := make([]byte, 20_000)
	require.NoError(t, connection.SetDeadline(begun.Add(30*time.Second)))
	go func() { _, _ = connection.Write(message) }()
	_, err := io.ReadFull(connection, message)
	require.NoError(t, err)
	return time.Since(begun)
}

// masquerade does the work of a network plugin: packets of pods to destinations outside the cluster, and packets from
// outside to pods, get the node's address as their source.
func masquerade(t *testing.T, node *netlab.Host) {
	t.Helper()
	inNFTables(t, node, func(c *nftables.Conn) {
		table := c.AddTable(&nftables.Table{Name: "cni", Family: nftables.TableFamilyIPv4})
		chain := c.AddChain(&nftables.Chain{Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum:  nftables.ChainHookPostrouting,
			Priority: nftables.ChainPriorityNATSource})
		pods := func(offset uint32, op expr.CmpOp) []expr.Any {
			return []expr.Any{
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 2},
				&expr.Cmp{Op: op, Register: 1, Data: []byte{10, 1}},
			}
		}
		const source, destination = 12, 16
		for _, match := range [][]expr.Any{
			append(pods(source, expr.CmpOpEq), pods(destination, expr.CmpOpNeq)...),
			append(pods(source, expr.CmpOpNeq), pods(destination, expr.CmpOpEq)...),
		} {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(match, &expr.Masq{})})
		}
	})
}

// forwardPort does the work of kube-proxy for a NodePort.
func forwardPort(t *testing.T, node *netlab.Host, port uint16, pod string) {
	t.Helper()
	inNFTables(t, node, func(c *nftables.Conn) {
		table := c.AddTable(&nftables.Table{Name: "proxy", Family: nftables.TableFamilyIPv4})
		chain := c.AddChain(&nftables.Chain{Name: "prerouting", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum:  nftables.ChainHookPrerouting,
			Priority: nftables.ChainPriorityNATDest})
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, "internet")
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Register: 1, Data: name},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{unix.IPPROTO_UDP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Immediate{Register: 1, Data: netip.MustParseAddr(pod).AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
		}})
	})
}

// translateSource gives packets of pods to a UDP port another address of their node, before masquerade does, until the test ends. A network
// plugin with a tunnel on the second link of the node does so.
func translateSource(t *testing.T, node *netlab.Host, port uint16, address string) {
	t.Helper()
	table := &nftables.Table{Name: "second", Family: nftables.TableFamilyIPv4}
	inNFTables(t, node, func(c *nftables.Conn) {
		c.AddTable(table)
		chain := c.AddChain(&nftables.Chain{Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum:  nftables.ChainHookPostrouting,
			Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource - 10)})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{unix.IPPROTO_UDP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Immediate{Register: 1, Data: netip.MustParseAddr(address).AsSlice()},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
		}})
	})
	t.Cleanup(func() { inNFTables(t, node, func(c *nftables.Conn) { c.DelTable(table) }) })
}

func inNFTables(t *testing.T, host *netlab.Host, f func(*nftables.Conn)) {
	t.Helper()
	require.NoError(t, host.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		f(c)
		return c.Flush()
	}))
}
