// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sync/errgroup"
)

// clusterDNS is a DNS server on loopback, over UDP and TCP, in place of the DNS of the cluster. It has the records that
// CoreDNS has for a Service web with two pods, for a StatefulSet, and for Services of type ExternalName.
type clusterDNS struct {
	domain  string
	records map[string][]dnsmessage.ResourceBody
	// answer replaces the answers, if it is set.
	answer  func(query []byte) []byte
	queries atomic.Int64
	address string
	stop    func()
}

func startClusterDNS(t *testing.T, domain string, records map[string][]dnsmessage.ResourceBody) *clusterDNS {
	t.Helper()
	d := &clusterDNS{domain: domain, records: records}
	packets, connections := listen(t)
	d.address = packets.LocalAddr().String()
	// The DNS of the cluster uses the same sockets code as the resolver. Its answers do not.
	server := &Resolver{
		Names: func() *Names { names, _ := NewNames("unused", "unused", nil); return names }, Metrics: NewMetrics(prometheus.NewRegistry()),
		Exchange: func(_ context.Context, transport string, query []byte) ([]byte, error) {
			d.queries.Add(1)
			if d.answer != nil {
				return d.answer(query), nil
			}
			return d.respond(transport, query)
		},
	}
	d.stop = serve(t, server, packets, connections)
	return d
}

func listen(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		if connections, err := net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, connections
		}
		packets.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// serve serves until the test ends or stop is called.
func serve(t *testing.T, server *Resolver, packets net.PacketConn, connections net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group errgroup.Group
	group.Go(func() error { return server.Serve(ctx, packets, connections) })
	stop = func() {
		cancel()
		assert.NoError(t, group.Wait())
	}
	t.Cleanup(stop)
	return stop
}

func (d *clusterDNS) respond(transport string, query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	asked := m.Questions[0]
	m.Response, m.Authoritative = true, true
	bodies, exists := d.records[strings.ToLower(asked.Name.String())]
	for _, body := range bodies {
		kind := typeOf(body)
		if kind == asked.Type || kind == dnsmessage.TypeCNAME {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: asked.Name, Type: kind, Class: dnsmessage.ClassINET, TTL: 5}, Body: body})
		}
		if srv, ok := body.(*dnsmessage.SRVResource); ok && kind == asked.Type {
			for _, glue := range d.records[srv.Target.String()] {
				m.Additionals = append(m.Additionals, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: srv.Target, Type: typeOf(glue), Class: dnsmessage.ClassINET, TTL: 5}, Body: glue})
			}
		}
	}
	if !exists {
		m.RCode = dnsmessage.RCodeNameError
	}
	if len(m.Answers) == 0 {
		m.Authorities = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(d.domain + "."), Type: dnsmessage.TypeSOA, Class: dnsmessage.ClassINET, TTL: 30},
			Body: &dnsmessage.SOAResource{NS: dnsmessage.MustNewName("ns.dns." + d.domain + "."), MBox: dnsmessage.MustNewName("hostmaster." + d.domain + "."), MinTTL: 30}}}
	}
	return pack(m, transport, udpBytes(m))
}

func typeOf(body dnsmessage.ResourceBody) dnsmessage.Type {
	switch body.(type) {
	case *dnsmessage.AResource:
		return dnsmessage.TypeA
	case *dnsmessage.SRVResource:
		return dnsmessage.TypeSRV
	case *dnsmessage.PTRResource:
		return dnsmessage.TypePTR
	case *dnsmessage.CNAMEResource:
		return dnsmessage.TypeCNAME
	}
	panic(fmt.Sprintf("%T", body))
}

func a(last byte) *dnsmessage.AResource { return &dnsmessage.AResource{A: [4]byte{10, 0, 0, last}} }
func cname(target string) *dnsmessage.CNAMEResource {
	return &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(target)}
}
func srv(target string, port uint16) *dnsmessage.SRVResource {
	return &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(target), Port: port, Weight: 50}
}

