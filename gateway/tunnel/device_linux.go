// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Implementation is a WireGuard implementation.
type Implementation string

const (
	// Auto selects the kernel if it supports WireGuard, and wireguard-go otherwise.
	Auto Implementation = "auto"
	// Kernel is the implementation in the kernel.
	Kernel Implementation = "kernel"
	// Userspace is wireguard-go in this process. It needs the device /dev/net/tun.
	Userspace Implementation = "userspace"
)

// Options are the options of a device.
type Options struct {
	Name string
	// MTU is used if the device does not exist yet.
	MTU            int
	Implementation Implementation
	// LogError receives the errors of wireguard-go. It may be nil.
	LogError func(format string, values ...any)
}

// driver configures a device of one implementation.
type driver interface {
	read() (*wgtypes.Device, error)
	write(*wgtypes.Config) error
	close()
}

// Device is a WireGuard device. Its methods must not be called concurrently.
type Device struct {
	driver         driver
	name           string
	implementation Implementation
	endpoints      map[wgtypes.Key]netip.AddrPort // endpoints in the last configuration
}

// Open returns the device with the name, and creates it if it does not exist. A userspace device can be used by only
// one process at a time.
func Open(o Options) (*Device, error) {
	d := &Device{name: o.Name, implementation: o.Implementation}
	kind, err := kindOf(o.Name)
	if err != nil {
		return nil, err
	}
	if o.Implementation == Auto {
		d.implementation = Kernel
		if kind == "tuntap" {
			d.implementation = Userspace
		}
	}
	if d.implementation == Kernel {
		d.driver, err = openKernel(o, kind)
		if o.Implementation == Kernel || !errors.Is(err, unix.EOPNOTSUPP) {
			return d, err
		}
		d.implementation = Userspace
	}
	d.driver, err = openUserspace(o, kind)
	return d, err
}

// kindOf returns the kind of the link with the given name, or "" if there is no such link.
func kindOf(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking up link %s, %w", name, err)
	}
	return link.Type(), nil
}

// Implementation returns the implementation in use, Kernel or Userspace.
func (d *Device) Implementation() Implementation { return d.implementation }

// Apply changes the parts of the device that differ from the configuration. It returns the number of requests that were
// needed, 0 or 1.
func (d *Device) Apply(c Config) (writes int, err error) {
	present, err := d.driver.read()
	if err != nil {
		return 0, fmt.Errorf("reading the WireGuard device %s, %w", d.name, err)
	}
	c = c.singleKeys(present)
	if changes := diff(present, c, d.endpoints, time.Now()); changes != nil {
		if err := d.driver.write(changes); err != nil {
			return 0, fmt.Errorf("configuring the WireGuard device %s, %w", d.name, err)
		}
		writes = 1
	}
	d.endpoints = map[wgtypes.Key]netip.AddrPort{}
	for _, p := range c.Peers {
		d.endpoints[p.PublicKey] = p.Endpoint
	}
	return writes, nil
}

// Reconnect forgets the sessions of all peers and their last endpoints, so that the next packet to a peer starts a handshake
// with the configured endpoint. WireGuard itself would use a session that the peer has lost for up to 15 s.
//
// A device without a ListenPort gets another port. Nodes between the gateways then see a new connection. While packets
// of the old connection arrive, the connection tracking of such a node would send them to a pod that no longer exists.
func (d *Device) Reconnect(c Config) error {
	present, err := d.driver.read()
	if err != nil {
		return fmt.Errorf("reading the WireGuard device %s, %w", d.name, err)
	}
	changes := &wgtypes.Config{}
	c = c.singleKeys(present)
	if c.ListenPort == 0 {
		changes.ListenPort = new(int)
	}
	for _, p := range c.Peers {
		changes.Peers = append(changes.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true}, p.added())
	}
	if err := d.driver.write(changes); err != nil {
		return fmt.Errorf("reconnecting the WireGuard device %s, %w", d.name, err)
	}
	return nil
}

