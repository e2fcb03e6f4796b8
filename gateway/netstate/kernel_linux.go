// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Indexes of the IPv4 settings of a link (IPV4_DEVCONF_*), starting at 1.
const (
	devconfForwarding  = 1
	devconfRPFilter    = 8
	devconfAcceptLocal = 23
	// inetConf is the attribute that contains the IPv4 settings of a link (IFLA_INET_CONF).
	inetConf = 1
)

// transactionBytes limits a change of the nftables table, which is one message. With a smaller limit, tables with some
// thousand endpoints cannot be written.
const transactionBytes = 16 << 20

// linuxKernel accesses the kernel in one network namespace. Its sockets stay open, so it stays in the namespace where
// it was created, no matter which thread uses it.
type linuxKernel struct {
	routes   *netlink.Handle
	raw      *nl.NetlinkSocket // for the IPv4 settings of links, which the handle does not support
	nftables *nftables.Conn
	indexes  map[string]int // indexes of the links that have been read
	// flowsPending is true until stale connections have been deleted after a change of the table, and after a restart.
	// removedPorts contains the keys of the ports that were removed from Services since.
	flowsPending bool
	removedPorts map[string]bool
}

// NewApplier returns an Applier for the network namespace of the calling thread. The caller must close it.
func NewApplier(scope Scope) (*Applier, error) {
	routes, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket, %w", err)
	}
	raw, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		routes.Close()
		return nil, fmt.Errorf("opening a netlink socket, %w", err)
	}
	tables, err := openTables()
	if err != nil {
		raw.Close()
		routes.Close()
		return nil, fmt.Errorf("opening a netlink socket for nftables, %w", err)
	}
	return &Applier{kernel: &linuxKernel{routes: routes, raw: raw, nftables: tables, flowsPending: true}, scope: scope}, nil
}

// openTables opens a socket for nftables in the network namespace of the calling thread.
func openTables() (*nftables.Conn, error) {
	return nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *mdlayher.Conn) error {
		return c.SetWriteBuffer(transactionBytes)
	}))
}

// Close closes the sockets. It does not change the kernel's state.
func (a *Applier) Close() {
	if k, ok := a.kernel.(*linuxKernel); ok {
		k.routes.Close()
		k.raw.Close()
		_ = k.nftables.CloseLasting()
	}
}

func (k *linuxKernel) read(scope Scope) (snapshot, error) {
	found := newSnapshot()
	k.indexes = map[string]int{}
	names := map[int]string{}
	for _, name := range scope.Links {
		index, err := k.readLink(name, &found)
		if err != nil {
			return found, fmt.Errorf("link %s, %w", name, err)
		}
		if index > 0 {
			k.indexes[name], names[index] = index, name
		}
	}
	for _, table := range scope.RouteTables {
		if err := k.readRoutes(table, names, &found); err != nil {
			return found, fmt.Errorf("routing table %d, %w", table, err)
		}
	}
	rules, err := k.routes.RuleList(unix.AF_INET)
	if err != nil {
		return found, fmt.Errorf("policy rules, %w", err)
	}
	for _, r := range rules {
		switch {
		case r.Table == unix.RT_TABLE_LOCAL && r.IifName == "" && r.Mark == 0:
			if scope.LocalRule {
				found.local[max(r.Priority, 0)] = true
			}
		case r.Protocol == Protocol:
			found.rules[PolicyRule{r.Priority, r.IifName, r.Mark, r.Table}]++
		}
	}
	found.table, err = k.readTable(scope.Table)
	return found, err
}

// readLink adds a link and its entries to into, and returns the index of the link. If the link does not exist, the
// index is 0.
func (k *linuxKernel) readLink(name string, into *snapshot) (int, error) {
	link, err := k.routes.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	attributes := link.Attrs()
	state := linkState{mtu: attributes.MTU, up: attributes.Flags&net.FlagUp != 0}
	if state.inet, err = k.readSettings(attributes.Index); err != nil {
		return 0, err
	}
	addresses, err := k.routes.AddrList(link, unix.AF_INET)
	if err != nil {
		return 0, err
	}
	for _, a := range addresses {
		state.addresses = append(state.addresses, prefixOf(a.IPNet))
	}
	if v, ok := link.(*netlink.Vxlan); ok {
		state.vxlan = &VXLAN{ID: v.VxlanId, Port: v.Port, MAC: attributes.HardwareAddr.String()}
		if err := k.readNeighbours(name, attributes.Index, into); err != nil {
			return 0, err
		}
	}
	into.links[name] = state
	return attributes.Index, nil
}

