// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// settleDelay collects the notifications of one change, such as a flush of all rules, before the state is read.
	// After another process has removed a rule, traffic is interrupted for at least this time.
	settleDelay = 50 * time.Millisecond

	// recheckInterval is how often the state is read without a notification, in case the kernel dropped one. It also limits how
	// long a failed write waits for the next attempt.
	recheckInterval = 30 * time.Second
)

// Outcome is the result of comparing the kernel's state with the desired state.
type Outcome struct {
	// Repair is true if the desired state was the same as before, so that each write has reverted a change by another
	// process.
	Repair bool
	Writes int
	Err    error
}

// Keep applies each State that it receives. It applies the State again whenever another process changes the kernel's
// state within the Scope. It calls report after each new State, and after each comparison that wrote something or
// failed. When ctx is done, it returns without changing the kernel's state. It must be called on a thread in the
// network namespace of the Applier.
func (a *Applier) Keep(ctx context.Context, states <-chan State, report func(Outcome)) error {
	notifications, err := a.watch(ctx)
	if err != nil {
		return err
	}
	var desired State
	var known bool
	recheck := time.NewTicker(recheckInterval)
	defer recheck.Stop()
	for {
		repair := true
		select {
		case <-ctx.Done():
			return nil
		case desired = <-states:
			known, repair = true, false
		case message := <-notifications:
			if !known || !a.concerns(message) {
				continue
			}
			if !a.settle(ctx, notifications) {
				return nil
			}
		case <-recheck.C:
			if !known {
				continue
			}
		}
		writes, err := a.Apply(desired)
		if !repair || writes > 0 || err != nil {
			report(Outcome{Repair: repair, Writes: writes, Err: err})
		}
	}
}

// settle discards notifications until settleDelay has passed. It returns false if ctx is done.
func (a *Applier) settle(ctx context.Context, notifications <-chan notification) bool {
	timer := time.NewTimer(settleDelay)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-notifications:
		case <-timer.C:
			return true
		}
	}
}

// notification is a message about a change. The zero value means that messages were lost.
type notification struct {
	protocol int
	kind     uint16
	data     []byte
}

// watch subscribes to notifications about links, addresses, routes, rules, neighbours and nftables.
func (a *Applier) watch(ctx context.Context) (<-chan notification, error) {
	found := make(chan notification)
	for protocol, groups := range map[int][]uint{
		unix.NETLINK_ROUTE: {unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
			unix.RTNLGRP_IPV4_RULE,
			unix.RTNLGRP_IPV4_NETCONF},
		unix.NETLINK_NETFILTER: {unix.NFNLGRP_NFTABLES},
	} {
		socket, err := nl.Subscribe(protocol, groups...)
		if err != nil {
			return nil, fmt.Errorf("subscribing to changes of the network configuration, %w", err)
		}
		context.AfterFunc(ctx, socket.Close)
		go receive(ctx, socket, protocol, found)
	}
	return found, nil
}

func receive(ctx context.Context, socket *nl.NetlinkSocket, protocol int, into chan<- notification) {
	for ctx.Err() == nil {
		messages, _, err := socket.Receive()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			// Either the kernel dropped messages because there were too many, or the library does not know the format
			// of a message.
			messages = []syscall.NetlinkMessage{{}}
		}
		for _, m := range messages {
			select {
			case into <- notification{protocol, m.Header.Type, m.Data}:
			case <-ctx.Done():
			}
		}
	}
}

// concerns reports whether a notification is about an object within the Scope. Nodes constantly change other routes,
// neighbours and rules.
func (a *Applier) concerns(n notification) bool {
	if n.kind == 0 {
		return true
	}
	if n.protocol == unix.NETLINK_NETFILTER {
		// In messages about tables, chains, rules, sets and elements, the attribute 1 is the table.
		name, ok := attribute(n.data, netfilterHeader, unix.NFTA_TABLE_NAME)
		return ok && string(trimNull(name)) == a.scope.Table
	}
	switch n.kind {
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return true
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		table, ok := attribute(n.data, unix.SizeofRtMsg, unix.RTA_TABLE)
		return ok && len(table) == 4 && slices.Contains(a.scope.RouteTables, int(binary.NativeEndian.Uint32(table)))
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		name, ok := attribute(n.data, unix.SizeofIfInfomsg, unix.IFLA_IFNAME)
		return ok && slices.Contains(a.scope.Links, string(trimNull(name)))
	case unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		// In both headers, the index of the link comes after four bytes.
		return len(n.data) >= 8 && a.owns(binary.NativeEndian.Uint32(n.data[4:]))
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		index, ok := attribute(n.data, 4, netconfIndex)
		return ok && len(index) == 4 && a.owns(binary.NativeEndian.Uint32(index))
	}
	return false
}

// netfilterHeader is the length of the header of nftables messages.
const netfilterHeader = 4

// netconfIndex is the attribute that contains the index of the link whose settings have changed (NETCONFA_IFINDEX).
const netconfIndex = 1

func (a *Applier) owns(index uint32) bool {
	k, ok := a.kernel.(*linuxKernel)
	if !ok {
		return true
	}
	for _, i := range k.indexes {
		if uint32(i) == index {
			return true
		}
	}
	return false
}

func attribute(data []byte, header int, number uint16) ([]byte, bool) {
	if len(data) < header {
		return nil, false
	}
	attributes, err := nl.ParseRouteAttr(data[header:])
	if err != nil {
		return nil, false
	}
	for _, a := range attributes {
		if a.Attr.Type&nl.NLA_TYPE_MASK == number {
			return a.Value, true
		}
	}
	return nil, false
}

func trimNull(text []byte) []byte {
	if n := len(text); n > 0 && text[n-1] == 0 {
		return text[:n-1]
	}
	return text
}
