// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/test/support/netlab"
)

// partition is a set of lines of a gateway with two pods that carry no packets. The active pod and the standby are those before the
// partition.
type partition struct{ activeAPI, standbyAPI, probes, peer bool }

func (p partition) String() string {
	var parts []string
	for part, isCut := range map[string]bool{"active–API server": p.activeAPI, "standby–API server": p.standbyAPI,
		"active–standby": p.probes, "gateways–peer": p.peer} {
		if isCut {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// takesOver reports whether the standby takes over although the active pod is running.
func (p partition) takesOver() bool { return p.probes && !p.standbyAPI }

// partitionsVariable is an environment variable. If it is "all", each partition is tried on both sides, also those in which the standby
// does not take over. This takes about twenty minutes.
const partitionsVariable = "REFRACT_PARTITIONS"

const (
	// cutPeriod is how long a partition lasts at least. A takeover takes less.
	cutPeriod = 4 * time.Second
	// healedTimeout is how long a TCP connection may stand still after the partition has ended. If a pod has to take over then, it waits
	// for its connections to the API server, whose next packet may be due as late as the partition was long, and for the delay between two
	// takeovers. Then TCP itself waits for up to twice as long.
	healedTimeout = 90 * time.Second
	// twoActiveTimeout is how long two pods may be active while both reach the peer.
	twoActiveTimeout = 10 * time.Second
)

// TestPartitions cuts each combination of the lines of a gateway that has two pods, while a TCP connection between pods is open, and
// then does the same and kills the active pod meanwhile. Nothing that was sent may be lost, one pod must be active in the end, and the
// Connections must be true all the time. The sides take turns.
func TestPartitions(t *testing.T) {
	netlab.Need(t)
	rome, milan, pods := newElectingSites(t)
	listen(t, milan.pod)
	connection, _ := dialRetrying(t, rome.pod, "10.61.1.10:"+echoTCPPort)
	flow := startFlow(t, connection)
	for number := 1; number < 1<<4; number++ {
		p := partition{activeAPI: number&1 > 0, standbyAPI: number&2 > 0, probes: number&4 > 0, peer: number&8 > 0}
		for i, s := range []*site{rome, milan} {
			if os.Getenv(partitionsVariable) != "all" && (!p.takesOver() || bits.OnesCount(uint(number))%2 != i) {
				continue
			}
			t.Run(fmt.Sprintf("%s of %s", p, s.name), func(t *testing.T) {
				for _, kill := range []bool{false, true} {
					other := map[*site]*site{rome: milan, milan: rome}[s]
					c := partitionCase{t: t, partition: p, s: s, other: other, pods: pods[s], flow: flow}
					c.play(kill)
				}
			})
		}
	}
}

// partitionCase is one partition of the gateway of a site.
type partitionCase struct {
	t *testing.T
	partition
	s, other        *site
	pods            *gatewayPods
	flow            *echoes
	active, standby *command // before the partition
}

// play cuts the lines and mends them again. If kill is true, it kills the active pod meanwhile.
func (c *partitionCase) play(kill bool) {
	t := c.t
	c.restartPods()
	watch := watchRoles(t, c.pods)
	defer watch.stop()
	c.flow.longestGap()
	before := c.s.awaitConnection(t, networking.Connected)

	mend := c.cut()
	begun := time.Now()
	active, standby := c.active, c.standby
	if c.takesOver() {
		await(t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
		active, standby = standby, active
	}
	if !c.peer {
		watch.awaitOne()
		c.flow.await(t)
	}
	time.Sleep(cutPeriod - time.Since(begun))
	c.checkConnections(active, before)
	if c.takesOver() {
		active, standby = c.carrier()
	}
	if kill {
		active.kill()
		if c.reachesAPI(standby) {
			await(t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
			if !c.peer {
				c.flow.await(t)
			}
			c.checkConnections(standby, before)
		} else {
			time.Sleep(cutPeriod)
			// Only an answer of the peer could tell a pod without the API server that it has been replaced.
			if !c.takesOver() || !c.peer {
				require.Zero(t, standby.metric("refract_gateway_active"), "a pod has taken over without the API server")
			}
		}
	}
	mend()
	mended := time.Now()
	c.flow.await(t)
	took := time.Since(mended).Round(time.Millisecond)
	require.Less(t, took, healedTimeout)
	if kill {
		active.start()
	}
	c.pods.awaitRoles()
	for _, s := range []*site{c.s, c.other} {
		s.awaitConnection(t, networking.Connected)
	}
	require.Less(t, watch.longest(), twoActiveTimeout, "two pods are active")
	t.Logf("killed: %t, longest gap %s, went on %s after the end, two active pods for %s", kill, c.flow.longestGap(), took, watch.longest())
}

// restartPods restarts both pods of the gateway, so that no earlier takeover delays the next one.
func (c *partitionCase) restartPods() {
	for _, pod := range c.pods.commands {
		pod.restart()
	}
	c.active, c.standby = c.pods.awaitRoles()
	c.flow.await(c.t)
}

// carrier returns the pod to which the nodes send their packets, and the other one.
func (c *partitionCase) carrier() (active, standby *command) {
	address, _ := c.s.readEndpoint(c.t)
	for i, pod := range c.pods.commands {
		if c.pods.address(i) == address {
			return pod, c.pods.commands[1-i]
		}
	}
	c.t.Fatalf("the packets go to %s", address)
	return nil, nil
}

func (c *partitionCase) reachesAPI(pod *command) bool {
	if pod == c.active {
		return !c.activeAPI
	}
	return !c.standbyAPI
}

// checkConnections checks what the Connections say while the lines are cut and the pod is active. A pod that does not reach the API
// server cannot write that the peer is lost: it must not write either that it is connected, and the Connection is out of date a
// minute later.
func (c *partitionCase) checkConnections(pod *command, before *networking.Connection) {
	t := c.t
	switch {
	case !c.peer:
		for _, s := range []*site{c.s, c.other} {
			s.awaitConnection(t, networking.Connected)
		}
		return
	case c.reachesAPI(pod):
		c.s.awaitConnection(t, networking.ConnectionFailed)
	default:
		found := c.s.awaitConnection(t, before.Status.Value)
		// A refresh may have been on its way when the lines were cut.
		require.WithinDuration(t, before.Status.Latency.Timestamp.Time, found.Status.Latency.Timestamp.Time, 11*time.Second)
	}
	c.other.awaitConnection(t, networking.ConnectionFailed)
}

// cut cuts the lines until mend is called.
func (c *partitionCase) cut() (mend func()) {
	t := c.t
	mends := []func(){}
	if c.activeAPI {
		mends = append(mends, cutAPIServer(t, c.active))
	}
	if c.standbyAPI {
		mends = append(mends, cutAPIServer(t, c.standby))
	}
	if c.probes {
		mends = append(mends, cutPair(t, c.s.gatewayNode, c.pods.address(0), c.pods.address(1)))
	}
	if c.peer {
		mends = append(mends, cutLine(t, c.s.gatewayNode))
	}
	return func() {
		for _, mend := range mends {
			mend()
		}
	}
}

// dropPackets drops the packets at a hook of a host that match one of the expressions, until mend is called.
func dropPackets(t *testing.T, host *netlab.Host, name string, hooks map[*nftables.ChainHook][][]expr.Any) (mend func()) {
	t.Helper()
	table := &nftables.Table{Name: name, Family: nftables.TableFamilyIPv4}
	inNFTables(t, host, func(c *nftables.Conn) {
		c.AddTable(table)
		for hook, rules := range hooks {
			chain := c.AddChain(&nftables.Chain{Name: fmt.Sprint("hook-", *hook), Table: table, Type: nftables.ChainTypeFilter,
				Hooknum: hook, Priority: nftables.ChainPriorityRaw})
			for _, match := range rules {
				c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(match, &expr.Verdict{Kind: expr.VerdictDrop})})
			}
		}
	})
	return sync.OnceFunc(func() { inNFTables(t, host, func(c *nftables.Conn) { c.DelTable(table) }) })
}

// cutAPIServer drops the packets between a pod and the API server, as if there were no route between them.
func cutAPIServer(t *testing.T, pod *command) (mend func()) {
	t.Helper()
	_, text, err := net.SplitHostPort(pod.apiServer)
	require.NoError(t, err)
	number, err := strconv.ParseUint(text, 10, 16)
	require.NoError(t, err)
	port := func(offset uint32) []expr.Any {
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
			&expr.Cmp{Register: 1, Data: binary.BigEndian.AppendUint16(nil, uint16(number))},
		}
	}
	const source, destination = 0, 2
	return dropPackets(t, pod.host, "api-server", map[*nftables.ChainHook][][]expr.Any{
		nftables.ChainHookInput: {port(source), port(destination)}})
}

// cutPair drops the packets that a node forwards between two addresses.
func cutPair(t *testing.T, node *netlab.Host, a, b string) (mend func()) {
	t.Helper()
	between := func(source, destination string) []expr.Any {
		return []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
			&expr.Cmp{Register: 1, Data: netip.MustParseAddr(source).AsSlice()},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			&expr.Cmp{Register: 1, Data: netip.MustParseAddr(destination).AsSlice()},
		}
	}
	return dropPackets(t, node, "pair", map[*nftables.ChainHook][][]expr.Any{
		nftables.ChainHookForward: {between(a, b), between(b, a)}})
}

// cutLine drops the packets to and from the internet.
func cutLine(t *testing.T, node *netlab.Host) (mend func()) {
	t.Helper()
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, "internet")
	onLine := func(key expr.MetaKey) []expr.Any {
		return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Register: 1, Data: name}}
	}
	return dropPackets(t, node, "line", map[*nftables.ChainHook][][]expr.Any{
		nftables.ChainHookPrerouting: {onLine(expr.MetaKeyIIFNAME)}, nftables.ChainHookPostrouting: {onLine(expr.MetaKeyOIFNAME)}})
}

