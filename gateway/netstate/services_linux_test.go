// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func servicePort(owner string, protocol uint8, port uint16) ServicePort {
	return ServicePort{Owner: owner, Address: addr("10.96.0.5"), Protocol: protocol, Port: port}
}

func backends(endpoints ...string) (b Backends) {
	for _, e := range endpoints {
		b.Endpoints = append(b.Endpoints, netip.MustParseAddrPort(e))
	}
	return b
}

// withServices returns everything, and Services with each kind of port.
func withServices() State {
	s := everything()
	sticky := backends("10.1.0.20:8080", "10.1.0.21:8080", "10.1.0.22:8080")
	sticky.Sticky = true
	alone := backends("10.1.0.20:8443")
	alone.Sticky = true
	s.Table.Services = &Services{
		Pods: map[netip.Addr]string{addr("10.1.0.10"): "rome", addr("10.1.0.11"): "rome", addr("10.1.0.12"): "milan"},
		Ports: map[ServicePort]Backends{
			servicePort("rome", TCP, 80):   backends("10.1.0.20:8080", "10.1.0.21:8080"),
			servicePort("rome", UDP, 80):   backends("10.1.0.20:5353"),
			servicePort("rome", TCP, 81):   sticky,
			servicePort("rome", TCP, 82):   alone,
			servicePort("rome", SCTP, 83):  {},
			servicePort("milan", TCP, 80):  backends("10.1.0.30:9090"),
			servicePort("milan", TCP, 443): {},
		},
	}
	return s
}

// TestServicesOfOwners applies Services to a real kernel, also by a restarted process. The keys of two owners differ.
func TestServicesOfOwners(t *testing.T) {
	a, host := newTestApplier(t)
	require.Positive(t, apply(t, a, withServices()))
	read := func() *tableState {
		t.Helper()
		found, err := a.kernel.read(testScope)
		require.NoError(t, err)
		return found.table
	}
	want, err := a.kernel.encode(withServices().Table)
	require.NoError(t, err)
	require.Equal(t, want, read())
	require.Len(t, read().maps[portsMap], 5)
	require.Len(t, read().maps[endpointsMap], 8)
	require.NotEqual(t, servicePort("rome", TCP, 80).key(), servicePort("milan", TCP, 80).key())
	require.NoError(t, host.Do(func() error {
		restarted, err := NewApplier(testScope)
		require.NoError(t, err)
		defer restarted.Close()
		require.Zero(t, apply(t, restarted, withServices()))
		return nil
	}))
	for name, change := range map[string]func(*Services){
		"pod":            func(s *Services) { delete(s.Pods, addr("10.1.0.10")) },
		"owner of a pod": func(s *Services) { s.Pods[addr("10.1.0.10")] = "milan" },
		"endpoint": func(s *Services) {
			s.Ports[servicePort("rome", TCP, 80)] = backends("10.1.0.20:8080", "10.1.0.29:8080")
		},
		"more endpoints": func(s *Services) {
			s.Ports[servicePort("rome", UDP, 80)] = backends("1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4")
		},
		"fewer endpoints": func(s *Services) { s.Ports[servicePort("rome", TCP, 81)] = backends("10.1.0.20:8080") },
		"no endpoints":    func(s *Services) { s.Ports[servicePort("rome", TCP, 80)] = Backends{} },
		"endpoints again": func(s *Services) { s.Ports[servicePort("rome", SCTP, 83)] = backends("10.1.0.20:8080") },
		"port":            func(s *Services) { delete(s.Ports, servicePort("rome", TCP, 81)) },
		"everything":      func(s *Services) { *s = Services{} },
	} {
		t.Run(name, func(t *testing.T) {
			changed := withServices()
			change(changed.Table.Services)
			for _, s := range []State{changed, withServices()} {
				require.Equal(t, 1, apply(t, a, s))
				require.Zero(t, apply(t, a, s))
				want, err := a.kernel.encode(s.Table)
				require.NoError(t, err)
				require.Equal(t, want, read())
			}
		})
	}
	require.Equal(t, 1, apply(t, a, everything()))
	require.Equal(t, 1, apply(t, a, withServices()))
}

