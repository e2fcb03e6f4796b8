// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	private = []byte("0123456789abcdef0123456789abcdef")
	client  = netip.MustParseAddrPort("203.0.113.7:40000")
)

// apiServer keeps the Lease and the status of one gateway.
type apiServer struct {
	mutex sync.Mutex
	view  View
	away  bool
	// denied counts the attempts to take the Lease while the API server is away.
	denied int
}

func (a *apiServer) read() View {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.view
}

func (a *apiServer) attempts() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.denied
}

func (a *apiServer) setAway(away bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.away = away
}

// claim takes the Lease unless it has changed since the view.
func (a *apiServer) claim(v View, own netip.Addr) (bool, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	switch {
	case a.away:
		a.denied++
		return false, errors.New("connection refused")
	case a.view.Version != v.Version:
		return false, nil
	}
	a.view = View{Known: true, Version: v.Version + "+", Holder: own, Endpoint: own}
	return true, nil
}

// member is a Member with its process.
type member struct {
	*Member
	address      netip.Addr
	refused, won atomic.Int64
	// steps counts the steps of the election.
	steps  atomic.Int64
	reason atomic.Value
	stop   func()
}

// start runs a Member at a loopback address of its own. Its role follows the endpoint.
func start(t *testing.T, a *apiServer, private []byte) *member {
	t.Helper()
	m := &member{address: netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(250)), byte(1 + rand.IntN(250))})}
	var err error
	m.Member, err = Open(Options{
		Address: m.address, View: func() View { m.steps.Add(1); return a.read() }, Failed: func(error) {}, Answered: func() {}, Refused: func() { m.refused.Add(1) },
		Claim: func(_ context.Context, v View, step Step) (bool, error) {
			won, err := a.claim(v, m.address)
			if won {
				m.won.Add(1)
				m.reason.Store(step.Reason)
			}
			return won, err
		},
		Publish: func(context.Context) error { return nil },
	})
	require.NoError(t, err)
	m.SetPrivateKey(private)
	m.SetActive(false)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = m.Run(ctx) })
	ended.Go(func() {
		for ctx.Err() == nil {
			m.SetActive(a.read().Endpoint == m.address)
			time.Sleep(10 * time.Millisecond)
		}
	})
	m.stop = func() { cancel(); ended.Wait() }
	t.Cleanup(m.stop)
	return m
}

// isActive reports whether the pod has noticed that it is active.
func (m *member) isActive() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.active
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 10*time.Millisecond)
}

// TestMembers checks that a pod is elected, that another pod takes over when it is killed and the API server is
// available, and that a third pod takes over at once when the second one leaves.
func TestMembers(t *testing.T) {
	a := &apiServer{view: View{Known: true}}
	first := start(t, a, private)
	await(t, func() bool { return a.read().Endpoint == first.address })
	require.Equal(t, Elected, first.reason.Load())
	await(t, first.isActive)
	require.False(t, first.Leave(), "no other pod has probed it")
	first.stop()

	first = start(t, a, private)
	await(t, func() bool { return first.won.Load() == 1 })
	require.Equal(t, Lost, first.reason.Load())
	first.SetPeer(client)
	second := start(t, a, private)
	await(t, func() bool { return second.Peer() == client })
	a.setAway(true)
	first.stop()
	await(t, func() bool { return a.attempts() >= 2 })
	require.Equal(t, first.address, a.read().Endpoint, "nobody takes over while the API server is away")
	a.setAway(false)
	await(t, func() bool { return second.won.Load() == 1 })
	require.Equal(t, Lost, second.reason.Load())

	third := start(t, a, private)
	await(t, func() bool { return third.Peer() == client })
	require.True(t, second.Leave())
	await(t, func() bool { return third.won.Load() == 1 })
	require.Equal(t, Leaving, third.reason.Load())
	require.Equal(t, client, third.Peer(), "the endpoint that the second one had from the first one")
	await(t, third.isActive)
	fourth := start(t, a, private)
	await(t, func() bool { return fourth.Peer() == client })
	require.False(t, fourth.Leave(), "it is on standby")
	third.stop()
	steps := fourth.steps.Load()
	await(t, func() bool { return fourth.steps.Load() > steps+missedProbes+1 })
	require.Equal(t, third.address, a.read().Holder, "a pod that leaves does not take over")
}