// records returns the records of the cluster's DNS.
func records(domain string) map[string][]dnsmessage.ResourceBody {
	in := func(name string) string { return name + ".svc." + domain + "." }
	all := map[string][]dnsmessage.ResourceBody{
		in("web.shop-rome"):            {a(1)},
		in("_http._tcp.web.shop-rome"): {srv(in("web.shop-rome"), 80)},
		in("db.shop-rome"):             {a(11), a(12)},
		in("db-0.db.shop-rome"):        {a(11)},
		in("db-1.db.shop-rome"):        {a(12)},
		in("_pg._tcp.db.shop-rome"):    {srv(in("db-0.db.shop-rome"), 5432), srv(in("db-1.db.shop-rome"), 5432)},
		in("alias.shop-rome"):          {cname("web.shop.svc.home.test.")},
		in("loop.shop-rome"):           {cname("loop.shop.svc.home.test.")},
		in("outside.shop-rome"):        {cname("www.example.com.")},
		in("web.shop-milan"):           {a(66)},
		in("web.other"):                {a(77)},
		"1.0.0.10.in-addr.arpa.":       {&dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(in("web.shop-rome"))}},
		"66.0.0.10.in-addr.arpa.":      {&dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(in("web.shop-milan"))}},
		"www.example.com.":             {a(99)},
	}
	for i := range 100 {
		all[in("many.shop-rome")] = append(all[in("many.shop-rome")], a(byte(100+i)))
	}
	return all
}

// home is a resolver for consumer rome on loopback, whose clusters have different domains unless the test changes it.
type home struct {
	*clusterDNS
	address string
	names   atomic.Pointer[Names]
	metrics *Metrics
}

func startHome(t *testing.T) *home { return startHomeIn(t, "home.test", "cluster.test") }

func startHomeIn(t *testing.T, homeDomain, clusterDomain string) *home {
	t.Helper()
	h := &home{clusterDNS: startClusterDNS(t, clusterDomain, records(clusterDomain)), metrics: NewMetrics(prometheus.NewRegistry())}
	names, err := NewNames(homeDomain, clusterDomain, map[string]string{"shop": "shop-rome"})
	require.NoError(t, err)
	h.names.Store(names)
	packets, connections := listen(t)
	h.address = packets.LocalAddr().String()
	serve(t, &Resolver{Names: h.names.Load, Exchange: Upstream{Addresses: []string{h.clusterDNS.address}}.Exchange, Metrics: h.metrics}, packets, connections)
	return h
}

// client returns Go's resolver, which behaves like that of libc.
func (h *home) client() *net.Resolver {
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, h.address)
	}}
}

// query sends one question over the transport, and returns the response.
func (h *home) query(t *testing.T, transport, name string, kind dnsmessage.Type, additionals ...dnsmessage.Resource) (dnsmessage.Message, int) {
	t.Helper()
	sent := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
		Additionals: additionals,
	}
	packed, err := sent.Pack()
	require.NoError(t, err)
	raw, err := Upstream{Addresses: []string{h.address}}.Exchange(t.Context(), transport, packed)
	require.NoError(t, err)
	var received dnsmessage.Message
	require.NoError(t, received.Unpack(raw))
	assert.Equal(t, uint16(4711), received.ID)
	assert.Equal(t, sent.Questions, received.Questions, "the question is returned as it was sent")
	return received, len(raw)
}

// TestPodsResolveTheirOwnNames looks names up as the programs in a pod do.
func TestPodsResolveTheirOwnNames(t *testing.T) {
	h := startHome(t)
	client := h.client()
	for name, want := range map[string][]string{
		"web.shop.svc.home.test.":          {"10.0.0.1"},
		"WEB.Shop.svc.home.TEST.":          {"10.0.0.1"},
		"db.shop.svc.home.test.":           {"10.0.0.11", "10.0.0.12"},
		"db-1.db.shop.svc.home.test.":      {"10.0.0.12"},
		"alias.shop.svc.home.test.":        {"10.0.0.1"},
		"web.shop-rome.svc.cluster.test.":  {"10.0.0.1"},
		"web.shop-milan.svc.cluster.test.": {"10.0.0.66"},
		"www.example.com.":                 {"10.0.0.99"},
	} {
		found, err := client.LookupHost(t.Context(), name)
		assert.NoError(t, err, name)
		assert.ElementsMatch(t, want, found, name)
	}
	_, services, err := client.LookupSRV(t.Context(), "pg", "tcp", "db.shop.svc.home.test.")
	require.NoError(t, err)
	var targets []string
	for _, service := range services {
		targets = append(targets, fmt.Sprintf("%s:%d", service.Target, service.Port))
	}
	assert.ElementsMatch(t, []string{"db-0.db.shop.svc.home.test.:5432", "db-1.db.shop.svc.home.test.:5432"}, targets)
	names, err := client.LookupAddr(t.Context(), "10.0.0.1")
	require.NoError(t, err)
	assert.Equal(t, []string{"web.shop.svc.home.test."}, names)
	alias, err := client.LookupCNAME(t.Context(), "outside.shop.svc.home.test.")
	require.NoError(t, err)
	assert.Equal(t, "www.example.com.", alias)
}

