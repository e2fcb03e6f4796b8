// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// rounds limits how often Apply reads and writes the kernel's state. If a link is recreated, it loses its routes, so
// they are added in a second round. The last round finds no differences. With more rounds, Apply would fight a process
// that reverts each write.
const rounds = 4

// kernel reads and writes the network configuration. Some tests use an implementation without a real kernel.
type kernel interface {
	read(Scope) (snapshot, error)
	// encode returns a table in the form that the kernel stores.
	encode(Table) (*tableState, error)
	write(change) error
	// deleteStaleFlows deletes connections to earlier endpoints, if the table was written since the last call.
	deleteStaleFlows(*Services) error
}

// Applier applies States to the kernel. Its methods must not be called concurrently.
type Applier struct {
	kernel kernel
	scope  Scope
}

// Apply changes the kernel's state to the desired state. It returns the number of requests that have changed something.
// If a request fails, the others are still sent, except if the table cannot be written: without its rules, nothing may
// be forwarded.
func (a *Applier) Apply(desired State) (writes int, err error) {
	want, err := a.snapshotOf(desired)
	if err != nil {
		return 0, err
	}
	for round := range rounds {
		present, err := a.kernel.read(a.scope)
		if err != nil {
			return writes, fmt.Errorf("reading the network configuration, %w", err)
		}
		changes := diff(present, want, desired.Table)
		if len(changes) == 0 {
			return writes, a.kernel.deleteStaleFlows(desired.Table.Services)
		}
		if round == rounds-1 {
			return writes, fmt.Errorf("the network configuration differs after it was written: %s", changes[0])
		}
		var errs []error
		for _, c := range changes {
			if err := a.kernel.write(c); err != nil {
				errs = append(errs, fmt.Errorf("%s, %w", c, err))
				if _, isTable := c.object.(Table); isTable && c.action != remove {
					break
				}
				continue
			}
			writes++
		}
		if err := errors.Join(errs...); err != nil && round == rounds-2 {
			return writes, fmt.Errorf("writing the network configuration: %w", err)
		}
	}
	return writes, nil
}

// Read returns the neighbours, forwards, routes and sets in the kernel that are within the Scope, so that a new process
// can continue with them.
func (a *Applier) Read() (State, error) {
	present, err := a.kernel.read(a.scope)
	if err != nil {
		return State{}, fmt.Errorf("reading the network configuration, %w", err)
	}
	var s State
	for key, mac := range present.neighbours {
		s.Neighbours = append(s.Neighbours, Neighbour{Link: key.link, IP: key.ip, MAC: mac})
	}
	for key, hosts := range present.forwards {
		for _, host := range hosts {
			s.Forwards = append(s.Forwards, Forward{Link: key.link, MAC: key.mac, Host: host})
		}
	}
	for _, r := range present.routes {
		s.Routes = append(s.Routes, r)
	}
	if present.table != nil {
		s.Table.Name = present.table.name
		for name, ranges := range present.table.sets {
			s.Table.Sets = append(s.Table.Sets, Set{Name: name, Ranges: prefixesOf(ranges)})
		}
	}
	return s, nil
}

// snapshotOf returns a State in a form that can be compared. It returns an error if a part of the State is outside of
// the Scope, because this part would never be removed.
func (a *Applier) snapshotOf(s State) (snapshot, error) {
	found := newSnapshot()
	for _, l := range s.Links {
		found.links[l.Name] = linkState{vxlan: l.VXLAN, mtu: l.MTU, up: true, addresses: l.Addresses,
			inet: inetSettings{forward: true, acceptLocal: l.AcceptLocal}}
	}
	for _, n := range s.Neighbours {
		found.neighbours[neighbourKey{n.Link, n.IP}] = n.MAC
	}
	for _, f := range s.Forwards {
		found.forwards[forwardKey{f.Link, f.MAC}] = append(found.forwards[forwardKey{f.Link, f.MAC}], f.Host)
	}
	for _, r := range s.Routes {
		found.routes[routeKey{r.Table, r.Destination}] = r
	}
	for _, r := range s.Rules {
		found.rules[r] = 1
	}
	if a.scope.LocalRule {
		found.local[s.LocalPriority] = true
	}
	if s.Table.Name != "" {
		table, err := a.kernel.encode(s.Table)
		if err != nil {
			return found, fmt.Errorf("encoding the table %s, %w", s.Table.Name, err)
		}
		found.table = table
	}
	return found, a.scope.check(s)
}

func newSnapshot() snapshot {
	return snapshot{
		links: map[string]linkState{}, neighbours: map[neighbourKey]string{}, forwards: map[forwardKey][]netip.Addr{},
		routes: map[routeKey]Route{}, rules: map[PolicyRule]int{}, local: map[int]bool{},
	}
}

func (s Scope) check(state State) error {
	for _, l := range state.Links {
		if !slices.Contains(s.Links, l.Name) {
			return fmt.Errorf("link %s is not in the scope", l.Name)
		}
	}
	for _, r := range state.Routes {
		if !slices.Contains(s.RouteTables, r.Table) {
			return fmt.Errorf("routing table %d is not in the scope", r.Table)
		}
	}
	if state.LocalPriority != 0 && !s.LocalRule {
		return errors.New("the rule of the table local is not in the scope")
	}
	if state.Table.Name != "" && state.Table.Name != s.Table {
		return fmt.Errorf("table %s is not in the scope", state.Table.Name)
	}
	return nil
}
