// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"net/netip"
	"time"
)

// oldKeyPeriod is how long the key of probes is used that was replaced. The pods of a gateway get a new key at different times, up to
// about two minutes apart. With a shorter one, a pod that has not got the key yet counts as lost.
const oldKeyPeriod = 5 * time.Minute

// keys are the keys of probes. They are not safe for concurrent use.
type keys struct {
	current, previous []byte
	replaced          time.Time
	// confirmed is the pod that has last answered with the current key. It gets no probes with the previous one.
	confirmed netip.Addr
	// usePrevious is true if the next probe to another pod has the previous key.
	usePrevious bool
}

// replace sets the current key. It does nothing if this is the current key already.
func (k *keys) replace(key []byte, now time.Time) {
	if bytes.Equal(k.current, key) {
		return
	}
	*k = keys{current: key, previous: k.current, replaced: now}
}

// hasPrevious reports whether the previous key is still used.
func (k *keys) hasPrevious(now time.Time) bool {
	return k.previous != nil && now.Sub(k.replaced) < oldKeyPeriod
}

// next returns the key of the next probe. Keys take turns until the pod has answered with the current one, so that a pod with
// either key answers before it counts as lost.
func (k *keys) next(target netip.Addr, now time.Time) []byte {
	if target == k.confirmed || !k.hasPrevious(now) {
		return k.current
	}
	k.usePrevious = !k.usePrevious
	if k.usePrevious {
		return k.previous
	}
	return k.current
}

// confirm records that a pod has answered with a key.
func (k *keys) confirm(pod netip.Addr, key []byte) {
	if bytes.Equal(key, k.current) {
		k.confirmed = pod
	}
}

// decode returns the packet of a datagram, and its key. See the function decode for what it refuses.
func (k *keys) decode(target netip.Addr, data []byte, now time.Time) (p packet, key []byte, ok bool) {
	if p, ok = decode(k.current, target, data); ok {
		return p, k.current, true
	}
	if !k.hasPrevious(now) {
		return p, nil, false
	}
	p, ok = decode(k.previous, target, data)
	return p, k.previous, ok
}