// TestServicesKeepOtherRules checks that a change of Services writes only elements and chains of Services: the counter of another rule
// is kept.
func TestServicesKeepOtherRules(t *testing.T) {
	a, host := newTestApplier(t)
	withCounter := func() State {
		s := withServices()
		s.Table.Chains = append(s.Table.Chains, Chain{Name: "counted", Type: Filter, Hook: Output, Rules: []Rule{
			{Protocol: UDP, Port: 9, Count: true, Action: Action{Accept: true}}}})
		return s
	}
	apply(t, a, withCounter())
	require.NoError(t, host.Do(func() error {
		c, err := net.Dial("udp4", "127.0.0.1:9")
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("counted"))
		return errors.Join(err, c.Close())
	}))
	changed := withCounter()
	ports := changed.Table.Services.Ports
	ports[servicePort("rome", TCP, 99)] = backends("1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4", "1.1.1.1:5")
	ports[servicePort("rome", TCP, 81)] = backends("10.1.0.20:8080", "10.1.0.21:8080")
	require.Equal(t, 1, apply(t, a, changed))
	var packets uint64
	require.NoError(t, host.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := &nftables.Table{Name: testTable, Family: nftables.TableFamilyIPv4}
		rules, err := c.GetRules(table, &nftables.Chain{Name: "counted", Table: table})
		for _, r := range rules {
			for _, e := range r.Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					packets += counter.Packets
				}
			}
		}
		return err
	}))
	require.Equal(t, uint64(1), packets)
}

// TestServicesAreRepaired removes or changes parts of Services, as another process might.
func TestServicesAreRepaired(t *testing.T) {
	a, host := newTestApplier(t)
	apply(t, a, withServices())
	table := &nftables.Table{Name: testTable, Family: nftables.TableFamilyIPv4}
	key := []byte(servicePort("rome", TCP, 80).key())
	for name, change := range map[string]func(*nftables.Conn) error{
		"element": func(c *nftables.Conn) error {
			return c.SetDeleteElements(serviceMaps[1].set(table), []nftables.SetElement{{Key: key}})
		},
		"foreign element": func(c *nftables.Conn) error {
			return c.SetAddElements(serviceMaps[0].set(table), []nftables.SetElement{{Key: []byte{1, 2, 3, 4},
				Val: []byte(ownerKey("rome"))}})
		},
		"other chain": func(c *nftables.Conn) error {
			set := serviceMaps[1].set(table)
			if err := c.SetDeleteElements(set, []nftables.SetElement{{Key: key}}); err != nil {
				return err
			}
			return c.SetAddElements(set, []nftables.SetElement{{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto,
				Chain: "pick-1"}}})
		},
		"rules of a chain": func(c *nftables.Conn) error {
			c.FlushChain(&nftables.Chain{Name: "pick-2", Table: table})
			return nil
		},
		"foreign chain": func(c *nftables.Conn) error {
			c.AddChain(&nftables.Chain{Name: "foreign", Table: table})
			return nil
		},
		"foreign map": func(c *nftables.Conn) error {
			return c.AddSet(&nftables.Set{Table: table, Name: "foreign", KeyType: nftables.TypeIPAddr}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, host.Do(func() error {
				c, err := nftables.New()
				require.NoError(t, err)
				require.NoError(t, change(c))
				return c.Flush()
			}))
			require.Equal(t, 1, apply(t, a, withServices()))
			require.Zero(t, apply(t, a, withServices()))
		})
	}
}

