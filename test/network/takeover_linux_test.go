// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/takeover"
	"github.com/refract-project/refract/test/support/netlab"
	"github.com/refract-project/refract/test/support/testenv"
)

// secondGatewayIP is the address of the second pod of a gateway, on the same node as the first one.
const secondGatewayIP = "10.1.2.6"

const electedTakeovers, lostTakeovers, leavingTakeovers = `refract_gateway_takeovers_total{reason="elected"}`,
	`refract_gateway_takeovers_total{reason="lost"}`, `refract_gateway_takeovers_total{reason="leaving"}`

const answeredProbes = "refract_gateway_answered_probes_total"

// TestTakeover runs two pods of each gateway. While a pod of rome exchanges packets with a pod of milan, the test kills
// the active gateway pods, lets them end, and blocks their probes.
func TestTakeover(t *testing.T) {
	netlab.Need(t)
	begun := time.Now()
	rome, milan, pods := newElectingSites(t, agentsGroup, gatewaysGroup)
	for _, s := range []*site{rome, milan} {
		active, standby := pods[s].awaitRoles()
		require.Equal(t, 1.0, active.metric(electedTakeovers))
		require.Zero(t, standby.metric(electedTakeovers))
		lease := s.readLease(t)
		require.Equal(t, gatewayName, lease.OwnerReferences[0].Name)
		require.Equal(t, pods[s].addressOf(active), *lease.Spec.HolderIdentity)
		_, node := s.readEndpoint(t)
		require.Equal(t, "gateway-node", node)
		s.awaitSlice(t, pods[s].addressOf(active))
	}
	echoes := startEchoes(t, rome.pod, milan.pod, "10.61.1.10")
	echoes.await(t)
	listen(t, milan.pod)
	connection, _ := dial(t, rome.pod, "10.61.1.10:8080")
	flow := startFlow(t, connection)

	for _, s := range []*site{rome, milan} {
		end := map[*site]string{rome: "client", milan: "server"}[s]
		t.Run("killed "+end, func(t *testing.T) {
			active, standby := pods[s].awaitRoles()
			before, took := s.readLease(t), standby.metric(lostTakeovers)
			echoes.longestGap()
			active.kill()
			await(t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
			echoes.await(t)
			t.Logf("%s killed: longest gap %s", end, echoes.longestGap())
			require.Equal(t, took+1, standby.metric(lostTakeovers))
			after := s.readLease(t)
			require.Equal(t, pods[s].addressOf(standby), *after.Spec.HolderIdentity)
			require.NotEqual(t, before.ResourceVersion, after.ResourceVersion)
			s.awaitSlice(t, pods[s].addressOf(standby))
			active.start()
			now, _ := pods[s].awaitRoles()
			require.Equal(t, standby, now, "a pod that comes back is a standby")
			require.Equal(t, after.ResourceVersion, s.readLease(t).ResourceVersion, "no writes after a takeover")
		})
		t.Run("planned end of the "+end, func(t *testing.T) {
			active, standby := pods[s].awaitRoles()
			answered := active.metric(answeredProbes)
			await(t, func() error { return expect(active.metric(answeredProbes) > answered, true) })
			took := standby.metric(leavingTakeovers)
			echoes.longestGap()
			begun := time.Now()
			require.NoError(t, active.process.Process.Signal(unix.SIGTERM))
			require.NoError(t, active.process.Wait())
			ended := time.Since(begun)
			await(t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
			echoes.await(t)
			t.Logf("%s handed over: ended after %s, longest gap %s", end, ended.Round(time.Millisecond), echoes.longestGap())
			// The pod that has taken over was active before the other one. What it knows of the connection is old.
			flow.await(t)
			require.Equal(t, took+1, standby.metric(leavingTakeovers))
			require.Contains(t, active.log.String(), "Waiting for another pod to take over")
			require.NotContains(t, active.log.String(), "No other pod has taken over")
			active.start()
			now, _ := pods[s].awaitRoles()
			require.Equal(t, standby, now)
		})
	}
	t.Run("costs", func(t *testing.T) {
		c := newCosts()
		c.measureMemory(t, rome, milan, pods, "memory", 0)
		c.measureGateways(t, rome, milan, pods)
		c.measureWrites(t, rome, begun)
		require.NotEmpty(t, c.table.Figures)
	})
	t.Run("restart of the only pod", func(t *testing.T) {
		active, standby := pods[rome].awaitRoles()
		standby.kill()
		before := rome.readLease(t)
		active.restart()
		await(t, func() error { return expect(active.metric("refract_gateway_active"), 1.0) })
		echoes.await(t)
		require.Equal(t, before.ResourceVersion, rome.readLease(t).ResourceVersion)
		begun := time.Now()
		require.NoError(t, active.process.Process.Signal(unix.SIGTERM))
		require.NoError(t, active.process.Wait())
		t.Logf("without a standby: ended after %s", time.Since(begun).Round(time.Millisecond))
		require.NotContains(t, active.log.String(), "Waiting for another pod to take over")
		active.start()
		standby.start()
		pods[rome].awaitRoles()
		echoes.await(t)
	})
	t.Run("status changed by somebody else", func(t *testing.T) {
		active, standby := pods[rome].awaitRoles()
		before := rome.readLease(t)
		rome.setActivePod(t, networking.IP(pods[rome].addressOf(standby)))
		await(t, func() error {
			endpoint, _ := rome.readEndpoint(t)
			return expect(endpoint, pods[rome].addressOf(active))
		})
		echoes.await(t)
		require.Equal(t, before.ResourceVersion, rome.readLease(t).ResourceVersion)
	})
	t.Run("API server away", func(t *testing.T) {
		active, standby := pods[milan].awaitRoles()
		before := milan.readLease(t)
		active.cut()
		echoes.await(t)
		standby.cut()
		active.kill()
		await(t, func() error { return standby.logged("Taking over failed") })
		require.Zero(t, standby.metric("refract_gateway_active"))
		require.Equal(t, before.ResourceVersion, milan.readLease(t).ResourceVersion)
		standby.connect()
		await(t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
		echoes.await(t)
		active.connect()
		active.start()
		pods[milan].awaitRoles()
	})
	t.Run("probes blocked", func(t *testing.T) {
		active, standby := pods[rome].awaitRoles()
		before := rome.transitions(t)
		blockPort(t, rome.gatewayNode, takeover.Port)
		await(t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
		begun := time.Now()
		echoes.await(t)
		// The pod that was active waits before it takes over again, and reports the reason in an Event.
		await(t, func() error { return rome.hasEvent(fmt.Sprintf("UDP port %d", takeover.Port)) })
		require.Greater(t, time.Since(begun), 8*time.Second)
		require.LessOrEqual(t, rome.transitions(t)-before, int32(2), "two pods take turns")
		await(t, func() error { return expect(active.metric("refract_gateway_active"), 1.0) })
		echoes.await(t)
		allowPorts(t, rome.gatewayNode)
	})
	for _, s := range []*site{rome, milan} {
		for _, c := range pods[s].commands {
			require.NotContains(t, c.log.String(), "forbidden", "%s", c)
		}
	}
}

// TestDialOut lets a second server take over at an address that the client does not know, so that only the server can
// start a handshake. The first server keeps running. Otherwise, a client of Refract would try to connect to it again,
// from another port.
func TestDialOut(t *testing.T) {
	netlab.Need(t)
	rome, milan := &cluster{name: "rome"}, &cluster{name: "milan"}
	describePeerings(rome, milan)
	host := netlab.NewHost(t, "rome-gateway")
	servers := map[string]*netlab.Host{internetMil: netlab.NewHost(t, "milan-gateway"), "203.0.113.3": netlab.NewHost(t, "milan-gateway-2")}
	for address, server := range servers {
		link := "to-" + strings.TrimPrefix(address, "203.0.113.")
		netlab.Cable(host, link, internetRome+"/32", server, "eth0", address+"/32")
		host.Route(address+"/32", "", link)
		server.Route(internetRome+"/32", "", "eth0")
		server.Route("0.0.0.0/0", internetRome, "eth0")
	}
	isConnected := func(e event) bool { return e.Connected != nil && *e.Connected }
	first := start(t, servers[internetMil], "gateway")
	first.apply(milan.peering)
	clientEnd := start(t, host, "gateway")
	clientEnd.apply(rome.peering)
	endpoint := first.awaitEvent(func(e event) bool { return e.PeerEndpoint.IsValid() }).PeerEndpoint
	require.Equal(t, internetRome, endpoint.Addr().String())
	clientEnd.awaitEvent(isConnected)

	t.Setenv(lastEndpointVariable, endpoint.String())
	second := start(t, servers["203.0.113.3"], "gateway")
	milan.peering.Standby = true
	second.apply(milan.peering)
	begun := time.Now()
	milan.peering.Standby = false
	require.NoError(t, json.NewEncoder(second.input).Encode(milan.peering))
	second.awaitEvent(isConnected)
	t.Logf("the second server was connected after %s", time.Since(begun).Round(time.Millisecond))
	require.Equal(t, endpoint, second.awaitEvent(func(e event) bool { return e.PeerEndpoint.IsValid() }).PeerEndpoint)
}

// TestTwoActivePods runs two pods of a client that are both active, because the first one does not know that it was replaced. It
// must find this out from the peer, and become active again when the API server confirms it.
func TestTwoActivePods(t *testing.T) {
	netlab.Need(t)
	rome, milan := &cluster{name: "rome"}, &cluster{name: "milan"}
	describePeerings(rome, milan)
	server := netlab.NewHost(t, "milan-gateway")
	server.Address("lo", internetMil+"/32")
	start(t, server, "gateway").apply(milan.peering)
	var pods []*process
	var files []string
	becomes := func(pod *process, active bool) {
		t.Helper()
		pod.awaitEvent(func(e event) bool { return e.Active != nil && *e.Active == active })
	}
	for i, address := range []string{internetRome, "203.0.113.3"} {
		host, link := netlab.NewHost(t, fmt.Sprint("rome-gateway-", i)), fmt.Sprint("to-", i)
		netlab.Cable(server, link, "", host, "eth0", address+"/32")
		server.Route(address+"/32", "", link)
		host.Route(internetMil+"/32", "", "eth0")
		files = append(files, filepath.Join(t.TempDir(), "active"))
		t.Setenv(activeFileVariable, files[i])
		if i == 1 {
			require.NoError(t, os.WriteFile(files[i], nil, 0o600))
		}
		pods = append(pods, start(t, host, "gateway"))
		pods[i].apply(rome.peering)
		if i == 0 {
			pods[i].awaitConnected(true)
		}
	}
	begun := time.Now()
	becomes(pods[0], false)
	t.Logf("the first pod knew after %s that it was replaced", time.Since(begun).Round(time.Millisecond))
	pods[1].awaitConnected(true)

	require.NoError(t, os.WriteFile(files[0], nil, 0o600))
	require.NoError(t, os.Remove(files[1]))
	becomes(pods[0], true)
	becomes(pods[1], false)
	pods[0].awaitConnected(true)
}

// newElectingSites creates two sites with two pods of a gateway each. The groups are those whose writes are in the audit logs.
func newElectingSites(t *testing.T, audited ...string) (rome, milan *site, pods map[*site]*gatewayPods) {
	t.Helper()
	options := testenv.Options{CRDPaths: []string{"../../api/crds/network"}, NoScheduler: true, AuditWritesOf: audited}
	romeOptions, milanOptions := options, options
	romeOptions.Name, milanOptions.Name = "rome", "milan"
	clusters := testenv.ForTest(t, romeOptions, milanOptions)
	rome, milan = newSite(t, clusters[0]), newSite(t, clusters[1])
	netlab.Cable(rome.gatewayNode, "internet", internetRome+"/24", milan.gatewayNode, "internet", internetMil+"/24")
	pods = map[*site]*gatewayPods{}
	for _, s := range []*site{rome, milan} {
		s.electing = true
		pods[s] = startGatewayPods(t, s)
		s.startAgents(t)
	}
	rome.createPeering(t, milan, milanInRome)
	milan.createPeering(t, rome, romeInMilan)
	forwardToActivePod(t, milan, nil)
	return rome, milan, pods
}

// gatewayPods are the two pods of a gateway.
type gatewayPods struct {
	t        *testing.T
	commands [2]*command
}

func startGatewayPods(t *testing.T, s *site) *gatewayPods {
	t.Helper()
	second := netlab.NewHost(t, s.name+"-gateway-2")
	netlab.Cable(s.gatewayNode, "gateway-2", hop+"/32", second, "eth0", secondGatewayIP+"/32")
	s.gatewayNode.Route(secondGatewayIP+"/32", "", "gateway-2")
	second.Route("0.0.0.0/0", hop, "eth0")
	p := &gatewayPods{t: t}
	for i, host := range []*netlab.Host{s.gate, second} {
		p.commands[i] = s.startCommand(t, host, "gateway", "127.0.0.1:8081", "127.0.0.1:8082", "run", "--cluster-id="+s.name,
			"--namespace="+s.tenant, "--name="+gatewayName, "--keys-dir="+s.keysDir, "--alternate-keys-dir="+s.alternateKeysDir,
			"--standby", "--node-name=gateway-node", "--pod-ip="+p.address(i), "--wireguard="+string(wireGuard()))
	}
	return p
}

func (p *gatewayPods) address(i int) string { return []string{gatewayIP, secondGatewayIP}[i] }

func (p *gatewayPods) addressOf(c *command) string {
	if c == p.commands[0] {
		return p.address(0)
	}
	return p.address(1)
}

// awaitRoles waits until one pod is active and connected, and the other one is a standby that can take over.
func (p *gatewayPods) awaitRoles() (active, standby *command) {
	p.t.Helper()
	await(p.t, func() error {
		for i, c := range p.commands {
			active, standby = c, p.commands[1-i]
			if active.metric("refract_gateway_connected") == 1 && active.metric("refract_gateway_active") == 1 &&
				standby.metric("refract_gateway_active") == 0 && standby.metric(`refract_gateway_comparisons_total{part="network"}`) > 0 {
				return nil
			}
		}
		return fmt.Errorf("%s and %s have not one active pod", p.commands[0], p.commands[1])
	})
	return active, standby
}

// awaitSlice waits until the EndpointSlice of the Service leads to one pod.
func (s *site) awaitSlice(t *testing.T, address string) {
	t.Helper()
	await(t, func() error {
		slice := &discoveryv1.EndpointSlice{}
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.tenant, Name: wire.GatewayElection}, slice); err != nil {
			return err
		}
		if len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != address || *slice.Endpoints[0].NodeName != "gateway-node" {
			return fmt.Errorf("the Service leads to %v instead of %s", slice.Endpoints, address)
		}
		return nil
	})
}

func (s *site) readLease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.tenant, Name: wire.GatewayElection}, lease))
	return lease
}

