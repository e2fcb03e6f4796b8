// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"time"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
)

const (
	// resolveTimeout limits the resolution of one name. Meanwhile, changes of other objects wait.
	resolveTimeout = 5 * time.Second
	// endpointRetryInterval is how often the next address of the peer's gateway is tried, while the peer does not answer. A
	// handshake that takes longer never succeeds if there are several addresses.
	endpointRetryInterval = 10 * time.Second
)

// endpoints chooses one of the addresses of the peer's gateway. Names are resolved when the addresses change, and while
// the peer does not answer.
type endpoints struct {
	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mutex      sync.Mutex
	spec       networking.EndpointStatus
	candidates []netip.AddrPort
	stale      bool // whether the names must be resolved again
	turn       int
}

// choose returns the current address. If a name cannot be resolved although spec has not changed, the previous
// addresses are kept.
func (e *endpoints) choose(ctx context.Context, spec networking.EndpointStatus) (netip.AddrPort, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	changed := !reflect.DeepEqual(spec, e.spec)
	var err error
	if changed || e.stale || len(e.candidates) == 0 {
		var found []netip.AddrPort
		found, err = e.resolveAll(ctx, spec)
		if changed {
			e.spec, e.turn = spec, 0
		}
		if changed || err == nil {
			e.candidates = found
		}
		e.stale = err != nil
	}
	if len(e.candidates) == 0 {
		return netip.AddrPort{}, err
	}
	return e.candidates[e.turn%len(e.candidates)], err
}

// advance moves on to the next address.
func (e *endpoints) advance() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.turn++
	e.stale = true
}

func (e *endpoints) resolveAll(ctx context.Context, spec networking.EndpointStatus) (found []netip.AddrPort, err error) {
	if len(spec.Addresses) == 0 {
		return nil, nil
	}
	if spec.Port <= 0 || spec.Port > 65535 {
		return nil, fmt.Errorf("spec.endpoint.port %d is not a UDP port", spec.Port)
	}
	var errs []error
	for _, text := range spec.Addresses {
		addresses := []netip.Addr{}
		if a, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, a)
		} else {
			lookup, cancel := context.WithTimeout(ctx, resolveTimeout)
			addresses, err = e.resolve(lookup, "ip", text)
			cancel()
			if err != nil {
				errs = append(errs, fmt.Errorf("spec.endpoint.addresses: resolving %q, %w", text, err))
			}
		}
		for _, a := range addresses {
			found = append(found, netip.AddrPortFrom(a.Unmap(), uint16(spec.Port)))
		}
	}
	return found, errors.Join(errs...)
}
