// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/test/support/netlab"
)

// homeAddress is the cluster IP that three Services have: one of rome and one of milan in the clusters of these consumers, and one of
// the provider in its own cluster.
const homeAddress = "10.96.0.5"

// homeLab is a node of a provider with pods.
type homeLab struct {
	t     *testing.T
	node  *netlab.Host
	pods  map[string]*netlab.Host
	agent *process
	host  desired.Host
}

// Pods of the lab. The first two run for rome, the third one for milan, and the others for the provider.
var homePods = []struct{ name, address string }{
	{"rome", "10.1.1.10"}, {"rome-2", "10.1.1.11"}, {"milan", "10.1.1.12"}, {"provider", "10.1.1.13"},
	{"web-0", "10.1.1.20"}, {"web-1", "10.1.1.21"}, {"db", "10.1.1.30"}, {"own", "10.1.1.40"},
}

// newHomeLab starts the agent and the servers. The node has rules such as those of kube-proxy, for a Service of the provider with the
// address that also Services of the consumers have.
func newHomeLab(t *testing.T) *homeLab {
	t.Helper()
	netlab.Need(t)
	l := &homeLab{t: t, node: netlab.NewHost(t, "node"), pods: map[string]*netlab.Host{}}
	for i, p := range homePods {
		pod, link := netlab.NewHost(t, p.name), fmt.Sprintf("pod%d", i)
		netlab.Cable(l.node, link, hop+"/32", pod, "eth0", p.address+"/32")
		l.node.Route(p.address+"/32", "", link)
		pod.Route("0.0.0.0/0", hop, "eth0")
		l.pods[p.name] = pod
		serveName(t, pod, p.name)
	}
	outside := netlab.NewHost(t, "outside")
	netlab.Cable(l.node, "eth0", nodeIP+"/24", outside, "eth0", gatewayNodeIP+"/24")
	l.node.Route("0.0.0.0/0", gatewayNodeIP, "eth0")
	l.node.Sysctl("net/ipv4/ip_forward", "1")
	proxyService(t, l.node, homeAddress, 80, "10.1.1.40", 8080)
	l.host = desired.Host{Name: "node", IP: netip.MustParseAddr(nodeIP), MTU: 1500, Nodes: []netip.Addr{netip.MustParseAddr(nodeIP)},
		Home: &desired.Home{
			Pods: []desired.HomePod{homePodOf("rome", "10.1.1.10"), homePodOf("rome", "10.1.1.11"), homePodOf("milan", "10.1.1.12"),
				homePodOf("rome", "10.1.1.20"), homePodOf("rome", "10.1.1.21")},
			Ports: []desired.HomePort{
				homePortOf("rome", netstate.TCP, "10.1.1.20:8080", "10.1.1.21:8080"),
				homePortOf("rome", netstate.UDP, "10.1.1.20:8080"),
				homePortOf("milan", netstate.TCP, "10.1.1.30:8080"),
			}}}
	l.agent = start(t, l.node, "agent")
	return l
}

func homePodOf(consumer, address string) desired.HomePod {
	return desired.HomePod{Consumer: consumer, Address: netip.MustParseAddr(address)}
}

func homePortOf(consumer string, protocol uint8, endpoints ...string) desired.HomePort {
	port := desired.HomePort{Consumer: consumer, Address: netip.MustParseAddr(homeAddress), Protocol: protocol, Port: 80}
	for _, e := range endpoints {
		port.Endpoints = append(port.Endpoints, netip.MustParseAddrPort(e))
	}
	return port
}

// ask opens a connection from a pod to port 80 of homeAddress. It returns the name of the server and the source address that it sees.
func (l *homeLab) ask(pod, network string) (server, source string, err error) {
	return l.askFrom(pod, network, 0)
}

func (l *homeLab) askFrom(pod, network string, port int) (server, source string, err error) {
	err = l.pods[pod].Do(func() error {
		dialer := net.Dialer{Timeout: refusalTimeout}
		if network == "udp4" {
			dialer.LocalAddr = &net.UDPAddr{Port: port}
		}
		c, err := dialer.Dial(network, homeAddress+":80")
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(refusalTimeout)); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(c, "who"); err != nil {
			return err
		}
		_, err = fmt.Fscanln(bufio.NewReader(c), &server, &source)
		return err
	})
	return server, source, err
}

// servers returns the servers that answer many connections of a pod, and how many each of them.
func (l *homeLab) servers(pod, network string) map[string]int {
	l.t.Helper()
	counts := map[string]int{}
	for range 40 {
		server, _, err := l.ask(pod, network)
		require.NoError(l.t, err, "from %s", pod)
		counts[server]++
	}
	return counts
}