// TestManyServices applies 2,000 ports with three endpoints each, which exceed one message and one buffer of the kernel.
func TestManyServices(t *testing.T) {
	a, _ := newTestApplier(t)
	s := everything()
	s.Table.Services = &Services{Pods: map[netip.Addr]string{}, Ports: map[ServicePort]Backends{}}
	for i := range 2000 {
		pod := netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})
		if i < 200 {
			s.Table.Services.Pods[pod] = "rome"
		}
		port := ServicePort{Owner: "rome", Address: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Protocol: TCP, Port: 80}
		s.Table.Services.Ports[port] = Backends{Endpoints: []netip.AddrPort{
			netip.AddrPortFrom(pod, 1), netip.AddrPortFrom(pod, 2), netip.AddrPortFrom(pod, 3)}}
	}
	begun := time.Now()
	require.Positive(t, apply(t, a, s))
	written := time.Now()
	require.Zero(t, apply(t, a, s))
	t.Logf("writing 2,000 ports with 6,000 endpoints took %s, comparing them %s", written.Sub(begun), time.Since(written))
}

// TestStaleFlowsAfterRestart checks that a new process deletes stale connections although the table is up to date: the earlier
// process may have ended before it has done so. It tries each kind of connection.
func TestStaleFlowsAfterRestart(t *testing.T) {
	a, host := newTestApplier(t)
	apply(t, a, withServices())
	var restarted *Applier
	var flows *netlink.Handle
	require.NoError(t, host.Do(func() (err error) {
		if restarted, err = NewApplier(testScope); err == nil {
			flows, err = netlink.NewHandle(unix.NETLINK_NETFILTER)
		}
		return err
	}))
	defer restarted.Close()
	defer flows.Close()
	next := uint16(5000)
	create := func(pod string, protocol uint8, port uint16, server string, state uint8) uint16 {
		t.Helper()
		to := netip.MustParseAddrPort(server)
		next++
		flow := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 100,
			Forward: netlink.IPTuple{Protocol: protocol, SrcIP: addr(pod).AsSlice(), SrcPort: next, DstIP: addr("10.96.0.5").AsSlice(),
				DstPort: port},
			Reverse: netlink.IPTuple{Protocol: protocol, SrcIP: to.Addr().AsSlice(), SrcPort: to.Port(), DstIP: addr(pod).AsSlice(),
				DstPort: next}}
		if protocol == TCP {
			flow.ProtoInfo = &netlink.ProtoInfoTCP{State: state}
		}
		require.NoError(t, flows.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow))
		return next
	}
	const established = 3
	kept := []uint16{
		create("10.1.0.10", UDP, 80, "10.1.0.20:5353", 0),           // one of the endpoints
		create("10.1.0.10", UDP, 99, "10.96.0.5:99", 0),             // no port of a Service
		create("10.1.0.99", UDP, 80, "10.1.0.66:5353", 0),           // no pod
		create("10.1.0.12", UDP, 80, "10.1.0.66:5353", 0),           // a pod whose owner has no such port
		create("10.1.0.10", TCP, 80, "10.1.0.66:8080", established), // the earlier endpoint has answered
	}
	stale := []uint16{
		create("10.1.0.10", UDP, 80, "10.1.0.66:5353", 0),
		create("10.1.0.11", UDP, 80, "10.96.0.5:80", 0),
		create("10.1.0.10", TCP, 80, "10.96.0.5:80", tcpSynSent),
		create("10.1.0.12", TCP, 443, "10.1.0.66:443", tcpSynSent), // no endpoints
	}
	require.ElementsMatch(t, append(slices.Clone(kept), stale...), listFlows(t, flows))
	require.Zero(t, apply(t, restarted, withServices()))
	require.ElementsMatch(t, kept, listFlows(t, flows))
}

// listFlows returns the source ports of the tracked connections.
func listFlows(t *testing.T, h *netlink.Handle) (ports []uint16) {
	t.Helper()
	flows, err := h.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	require.NoError(t, err)
	for _, f := range flows {
		ports = append(ports, f.Forward.SrcPort)
	}
	return ports
}