func (s *site) transitions(t *testing.T) int32 {
	t.Helper()
	if transitions := s.readLease(t).Spec.LeaseTransitions; transitions != nil {
		return *transitions
	}
	return 0
}

// readEndpoint returns the address and the node of the active pod. They are empty if no pod is active.
func (s *site) readEndpoint(t *testing.T) (address, node string) {
	t.Helper()
	var endpoint *networking.InternalGatewayEndpoint
	key := client.ObjectKey{Namespace: s.tenant, Name: gatewayName}
	if s.name == "milan" {
		server := &networking.GatewayServer{}
		if s.client.Get(context.Background(), key, server) == nil {
			endpoint = server.Status.InternalEndpoint
		}
	} else {
		gatewayClient := &networking.GatewayClient{}
		if s.client.Get(context.Background(), key, gatewayClient) == nil {
			endpoint = gatewayClient.Status.InternalEndpoint
		}
	}
	if endpoint == nil || endpoint.IP == nil {
		return "", ""
	}
	if endpoint.Node != nil {
		node = *endpoint.Node
	}
	return string(*endpoint.IP), node
}

// forwardToActivePod does what kube-proxy does for a NodePort whose Service selects the active pod. Connections that exist keep their
// translation. moved is called after each change of the active pod, and may be nil.
func forwardToActivePod(t *testing.T, s *site, moved func()) {
	t.Helper()
	watch, err := s.client.Watch(t.Context(), &networking.GatewayServerList{}, client.InNamespace(s.tenant))
	require.NoError(t, err)
	var ended sync.WaitGroup
	t.Cleanup(func() { watch.Stop(); ended.Wait() })
	table := &nftables.Table{Name: "proxy", Family: nftables.TableFamilyIPv4}
	inNFTables(t, s.gatewayNode, func(c *nftables.Conn) { c.AddTable(table) })
	ended.Go(func() {
		last := ""
		for event := range watch.ResultChan() {
			server, ok := event.Object.(*networking.GatewayServer)
			if !ok || server.Status.InternalEndpoint == nil || server.Status.InternalEndpoint.IP == nil {
				continue
			}
			if next := string(*server.Status.InternalEndpoint.IP); next != last {
				inNFTables(t, s.gatewayNode, func(c *nftables.Conn) { c.DelTable(table) })
				forwardPort(t, s.gatewayNode, tunnelPort, next)
				if moved != nil {
					moved()
				}
				last = next
			}
		}
	})
}