// TestNamesOfOthersStayTheirs checks that the map of a consumer gives it no names of another consumer, and that names
// in namespaces that are not offloaded do not lead to namespaces of this cluster.
func TestNamesOfOthersStayTheirs(t *testing.T) {
	h := startHome(t)
	for _, name := range []string{"web.shop-milan.svc.home.test.", "web.other.svc.home.test."} {
		received, _ := h.query(t, "udp", name, dnsmessage.TypeA)
		assert.Equal(t, dnsmessage.RCodeNameError, received.RCode, name)
	}
	assert.Zero(t, h.queries.Load(), "queries to the cluster's DNS")
	received, _ := h.query(t, "udp", "66.0.0.10.in-addr.arpa.", dnsmessage.TypePTR)
	require.Len(t, received.Answers, 1)
	assert.Equal(t, "web.shop-milan.svc.cluster.test.", received.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String())
}

// TestOneDomainInBothClusters checks the usual case: both clusters have the domain cluster.local. A namespace of the
// consumer takes precedence over a namespace of this cluster with the same name, and others resolve as before.
func TestOneDomainInBothClusters(t *testing.T) {
	h := startHomeIn(t, DefaultDomain, DefaultDomain)
	h.records["web.shop.svc.cluster.local."] = []dnsmessage.ResourceBody{a(88)}
	for name, want := range map[string]string{
		"web.shop.svc.cluster.local.": "10.0.0.1", "web.shop-rome.svc.cluster.local.": "10.0.0.1", "web.other.svc.cluster.local.": "10.0.0.77",
	} {
		found, err := h.client().LookupHost(t.Context(), name)
		assert.NoError(t, err, name)
		assert.Equal(t, []string{want}, found, name)
	}
}

// TestNegativeAnswers checks that a name that does not exist can be cached: the SOA record must be in the domain of the
// question. A name without records of a type is distinguished from a name that does not exist.
func TestNegativeAnswers(t *testing.T) {
	h := startHome(t)
	for name, want := range map[string]dnsmessage.RCode{"none.shop.svc.home.test.": dnsmessage.RCodeNameError, "web.shop.svc.home.test.": dnsmessage.RCodeSuccess} {
		received, _ := h.query(t, "udp", name, dnsmessage.TypeAAAA)
		assert.Equal(t, want, received.RCode, name)
		assert.Empty(t, received.Answers, name)
		require.Len(t, received.Authorities, 1, name)
		assert.Equal(t, "home.test.", received.Authorities[0].Header.Name.String(), name)
		assert.Equal(t, uint32(30), received.Authorities[0].Header.TTL, name)
	}
}

func TestTTLsAndOptionsAreKept(t *testing.T) {
	h := startHome(t)
	option := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(".")}, Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: 10, Data: []byte("cookie12")}}}}
	require.NoError(t, option.Header.SetEDNS0(1232, 0, true))
	received, _ := h.query(t, "udp", "web.SHOP.svc.home.test.", dnsmessage.TypeA, option)
	require.Len(t, received.Answers, 1)
	assert.Equal(t, uint32(5), received.Answers[0].Header.TTL)
	assert.Equal(t, "web.SHOP.svc.home.test.", received.Answers[0].Header.Name.String(), "the case of the question")
	require.Len(t, received.Additionals, 1)
	assert.Equal(t, dnsmessage.Class(1232), received.Additionals[0].Header.Class)
	assert.Equal(t, option.Body, received.Additionals[0].Body)
}