// readNeighbours adds the permanent entries of a VXLAN device. Entries that the kernel itself has created for other
// next hops are not permanent.
func (k *linuxKernel) readNeighbours(name string, index int, into *snapshot) error {
	neighbours, err := k.routes.NeighList(index, unix.AF_INET)
	if err != nil {
		return err
	}
	for _, n := range neighbours {
		if n.State&netlink.NUD_PERMANENT != 0 {
			into.neighbours[neighbourKey{name, addrOf(n.IP)}] = n.HardwareAddr.String()
		}
	}
	forwards, err := k.routes.NeighList(index, unix.AF_BRIDGE)
	if err != nil {
		return err
	}
	for _, f := range forwards {
		key := forwardKey{name, f.HardwareAddr.String()}
		into.forwards[key] = append(into.forwards[key], addrOf(f.IP))
	}
	return nil
}

func (k *linuxKernel) readRoutes(table int, names map[int]string, into *snapshot) error {
	routes, err := k.routes.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	for _, r := range routes {
		found := Route{Table: table, Destination: prefixOf(r.Dst), Link: names[r.LinkIndex], Via: addrOf(r.Gw), MTU: r.MTU, TOS: r.Tos}
		if found.Link == "" && r.Type != unix.RTN_UNREACHABLE {
			// This route leads to a link outside of the Scope. It belongs to another process, and must not equal a
			// desired route.
			found.Link = fmt.Sprint("index ", r.LinkIndex)
		}
		into.routes[routeKey{table, found.Destination}] = found
	}
	return nil
}

// readSettings returns the IPv4 settings of a link.
func (k *linuxKernel) readSettings(index int) (settings inetSettings, err error) {
	request := k.linkRequest(unix.RTM_GETLINK, 0, index)
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil || len(messages) == 0 {
		return settings, err
	}
	attributes, err := nl.ParseRouteAttr(messages[0][unix.SizeofIfInfomsg:])
	for _, path := range []uint16{unix.IFLA_AF_SPEC, unix.AF_INET, inetConf} {
		var value []byte
		for _, a := range attributes {
			if a.Attr.Type&nl.NLA_TYPE_MASK == path {
				value = a.Value
			}
		}
		if path == inetConf && len(value) >= 4*devconfAcceptLocal {
			at := func(index int) bool { return binary.NativeEndian.Uint32(value[4*(index-1):]) != 0 }
			return inetSettings{forward: at(devconfForwarding), reversePathCheck: at(devconfRPFilter),
				acceptLocal: at(devconfAcceptLocal)}, nil
		}
		if err == nil && path != inetConf {
			attributes, err = nl.ParseRouteAttr(value)
		}
	}
	if err == nil {
		err = errors.New("the kernel does not report its IPv4 settings")
	}
	return settings, err
}

// writeSettings makes a link forward packets, without a check of their source. If acceptLocal is true, the source may
// also be an address of this host.
func (k *linuxKernel) writeSettings(index int, acceptLocal bool) error {
	request := k.linkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK, index)
	specification := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	settings := specification.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil)
	settings.AddRtAttr(devconfForwarding, nl.Uint32Attr(1))
	settings.AddRtAttr(devconfRPFilter, nl.Uint32Attr(0))
	local := uint32(0)
	if acceptLocal {
		local = 1
	}
	settings.AddRtAttr(devconfAcceptLocal, nl.Uint32Attr(local))
	request.AddData(specification)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func (k *linuxKernel) linkRequest(kind, flags, index int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(kind, flags)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: k.raw}}
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request.AddData(message)
	return request
}

