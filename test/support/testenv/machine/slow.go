// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// detour slows the network connection of a machine: the machine's port is disconnected from the bridge, and this
// process forwards its frames. netem would have the same effect, but not every kernel supports it.
type detour struct {
	machine *Machine
	near    *os.File // socket at the machine's port
	far     *os.File // socket at the bridge
}

const (
	// frameSize is the maximum size of a frame that a socket returns. It is larger than an Ethernet frame, because
	// the kernel segments frames later.
	frameSize = 64<<10 + vnetHeader
	// vnetHeader is the length of the header (virtio_net_hdr) that the kernel prepends to a frame.
	vnetHeader = 10
	// framesWaiting is the maximum number of delayed frames in each direction. Further frames are lost, as on any
	// line.
	framesWaiting = 1 << 12
	// withoutARP is a value of arp_ignore. With it, the interfaces of the detour do not respond to ARP requests.
	withoutARP = "8"
)

func (m *Machine) detourNames() (near, far string) {
	return "near" + m.port[len("port"):], "far" + m.port[len("port"):]
}

// startDetour slows the network connection of a machine.
func (n *Network) startDetour(m *Machine, delay time.Duration, loss float64) (_ *detour, err error) {
	near, far := m.detourNames()
	d := &detour{machine: m}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.endDetour(d))
		}
	}()
	if err = n.ip(
		fmt.Sprintf("link add %s type veth peer name %s", near, far),
		fmt.Sprintf("link set %s nomaster", m.port),
		fmt.Sprintf("link set %s master wan up", far),
		fmt.Sprintf("link set %s up", near),
	); err != nil {
		return d, err
	}
	for _, port := range []string{near, m.port} {
		if err = output(inNetwork(n.holder.Pid(), "sysctl", "-qw", "net.ipv4.conf."+port+".arp_ignore="+withoutARP)); err != nil {
			return d, err
		}
	}
	if d.near, err = n.frames(m.port); err != nil {
		return d, err
	}
	if d.far, err = n.frames(near); err != nil {
		return d, err
	}
	go carry(d.far, d.near, delay, loss)
	go carry(d.near, d.far, delay, loss)
	return d, nil
}

// endDetour connects the machine to the bridge again. Frames that are still delayed are lost.
func (n *Network) endDetour(d *detour) error {
	var errs []error
	for _, socket := range []*os.File{d.near, d.far} {
		if socket != nil {
			errs = append(errs, socket.Close()) // ends the goroutine that reads from the socket
		}
	}
	near, _ := d.machine.detourNames()
	return errors.Join(append(errs, n.ip("link del "+near, fmt.Sprintf("link set %s master wan", d.machine.port)))...)
}

// frames returns a socket for an interface of the network. It reads the frames that arrive at the interface, and
// sends frames from the interface.
func (n *Network) frames(name string) (socket *os.File, err error) {
	err = within(n.holder.Pid(), func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		if err := errors.Join(
			os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)),
			os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)),
			os.NewSyscallError("setsockopt", unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
				&unix.PacketMreq{Ifindex: int32(link.Index), Type: unix.PACKET_MR_PROMISC})), //nolint:gosec // indexes are small
			os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: anyProtocol(), Ifindex: link.Index})),
		); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		socket = os.NewFile(uintptr(fd), name)
		return nil
	})
	return socket, err
}

// anyProtocol returns ETH_P_ALL in network byte order.
func anyProtocol() uint16 {
	var bytes [2]byte
	binary.BigEndian.PutUint16(bytes[:], unix.ETH_P_ALL)
	return binary.NativeEndian.Uint16(bytes[:])
}

// carry reads frames from the argument from and writes them to the argument to, until from is closed.
func carry(to, from *os.File, delay time.Duration, loss float64) {
	type frame struct {
		content []byte
		due     time.Time
	}
	waiting := make(chan frame, framesWaiting)
	defer close(waiting)
	go func() {
		for f := range waiting {
			time.Sleep(time.Until(f.due))
			_, _ = to.Write(f.content) // if the write fails, the frame is lost
		}
	}()
	buffer := make([]byte, frameSize)
	for {
		size, err := from.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || rand.Float64() < loss { //nolint:gosec // no secret
			continue
		}
		select {
		case waiting <- frame{append([]byte(nil), buffer[:size]...), time.Now().Add(delay)}:
		default:
		}
	}
}