// TestLargeAnswers checks that answers that are too large for UDP are truncated, and that clients get all records over
// TCP, or over UDP if they accept larger packets.
func TestLargeAnswers(t *testing.T) {
	h := startHome(t)
	received, size := h.query(t, "udp", "many.shop.svc.home.test.", dnsmessage.TypeA)
	assert.True(t, received.Truncated)
	assert.LessOrEqual(t, size, minUDPBytes)
	found, err := h.client().LookupHost(t.Context(), "many.shop.svc.home.test.")
	require.NoError(t, err)
	assert.Len(t, found, 100)
	option := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(".")}, Body: &dnsmessage.OPTResource{}}
	require.NoError(t, option.Header.SetEDNS0(4096, 0, false))
	received, _ = h.query(t, "udp", "many.shop.svc.home.test.", dnsmessage.TypeA, option)
	assert.False(t, received.Truncated)
	assert.Len(t, received.Answers, 100)
}

// TestTranslatedAnswersThatGrow checks that an answer that fits into a packet before its names are translated, and not
// after that, is truncated.
func TestTranslatedAnswersThatGrow(t *testing.T) {
	long := strings.Repeat("long-domain.", 12) + "test"
	h := startHomeIn(t, long, "c")
	name := "_x._tcp.grow.shop-rome.svc.c."
	for i := range 7 {
		h.records[name] = append(h.records[name], srv(fmt.Sprintf("x-%d.grow.shop-rome.svc.c.", i), 80))
	}
	received, size := h.query(t, "udp", "_x._tcp.grow.shop.svc."+long+".", dnsmessage.TypeSRV)
	assert.True(t, received.Truncated)
	assert.LessOrEqual(t, size, minUDPBytes)
	received, _ = h.query(t, "tcp", "_x._tcp.grow.shop.svc."+long+".", dnsmessage.TypeSRV)
	assert.False(t, received.Truncated)
	assert.Len(t, received.Answers, 7)
}

// TestAliasesEnd checks that an alias that leads to itself costs a limited number of queries.
func TestAliasesEnd(t *testing.T) {
	h := startHome(t)
	received, _ := h.query(t, "udp", "loop.shop.svc.home.test.", dnsmessage.TypeA)
	assert.NotEmpty(t, received.Answers)
	assert.Equal(t, int64(1+maxAliases), h.queries.Load())
}

func TestNamesFollowTheMap(t *testing.T) {
	h := startHome(t)
	received, _ := h.query(t, "udp", "web.shop.svc.home.test.", dnsmessage.TypeA)
	assert.Equal(t, dnsmessage.RCodeSuccess, received.RCode)
	none, err := NewNames("home.test", "cluster.test", nil)
	require.NoError(t, err)
	h.names.Store(none)
	received, _ = h.query(t, "udp", "web.shop.svc.home.test.", dnsmessage.TypeA)
	assert.Equal(t, dnsmessage.RCodeNameError, received.RCode)
}

// TestAnUnreachableClusterDNS checks that clients are told to try again, and not that the name does not exist.
func TestAnUnreachableClusterDNS(t *testing.T) {
	h := startHome(t)
	h.stop()
	for _, name := range []string{"web.shop.svc.home.test.", "www.example.com."} {
		received, _ := h.query(t, "tcp", name, dnsmessage.TypeA)
		assert.Equal(t, dnsmessage.RCodeServerFailure, received.RCode, name)
	}
	counted := &dto.Metric{}
	require.NoError(t, h.metrics.queries.WithLabelValues("tcp", resultFailed).Write(counted))
	assert.InDelta(t, 2, counted.GetCounter().GetValue(), 0)
}

// TestForgedAnswersAreIgnored checks that an answer with another ID is not used: the pods of other consumers could send
// it.
func TestForgedAnswersAreIgnored(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	go func() {
		buffer := make([]byte, maxMessageBytes)
		n, client, err := server.ReadFrom(buffer)
		if err != nil {
			return
		}
		for _, change := range []byte{1, 0} { // the forged answer is first
			answer := append([]byte(nil), buffer[:n]...)
			answer[0] ^= change
			answer[3] = change
			_, _ = server.WriteTo(answer, client)
		}
	}()
	query := make([]byte, headerBytes)
	answer, err := Upstream{Addresses: []string{server.LocalAddr().String()}}.Exchange(t.Context(), "udp", query)
	require.NoError(t, err)
	assert.Equal(t, query, answer)
}