// blockPort drops the packets to a UDP port that a node forwards, like a NetworkPolicy that does not allow the port. allowPorts undoes it.
func blockPort(t *testing.T, node *netlab.Host, port uint16) {
	t.Helper()
	dropAt(t, node, nftables.ChainHookForward, port)
}

// dropAt drops packets to a UDP port at a hook.
func dropAt(t *testing.T, host *netlab.Host, hook *nftables.ChainHook, port uint16) {
	t.Helper()
	inNFTables(t, host, func(c *nftables.Conn) {
		table := c.AddTable(policyTable)
		chain := c.AddChain(&nftables.Chain{Name: "drop", Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityFilter})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{unix.IPPROTO_UDP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	})
}

var policyTable = &nftables.Table{Name: "policy", Family: nftables.TableFamilyIPv4}

// allowPorts removes the rules of blockPort and dropAt.
func allowPorts(t *testing.T, host *netlab.Host) {
	t.Helper()
	inNFTables(t, host, func(c *nftables.Conn) { c.DelTable(policyTable) })
}

// echoes are messages that a pod sends to another one and back, 10 ms apart.
type echoes struct {
	mutex   sync.Mutex
	count   int
	last    time.Time
	longest time.Duration
	err     error // reason why a connection has ended
}

const echoPort = 9000

// startEchoes sends UDP packets to echoPort until the test ends.
func startEchoes(t *testing.T, from, to *netlab.Host, address string) *echoes {
	t.Helper()
	return startEchoesAt(t, from, to, netip.AddrPortFrom(netip.MustParseAddr(address), echoPort))
}

// startEchoesAt sends UDP packets until the test ends.
func startEchoesAt(t *testing.T, from, to *netlab.Host, target netip.AddrPort) *echoes {
	t.Helper()
	var near, far *net.UDPConn
	require.NoError(t, to.Do(func() (err error) {
		far, err = net.ListenUDP("udp4", &net.UDPAddr{Port: int(target.Port())})
		return err
	}))
	require.NoError(t, from.Do(func() (err error) {
		near, err = net.ListenUDP("udp4", nil)
		return err
	}))
	e := &echoes{last: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	t.Cleanup(func() { cancel(); _ = near.Close(); _ = far.Close(); ended.Wait() })
	ended.Go(func() {
		buffer := make([]byte, 100)
		for ctx.Err() == nil {
			if n, source, err := far.ReadFromUDPAddrPort(buffer); err == nil {
				_, _ = far.WriteToUDPAddrPort(buffer[:n], source)
			}
		}
	})
	ended.Go(func() {
		for number := uint64(0); ctx.Err() == nil; number++ {
			_, _ = near.WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, number), target)
			time.Sleep(10 * time.Millisecond)
		}
	})
	ended.Go(func() {
		buffer := make([]byte, 100)
		for ctx.Err() == nil {
			if _, _, err := near.ReadFromUDPAddrPort(buffer); err == nil {
				e.record(time.Now())
			}
		}
	})
	return e
}