func (k *linuxKernel) write(c change) error {
	switch object := c.object.(type) {
	case Link:
		return k.writeLink(c.action, object)
	case linkAddress:
		link, address := k.link(object.link), &netlink.Addr{IPNet: netOf(object.address)}
		if c.action == remove {
			return k.routes.AddrDel(link, address)
		}
		return k.routes.AddrReplace(link, address)
	case Neighbour:
		return k.writeNeighbour(c.action, &netlink.Neigh{LinkIndex: k.indexes[object.Link], Family: unix.AF_INET,
			State: netlink.NUD_PERMANENT, IP: object.IP.AsSlice()}, object.MAC)
	case Forward:
		return k.writeNeighbour(c.action, &netlink.Neigh{LinkIndex: k.indexes[object.Link], Family: unix.AF_BRIDGE,
			State: netlink.NUD_PERMANENT | netlink.NUD_NOARP, Flags: netlink.NTF_SELF, IP: object.Host.AsSlice()}, object.MAC)
	case Route:
		return k.writeRoute(c.action, object)
	case PolicyRule:
		rule := netlink.NewRule()
		rule.Family, rule.Protocol = unix.AF_INET, Protocol
		rule.Priority, rule.IifName, rule.Mark, rule.Table = object.Priority, object.In, object.Mark, object.Table
		if c.action == remove {
			return k.routes.RuleDel(rule)
		}
		return k.routes.RuleAdd(rule)
	case localRule:
		return k.writeLocalRule(c.action, object)
	case Table:
		return k.writeTable(c.action, object)
	}
	return fmt.Errorf("unknown object %T", c.object)
}

// writeLocalRule adds or removes a rule of the table local.
func (k *linuxKernel) writeLocalRule(a action, r localRule) error {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Table = unix.AF_INET, r.priority, unix.RT_TABLE_LOCAL
	if a == remove {
		return k.routes.RuleDel(rule)
	}
	return k.routes.RuleAdd(rule)
}

func (k *linuxKernel) writeLink(a action, l Link) error {
	switch a {
	case remove:
		return k.routes.LinkDel(k.link(l.Name))
	case add:
		mac, err := net.ParseMAC(l.VXLAN.MAC)
		if err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.MTU, attributes.HardwareAddr = l.Name, l.MTU, mac
		if err := k.routes.LinkAdd(&netlink.Vxlan{LinkAttrs: attributes, VxlanId: l.VXLAN.ID, Port: l.VXLAN.Port}); err != nil {
			return err
		}
		link, err := k.routes.LinkByName(l.Name)
		if err != nil {
			return err
		}
		k.indexes[l.Name] = link.Attrs().Index
		return nil
	default:
		link := k.link(l.Name)
		return errors.Join(k.routes.LinkSetMTU(link, l.MTU), k.writeSettings(link.Attrs().Index, l.AcceptLocal), k.routes.LinkSetUp(link))
	}
}

func (k *linuxKernel) writeNeighbour(a action, n *netlink.Neigh, mac string) (err error) {
	if n.HardwareAddr, err = net.ParseMAC(mac); err != nil {
		return err
	}
	if a == remove {
		return k.routes.NeighDel(n)
	}
	return k.routes.NeighSet(n)
}

func (k *linuxKernel) writeRoute(a action, r Route) error {
	route := &netlink.Route{Table: r.Table, Family: unix.AF_INET, Dst: netOf(r.Destination), Protocol: Protocol, Tos: r.TOS}
	if a == remove {
		// A route that another process has added to the table has another protocol, type and scope.
		route.Protocol, route.Scope = 0, unix.RT_SCOPE_NOWHERE
		return k.routes.RouteDel(route)
	}
	if r.Link == "" {
		route.Type = unix.RTN_UNREACHABLE
	} else {
		route.LinkIndex, route.MTU = k.indexes[r.Link], r.MTU
	}
	if r.Via.IsValid() {
		route.Gw, route.Flags = r.Via.AsSlice(), int(netlink.FLAG_ONLINK)
	}
	return k.routes.RouteReplace(route)
}

// link returns a reference to a link that has been read. If the link does not exist, the index is 0, which the kernel
// refuses.
func (k *linuxKernel) link(name string) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: k.indexes[name]}}
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), bits)
}

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