// PeerEndpoint returns the address to which packets to the peer go. It is invalid if there is no peer, or if its address is not known
// yet. The device must have a configuration with at most one Peer.
func (d *Device) PeerEndpoint() (netip.AddrPort, error) {
	present, err := d.driver.read()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the WireGuard device %s, %w", d.name, err)
	}
	i := slices.IndexFunc(present.Peers, func(p wgtypes.Peer) bool { return len(p.AllowedIPs) > 0 })
	if i < 0 {
		return netip.AddrPort{}, nil
	}
	return addrPort(present.Peers[i].Endpoint), nil
}

// Close stops a userspace device, and releases the handles of a kernel device. The link remains, with its addresses and
// routes.
func (d *Device) Close() { d.driver.close() }

// kernelDriver configures the kernel's WireGuard device through generic netlink.
type kernelDriver struct {
	client *wgctrl.Client
	name   string
}

func openKernel(o Options, kind string) (driver, error) {
	if kind == "tuntap" {
		// The name is in use by a device of the other implementation.
		if err := netlink.LinkDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: o.Name}}); err != nil {
			return nil, fmt.Errorf("deleting the TUN device %s, %w", o.Name, err)
		}
		kind = ""
	}
	if kind == "" {
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.MTU = o.Name, o.MTU
		if err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attributes}); err != nil {
			return nil, fmt.Errorf("creating the WireGuard device %s, %w", o.Name, err)
		}
	}
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("opening the interface to WireGuard, %w", err)
	}
	return &kernelDriver{client, o.Name}, nil
}

func (k *kernelDriver) read() (*wgtypes.Device, error) { return k.client.Device(k.name) }

func (k *kernelDriver) write(c *wgtypes.Config) error { return k.client.ConfigureDevice(k.name, *c) }

func (k *kernelDriver) close() { _ = k.client.Close() }

// userspaceDriver runs wireguard-go in this process. It configures the device with function calls, because the usual
// socket would need a writable file system.
type userspaceDriver struct{ device *device.Device }

func openUserspace(o Options, kind string) (driver, error) {
	if kind == "wireguard" {
		if err := netlink.LinkDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: o.Name}}); err != nil {
			return nil, fmt.Errorf("deleting the kernel's WireGuard device %s, %w", o.Name, err)
		}
	}
	link, err := tun.CreateTUN(o.Name, o.MTU)
	if err != nil {
		return nil, fmt.Errorf("creating the TUN device %s, %w", o.Name, err)
	}
	if err := keepTUN(link); err != nil {
		_ = link.Close()
		return nil, fmt.Errorf("keeping the TUN device %s, %w", o.Name, err)
	}
	ignore := func(string, ...any) {}
	logger := &device.Logger{Verbosef: ignore, Errorf: ignore}
	if o.LogError != nil {
		logger.Errorf = o.LogError
	}
	d := device.NewDevice(link, conn.NewDefaultBind(), logger)
	if err := d.Up(); err != nil {
		d.Close()
		return nil, fmt.Errorf("starting WireGuard on %s, %w", o.Name, err)
	}
	return &userspaceDriver{d}, nil
}

// keepTUN makes a TUN device outlive its process, so that its addresses and routes do not have to be added again.
func keepTUN(link tun.Device) error {
	raw, err := link.File().SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.IoctlSetInt(int(fd), unix.TUNSETPERSIST, 1) }); err != nil {
		return err
	}
	return failed
}

func (u *userspaceDriver) read() (*wgtypes.Device, error) {
	text, err := u.device.IpcGet()
	if err != nil {
		return nil, err
	}
	return parseDevice(text)
}

func (u *userspaceDriver) write(c *wgtypes.Config) error { return u.device.IpcSet(formatConfig(c)) }

func (u *userspaceDriver) close() { u.device.Close() }