// startFlow sends numbers on a connection that echoes them, 10 ms apart, until the test ends. The flow fails if another number comes back
// than the next one.
func startFlow(t *testing.T, connection net.Conn) *echoes {
	t.Helper()
	e := &echoes{last: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	t.Cleanup(func() { cancel(); _ = connection.Close(); ended.Wait() })
	ended.Go(func() {
		for number := uint64(0); ctx.Err() == nil; number++ {
			if _, err := connection.Write(binary.BigEndian.AppendUint64(nil, number)); err != nil {
				e.fail(err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	ended.Go(func() {
		buffer := make([]byte, 8)
		for number := uint64(0); ctx.Err() == nil; number++ {
			if _, err := io.ReadFull(connection, buffer); err != nil {
				e.fail(err)
				return
			}
			if found := binary.BigEndian.Uint64(buffer); found != number {
				e.fail(fmt.Errorf("%d came back instead of %d", found, number))
				return
			}
			e.record(time.Now())
		}
	})
	return e
}

func (e *echoes) fail(err error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.err = err
}

func (e *echoes) record(now time.Time) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.longest = max(e.longest, now.Sub(e.last))
	e.count, e.last = e.count+1, now
}

// await waits until packets that were sent after the call have come back.
func (e *echoes) await(t *testing.T) {
	t.Helper()
	time.Sleep(200 * time.Millisecond) // wait for packets that are still in transit
	e.mutex.Lock()
	before := e.count
	e.mutex.Unlock()
	await(t, func() error {
		e.mutex.Lock()
		defer e.mutex.Unlock()
		if e.count < before+10 {
			return fmt.Errorf("no packets come back for %s (error of the connection: %v)", time.Since(e.last), e.err)
		}
		return nil
	})
}

// longestGap returns the longest time between two packets that came back since the last call.
func (e *echoes) longestGap() time.Duration {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	longest := e.longest
	e.longest = 0
	return longest.Round(time.Millisecond)
}