// TestForgedPackets checks that packets that no pod of the gateway has sent are dropped, and do not keep a pod from
// taking over from a lost holder.
func TestForgedPackets(t *testing.T) {
	holder, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 77, byte(rand.IntN(250)), byte(1+rand.IntN(250))), Port: Port})
	require.NoError(t, err)
	defer holder.Close()
	at := holder.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	a := &apiServer{view: held(at, "1")}
	m := start(t, a, private)
	key := deriveKey(private)
	buffer := make([]byte, 2*packetSize)
	require.NoError(t, holder.SetReadDeadline(time.Now().Add(time.Minute)))
	var replayed []byte
	for count := 1; m.won.Load() == 0; count++ {
		n, from, err := holder.ReadFromUDPAddrPort(buffer)
		require.NoError(t, err)
		p, ok := decode(key, at, buffer[:n])
		require.True(t, ok)
		require.Equal(t, byte(probeKind), p.kind)
		answer := packet{kind: answerKind, flags: activeFlag | leavingFlag, nonce: p.nonce, peer: client}
		if replayed == nil {
			answer.flags = activeFlag
			replayed = answer.encode(key, at)
			_, err = holder.WriteToUDPAddrPort(replayed, from)
			require.NoError(t, err)
			continue
		}
		short := answer.encode(key, at)
		changed := answer.encode(key, at)
		changed[2] ^= leavingFlag
		for _, forged := range [][]byte{
			{}, {packetVersion, answerKind}, short[:packetSize-1], append(answer.encode(key, at), 0), changed,
			answer.encode(deriveKey([]byte("another")), at), answer.encode(key, m.address), replayed, buffer[:n],
			packet{kind: answerKind, flags: activeFlag}.encode(key, at),
		} {
			_, err = holder.WriteToUDPAddrPort(forged, from)
			require.NoError(t, err)
		}
		require.Less(t, count, 2*missedProbes, "it takes over although somebody sends answers")
		if count == 1+missedProbes {
			await(t, func() bool { return m.won.Load() == 1 })
		}
	}
	require.Equal(t, Lost, m.reason.Load())
	require.Equal(t, client, m.Peer(), "from the only answer that was not forged")
	require.GreaterOrEqual(t, m.refused.Load(), int64(10*missedProbes))
}

// TestForgedProbes checks that only an authenticated probe to the pod itself is answered. All other packets must be
// dropped.
func TestForgedProbes(t *testing.T) {
	a := &apiServer{view: View{Known: true}}
	m := start(t, a, private)
	await(t, m.isActive)
	m.SetPeer(client)
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer socket.Close()
	key := deriveKey(private)
	probe := packet{kind: probeKind, nonce: nonceOf(7)}
	for _, data := range [][]byte{
		[]byte("probe"), probe.encode(deriveKey([]byte("another")), m.address), probe.encode(key, other),
		packet{kind: 3, nonce: nonceOf(7)}.encode(key, m.address), packet{kind: answerKind}.encode(key, m.address),
		probe.encode(key, m.address),
	} {
		_, err = socket.WriteToUDPAddrPort(data, netip.AddrPortFrom(m.address, Port))
		require.NoError(t, err)
	}
	buffer := make([]byte, 2*packetSize)
	require.NoError(t, socket.SetReadDeadline(time.Now().Add(time.Minute)))
	n, from, err := socket.ReadFromUDPAddrPort(buffer)
	require.NoError(t, err)
	require.Equal(t, netip.AddrPortFrom(m.address, Port), from)
	answer, ok := decode(key, m.address, buffer[:n])
	require.True(t, ok)
	require.Equal(t, nonceOf(7), answer.nonce)
	require.Equal(t, byte(answerKind), answer.kind)
	require.Equal(t, client, answer.peer)
	require.Equal(t, int64(5), m.refused.Load())
}

// TestOtherLinks checks that an authenticated probe is dropped if it arrives on another link than the pod's, and that
// Open returns an error if no link has the pod's address.
func TestOtherLinks(t *testing.T) {
	m := start(t, &apiServer{}, private)
	m.mutex.Lock()
	m.link++
	m.mutex.Unlock()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer socket.Close()
	_, err = socket.WriteToUDPAddrPort(packet{kind: probeKind}.encode(deriveKey(private), m.address), netip.AddrPortFrom(m.address, Port))
	require.NoError(t, err)
	await(t, func() bool { return m.refused.Load() == 1 })
	_, err = Open(Options{Address: netip.MustParseAddr("192.0.2.1")})
	require.ErrorContains(t, err, "no link has the address 192.0.2.1")
}
