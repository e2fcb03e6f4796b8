// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// nodesVariable is the name of an environment variable. If it is set, tests that cannot create namespaces fail instead
// of being skipped.
const nodesVariable = "REFRACT_NODES"

// Need skips a test if this process cannot create network namespaces.
func Need(tb testing.TB) {
	tb.Helper()
	host, err := open()
	switch {
	case err == nil:
		_ = host.Close()
	case os.Getenv(nodesVariable) != "":
		tb.Fatalf("making a network namespace, %v", err)
	default:
		tb.Skipf("no network namespaces: %v (the test needs root)", err)
	}
}

// Host is a network namespace. It exists until the test ends.
type Host struct {
	tb     testing.TB
	name   string
	handle netns.NsHandle
	links  *netlink.Handle
}

// NewHost creates a namespace that contains only its loopback interface.
func NewHost(tb testing.TB, name string) *Host {
	tb.Helper()
	Need(tb)
	handle, err := open()
	if err != nil {
		tb.Fatalf("making the network namespace %s, %v", name, err)
	}
	links, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		tb.Fatalf("opening a socket in the namespace %s, %v", name, err)
	}
	h := &Host{tb: tb, name: name, handle: handle, links: links}
	tb.Cleanup(func() {
		links.Close()
		_ = handle.Close()
	})
	h.must("setting up lo", links.LinkSetUp(h.link("lo")))
	return h
}

// open creates a network namespace without entering it.
func open() (handle netns.NsHandle, err error) {
	err = onThread(func() error {
		handle, err = netns.New()
		return err
	})
	return handle, err
}

// onThread calls f on a thread that no other goroutine uses, and then switches the thread back to its own namespace. If
// switching back fails, the thread ends together with its goroutine.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		before, err := netns.Get()
		if err == nil {
			err = f()
			if netns.Set(before) == nil {
				runtime.UnlockOSThread()
			}
			_ = before.Close()
		}
		done <- err
	}()
	return <-done
}

// Do calls f on a thread in the host's namespace. Sockets that f opens stay in this namespace.
func (h *Host) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(h.handle); err != nil {
			return err
		}
		return f()
	})
}

// Start starts a process in the namespace.
func (h *Host) Start(command *exec.Cmd) error { return h.Do(command.Start) }

// Links returns a handle for the links and routes of the namespace.
func (h *Host) Links() *netlink.Handle { return h.links }

// Cable connects two hosts with a pair of links. For each host, it takes the name of the link and the address in CIDR
// notation. If the address is empty, the link gets none.
func Cable(a *Host, aName string, aAddress string, b *Host, bName, bAddress string) {
	a.tb.Helper()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = aName
	a.must("adding the cable "+aName, a.links.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: bName,
		PeerNamespace: netlink.NsFd(b.handle)}))
	a.Address(aName, aAddress)
	b.Address(bName, bAddress)
}

// Address adds an address to a link and sets the link up. If the address is empty, it only sets the link up.
func (h *Host) Address(link, address string) {
	h.tb.Helper()
	if address != "" {
		p := netip.MustParsePrefix(address)
		h.must("adding "+address, h.links.AddrAdd(h.link(link), &netlink.Addr{IPNet: netOf(p)}))
	}
	h.must("setting up "+link, h.links.LinkSetUp(h.link(link)))
}

// Route adds a route to a range through a link. The next hop, via, may be empty.
func (h *Host) Route(to, via, link string) {
	h.tb.Helper()
	route := &netlink.Route{Dst: netOf(netip.MustParsePrefix(to)), LinkIndex: h.link(link).Attrs().Index, Scope: unix.RT_SCOPE_LINK}
	if via != "" {
		route.Gw, route.Flags, route.Scope = net.ParseIP(via), int(netlink.FLAG_ONLINK), unix.RT_SCOPE_UNIVERSE
	}
	h.must("adding a route to "+to, h.links.RouteAdd(route))
}

// SetMTU sets the MTU of a link.
func (h *Host) SetMTU(link string, mtu int) {
	h.tb.Helper()
	h.must("setting the MTU of "+link, h.links.LinkSetMTU(h.link(link), mtu))
}

// Sysctl writes a kernel setting of the namespace, such as net/ipv4/ip_forward.
func (h *Host) Sysctl(name, value string) {
	h.tb.Helper()
	h.must("setting "+name, h.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }))
}

func (h *Host) link(name string) netlink.Link {
	h.tb.Helper()
	link, err := h.links.LinkByName(name)
	h.must("looking up link "+name, err)
	return link
}

func (h *Host) must(what string, err error) {
	h.tb.Helper()
	if err != nil {
		h.tb.Fatalf("%s: %s, %v", h.name, what, err)
	}
}

// String returns the name of the host.
func (h *Host) String() string { return fmt.Sprintf("host %s", h.name) }

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