// TestMalformedMessages sends bytes that are no queries, and checks that queries are answered afterwards.
func TestMalformedMessages(t *testing.T) {
	h := startHome(t)
	conn, err := net.Dial("udp", h.address)
	require.NoError(t, err)
	defer conn.Close()
	for _, bytes := range []string{"", "x", strings.Repeat("\xff", 40), strings.Repeat("\x00", headerBytes-1)} {
		_, err := conn.Write([]byte(bytes))
		require.NoError(t, err)
	}
	// One question whose name is a pointer to itself.
	_, err = conn.Write([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	buffer := make([]byte, 512)
	n, err := conn.Read(buffer)
	require.NoError(t, err)
	var received dnsmessage.Message
	require.NoError(t, received.Unpack(buffer[:n]))
	assert.Equal(t, dnsmessage.RCodeFormatError, received.RCode)
	h.answer = func([]byte) []byte { return append([]byte{0, 0}, strings.Repeat("\xff", 30)...) }
	message, err := h.clusterDNS.respond("udp", mustQuery(t, "web.shop.svc.home.test."))
	require.NoError(t, err)
	require.NotEmpty(t, message)
}

func mustQuery(t *testing.T, name string) []byte {
	t.Helper()
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	packed, err := m.Pack()
	require.NoError(t, err)
	return packed
}

// TestAMalformedAnswer checks that an answer that cannot be parsed becomes a failure.
func TestAMalformedAnswer(t *testing.T) {
	h := startHome(t)
	h.answer = func(query []byte) []byte {
		return append(append([]byte(nil), query[:headerBytes]...), 0xc0, 12)
	}
	received, _ := h.query(t, "tcp", "web.shop.svc.home.test.", dnsmessage.TypeA)
	assert.Equal(t, dnsmessage.RCodeServerFailure, received.RCode)
}

// TestManyQueries sends many queries at once while the map changes, for the race detector.
func TestManyQueries(t *testing.T) {
	h := startHome(t)
	var group errgroup.Group
	for i := range 50 {
		group.Go(func() error {
			transport := []string{"udp", "tcp"}[i%2]
			_, err := Upstream{Addresses: []string{h.address}}.Exchange(t.Context(), transport, mustQuery(t, "web.shop.svc.home.test."))
			return err
		})
	}
	names := h.names.Load()
	for range 100 {
		h.names.Store(names)
	}
	require.NoError(t, group.Wait())
}

// FuzzAnswer checks that no query and no response of the cluster's DNS makes the resolver panic, and that what it
// returns has a DNS header with the ID of the query.
func FuzzAnswer(f *testing.F) {
	names, err := NewNames("home.test", "cluster.test", map[string]string{"shop": "shop-rome"})
	require.NoError(f, err)
	d := &clusterDNS{domain: "cluster.test", records: records("cluster.test")}
	for _, name := range []string{"web.shop.svc.home.test.", "alias.shop.svc.home.test.", "www.example.com."} {
		m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		query, _ := m.Pack()
		response, _ := d.respond("udp", query)
		f.Add(query, response)
	}
	metrics := NewMetrics(prometheus.NewRegistry())
	f.Fuzz(func(t *testing.T, query, response []byte) {
		r := &Resolver{Names: func() *Names { return names }, Metrics: metrics,
			Exchange: func(_ context.Context, _ string, asked []byte) ([]byte, error) {
				answer := append([]byte(nil), response...)
				copy(answer, asked[:2])
				return answer, nil
			}}
		for _, transport := range []string{"udp", "tcp"} {
			if answer := r.Answer(t.Context(), transport, netip.Addr{},
				query); len(answer) >= 2 && (answer[0] != query[0] || answer[1] != query[1]) {
				t.Errorf("the ID of the answer is %x, want %x", answer[:2], query[:2])
			}
		}
	})
}

// TestAddressesOfHome checks that names have the cluster IPs that Services have in the consumer's cluster, for the clients whose node
// translates them, and that these addresses have names.
func TestAddressesOfHome(t *testing.T) {
	h := startHome(t)
	names := h.names.Load()
	names = names.WithAddresses([]ServiceAddress{
		{Home: netip.MustParseAddr("10.96.0.5"), Cluster: netip.MustParseAddr("10.0.0.1")},
		{Home: netip.MustParseAddr("10.96.0.5"), Cluster: netip.MustParseAddr("10.0.0.11")},
		// A Service of the provider has this address in its own cluster.
		{Home: netip.MustParseAddr("10.0.0.66"), Cluster: netip.MustParseAddr("10.0.0.12")},
	})
	h.names.Store(names)
	client := h.client()
	lookUp := func(name string, want ...string) {
		t.Helper()
		found, err := client.LookupHost(t.Context(), name)
		assert.NoError(t, err, name)
		assert.ElementsMatch(t, want, found, name)
	}
	lookUp("web.shop.svc.home.test.", "10.96.0.5")
	lookUp("alias.shop.svc.home.test.", "10.96.0.5")
	lookUp("web.shop-rome.svc.cluster.test.", "10.0.0.1")
	lookUp("web.shop-milan.svc.cluster.test.", "10.0.0.66")
	lookUp("www.example.com.", "10.0.0.99")
	for _, transport := range []string{"udp", "tcp"} {
		response, _ := h.query(t, transport, "5.0.96.10.In-Addr.ARPA.", dnsmessage.TypePTR)
		require.Len(t, response.Answers, 1)
		assert.Equal(t, "web.shop.svc.home.test.", response.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String())
		assert.Equal(t, "5.0.96.10.In-Addr.ARPA.", response.Answers[0].Header.Name.String())
	}
	for address, known := range map[string]bool{"10.0.0.1": true, "10.96.0.9": false} {
		_, err := client.LookupAddr(t.Context(), address)
		assert.Equal(t, known, err == nil, address)
	}
	_, services, err := client.LookupSRV(t.Context(), "http", "tcp", "web.shop.svc.home.test.")
	require.NoError(t, err)
	assert.Equal(t, "web.shop.svc.home.test.", services[0].Target)

	unknown := h.startResolver(t, func(netip.Addr) bool { return false })
	found, err := unknown.LookupHost(t.Context(), "web.shop.svc.home.test.")
	require.NoError(t, err)
	assert.Equal(t, []string{"10.0.0.1"}, found, "the node of the client does not translate addresses yet")
	of, err := unknown.LookupAddr(t.Context(), "10.96.0.5")
	require.NoError(t, err)
	assert.Equal(t, []string{"web.shop.svc.home.test."}, of)
	local := h.startResolver(t, func(client netip.Addr) bool { return client == netip.MustParseAddr("127.0.0.1") })
	found, err = local.LookupHost(t.Context(), "web.shop.svc.home.test.")
	require.NoError(t, err)
	assert.Equal(t, []string{"10.96.0.5"}, found)
}

// startResolver starts another resolver with the same names. It returns a client of it.
func (h *home) startResolver(t *testing.T, isTranslated func(netip.Addr) bool) *net.Resolver {
	t.Helper()
	other := &home{clusterDNS: h.clusterDNS}
	packets, connections := listen(t)
	other.address = packets.LocalAddr().String()
	serve(t, &Resolver{Names: h.names.Load, Exchange: Upstream{Addresses: []string{h.clusterDNS.address}}.Exchange,
		Metrics: NewMetrics(prometheus.NewRegistry()), IsTranslated: isTranslated}, packets, connections)
	return other.client()
}

func TestParseReverse(t *testing.T) {
	for name, want := range map[string]string{
		"5.0.96.10.in-addr.arpa.": "10.96.0.5", "5.0.96.10.IN-ADDR.arpa.": "10.96.0.5", "0.96.10.in-addr.arpa.": "",
		"05.0.96.10.in-addr.arpa.":  "",
		"1.5.0.96.10.in-addr.arpa.": "", "in-addr.arpa.": "", ".in-addr.arpa.": "", "web.shop.svc.cluster.local.": "",
		"256.0.96.10.in-addr.arpa.": "",
	} {
		address, ok := parseReverse(name)
		assert.Equal(t, want != "", ok, name)
		if ok {
			assert.Equal(t, want, address.String())
			assert.Equal(t, lower(name), reverseName(address))
		}
	}
}