// TestServicesOfHome reaches Services by the cluster IP that they have in the cluster of their consumer.
func TestServicesOfHome(t *testing.T) {
	l := newHomeLab(t)
	server, _, err := l.ask("rome", "tcp4")
	require.NoError(t, err)
	require.Equal(t, "own", server, "before the agent starts, the Service of the provider answers")
	require.Positive(t, l.agent.apply(l.host))
	rules := func() int {
		server, source, err := l.ask("milan", "tcp4")
		require.NoError(t, err)
		require.Equal(t, "db 10.1.1.12", server+" "+source, "a Service of another consumer has the same address")
		return l.agent.apply(l.host)
	}
	require.Zero(t, rules(), "the second time, nothing is written")

	t.Run("endpoints at random", func(t *testing.T) {
		counts := l.servers("rome", "tcp4")
		require.Len(t, counts, 2, "%v", counts)
		require.Positive(t, counts["web-0"])
		require.Positive(t, counts["web-1"])
	})
	t.Run("UDP", func(t *testing.T) {
		server, source, err := l.ask("rome", "udp4")
		require.NoError(t, err)
		require.Equal(t, "web-0 10.1.1.10", server+" "+source)
	})
	t.Run("pods of the provider are not translated", func(t *testing.T) {
		require.Equal(t, map[string]int{"own": 40}, l.servers("provider", "tcp4"))
		_, _, err := l.ask("provider", "udp4")
		require.Error(t, err)
	})
	t.Run("the node is not translated", func(t *testing.T) {
		require.False(t, connects(l.node, homeAddress+":80"))
	})
	t.Run("other ports are not translated", func(t *testing.T) {
		proxyService(t, l.node, homeAddress, 81, "10.1.1.40", 8080)
		require.True(t, connects(l.pods["rome"], homeAddress+":81"))
	})
	t.Run("pod that is its own endpoint", func(t *testing.T) {
		counts := map[string]int{}
		for range 40 {
			server, source, err := l.ask("web-0", "tcp4")
			require.NoError(t, err)
			counts[server]++
			if server == "web-0" {
				require.Equal(t, hop, source, "the answers of a pod to itself pass the node")
			}
		}
		require.Len(t, counts, 2)
	})
	t.Run("session affinity", func(t *testing.T) {
		l.host.Home.Ports[0].Sticky = true
		require.Positive(t, l.agent.apply(l.host))
		first := l.servers("rome", "tcp4")
		require.Len(t, first, 1, "%v", first)
		l.agent.kill()
		l.agent = l.agent.restart()
		require.Zero(t, l.agent.apply(l.host), "a new process writes nothing")
		require.Equal(t, first, l.servers("rome", "tcp4"))
		chosen := map[string]bool{}
		for i := range 20 {
			address := fmt.Sprintf("10.1.1.%d", 100+i)
			l.pods["rome"].Address("eth0", address+"/32")
			l.node.Route(address+"/32", "", "pod0")
			l.host.Home.Pods = append(l.host.Home.Pods, homePodOf("rome", address))
		}
		require.Positive(t, l.agent.apply(l.host))
		for i := range 20 {
			connection, err := dialAddress(l.pods["rome"], fmt.Sprintf("10.1.1.%d", 100+i), homeAddress+":80")
			require.NoError(t, err)
			var server string
			_, err = fmt.Fscan(connection, &server)
			require.NoError(t, err)
			chosen[server] = true
			require.NoError(t, connection.Close())
		}
		require.Len(t, chosen, 2, "clients are spread over the endpoints")
		l.host.Home.Ports[0].Sticky = false
		require.Positive(t, l.agent.apply(l.host))
		require.Len(t, l.servers("rome", "tcp4"), 2)
	})
	t.Run("established connections survive changes", func(t *testing.T) {
		l.host.Home.Ports[0].Endpoints = l.host.Home.Ports[0].Endpoints[:1]
		require.Positive(t, l.agent.apply(l.host))
		connection, err := dialAddress(l.pods["rome"], "", homeAddress+":80")
		require.NoError(t, err)
		defer connection.Close()
		reader := bufio.NewReader(connection)
		_, err = reader.ReadString('\n')
		require.NoError(t, err)
		l.host.Home.Ports[0].Endpoints = nil
		require.Positive(t, l.agent.apply(l.host))
		require.NoError(t, connection.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = fmt.Fprintln(connection, "again")
		require.NoError(t, err)
		answer, err := reader.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "again\n", answer)
	})
	t.Run("no endpoints", func(t *testing.T) {
		l.host.Home.Ports[0].Endpoints, l.host.Home.Ports[1].Endpoints = nil, nil
		l.agent.apply(l.host)
		for _, network := range []string{"tcp4", "udp4"} {
			_, _, err := l.ask("rome", network)
			require.ErrorIs(t, err, unix.ECONNREFUSED, network)
		}
		require.Equal(t, map[string]int{"own": 40}, l.servers("provider", "tcp4"))
	})
	t.Run("rules deleted by somebody else", func(t *testing.T) {
		l.host.Home.Ports[0] = homePortOf("rome", netstate.TCP, "10.1.1.20:8080", "10.1.1.21:8080")
		require.Positive(t, l.agent.apply(l.host))
		inNFTables(t, l.node, func(c *nftables.Conn) {
			c.DelTable(&nftables.Table{Name: desired.TableName, Family: nftables.TableFamilyIPv4})
		})
		require.Equal(t, 1, l.agent.awaitRepair())
		require.Len(t, l.servers("rome", "tcp4"), 2)
	})
	t.Run("disabled", func(t *testing.T) {
		l.host.Home = nil
		require.Positive(t, l.agent.apply(l.host))
		require.Equal(t, map[string]int{"own": 40}, l.servers("rome", "tcp4"))
	})
}