// dialRetrying does the same as dial, as soon as a connection can be opened.
func dialRetrying(t *testing.T, host *netlab.Host, address string) (net.Conn, string) {
	t.Helper()
	await(t, func() error { return expect(connects(host, address), true) })
	return dial(t, host, address)
}

// roleWatch counts the active pods of a gateway, and how long there are two of them.
type roleWatch struct {
	t       *testing.T
	pods    *gatewayPods
	mutex   sync.Mutex
	active  int
	since   time.Time // zero unless two pods are active
	maximum time.Duration
	stop    func()
}

func watchRoles(t *testing.T, pods *gatewayPods) *roleWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	w := &roleWatch{t: t, pods: pods, stop: func() { cancel(); ended.Wait() }}
	ended.Go(func() {
		for ctx.Err() == nil {
			w.count()
			time.Sleep(50 * time.Millisecond)
		}
	})
	return w
}

func (w *roleWatch) count() {
	active := 0
	for _, pod := range w.pods.commands {
		if pod.metric("refract_gateway_active") == 1 {
			active++
		}
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.active = active
	if active < 2 {
		w.since = time.Time{}
		return
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	w.maximum = max(w.maximum, time.Since(w.since))
}

// awaitOne waits until one pod is active.
func (w *roleWatch) awaitOne() {
	w.t.Helper()
	await(w.t, func() error {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		return expect(w.active, 1)
	})
}

// longest returns how long two pods have been active.
func (w *roleWatch) longest() time.Duration {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.maximum.Round(time.Millisecond)
}