// TestStaleFlowsOfHome checks that clients that go on sending from the same port follow changes of Services. The kernel would
// otherwise continue with the first translation.
func TestStaleFlowsOfHome(t *testing.T) {
	l := newHomeLab(t)
	ports, pods := l.host.Home.Ports, l.host.Home.Pods
	ask := func() string {
		t.Helper()
		server, _, err := l.askFrom("rome", "udp4", 5000)
		if err != nil {
			return ""
		}
		return server
	}
	proxyUDPService(t, l.node, homeAddress, 80, "10.1.1.40", 8080)
	require.Equal(t, "own", ask(), "the agent does not know the pod yet")
	l.agent.apply(l.host)
	require.Equal(t, "web-0", ask())
	l.host.Home.Ports = []desired.HomePort{homePortOf("rome", netstate.UDP, "10.1.1.21:8080")}
	l.agent.apply(l.host)
	require.Equal(t, "web-1", ask(), "the endpoint was replaced")
	l.host.Home.Ports = nil
	l.agent.apply(l.host)
	require.Equal(t, "own", ask(), "the Service was removed")
	l.host.Home.Ports, l.host.Home.Pods = ports, pods[2:3]
	l.agent.apply(l.host)
	require.Equal(t, "own", ask(), "a pod of another consumer now")
	l.agent.kill()
	l.agent = l.agent.restart()
	l.host.Home.Pods = pods
	l.agent.apply(l.host)
	require.Equal(t, "web-0", ask(), "changes while the agent is not running")

	// A connection that nobody has answered is translated when its first packet is repeated.
	l.host.Home.Pods = nil
	l.agent.apply(l.host)
	answered := make(chan error, 1)
	go func() {
		answered <- l.pods["rome"].Do(func() error {
			c, err := net.DialTimeout("tcp4", "10.96.0.6:80", 20*time.Second)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}()
	time.Sleep(refusalTimeout)
	other := homePortOf("rome", netstate.TCP, "10.1.1.20:8080")
	other.Address = netip.MustParseAddr("10.96.0.6")
	l.host.Home.Pods, l.host.Home.Ports = pods, append(ports, other)
	l.agent.apply(l.host)
	require.NoError(t, <-answered)
}

// dialAddress opens a connection from an address of a host.
func dialAddress(host *netlab.Host, source, address string) (connection net.Conn, err error) {
	err = host.Do(func() error {
		dialer := net.Dialer{Timeout: 10 * time.Second}
		if source != "" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
		}
		connection, err = dialer.Dial("tcp4", address)
		return err
	})
	return connection, err
}

// serveName serves TCP and UDP on port 8080 of a host. It answers with the name and the client's address, and then echoes lines.
func serveName(t *testing.T, host *netlab.Host, name string) {
	t.Helper()
	var listener net.Listener
	var packets net.PacketConn
	require.NoError(t, host.Do(func() (err error) {
		listener, err = net.Listen("tcp4", ":8080")
		if err != nil {
			return err
		}
		packets, err = net.ListenPacket("udp4", ":8080")
		return err
	}))
	t.Cleanup(func() { _ = errors.Join(listener.Close(), packets.Close()) })
	source := func(a net.Addr) string { address, _, _ := strings.Cut(a.String(), ":"); return address }
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintln(c, name, source(c.RemoteAddr()))
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprintln(c, lines.Text())
				}
			}()
		}
	}()
	go func() {
		buffer := make([]byte, 100)
		for {
			_, client, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(fmt.Appendln(nil, name, source(client)), client)
		}
	}()
}

// proxyService does the work of kube-proxy for a port of a Service.
func proxyService(t *testing.T, node *netlab.Host, address string, port uint16, pod string, podPort uint16) {
	t.Helper()
	proxyPort(t, node, unix.IPPROTO_TCP, address, port, pod, podPort)
}

func proxyUDPService(t *testing.T, node *netlab.Host, address string, port uint16, pod string, podPort uint16) {
	t.Helper()
	proxyPort(t, node, unix.IPPROTO_UDP, address, port, pod, podPort)
}

func proxyPort(t *testing.T, node *netlab.Host, protocol byte, address string, port uint16, pod string, podPort uint16) {
	t.Helper()
	inNFTables(t, node, func(c *nftables.Conn) {
		table := c.AddTable(&nftables.Table{Name: "proxy", Family: nftables.TableFamilyIPv4})
		chain := c.AddChain(&nftables.Chain{Name: "prerouting", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum:  nftables.ChainHookPrerouting,
			Priority: nftables.ChainPriorityNATDest})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(matchService(protocol, address, port),
			&expr.Immediate{Register: 1, Data: netip.MustParseAddr(pod).AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(podPort)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
		)})
	})
}

func matchService(protocol byte, address string, port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Cmp{Register: 1, Data: netip.MustParseAddr(address).AsSlice()},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}
