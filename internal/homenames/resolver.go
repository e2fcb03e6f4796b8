// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// headerBytes is the size of the header of a DNS message.
	headerBytes = 12
	// minUDPBytes is the size of a response over UDP that every client accepts.
	minUDPBytes = 512
	// maxAliases is the maximum number of aliases (CNAME) that are followed in one question. Kubernetes resolves the alias
	// of a Service of type ExternalName itself, except when its target is a name of the consumer's cluster.
	maxAliases = 8
)

// Exchange sends a query to the DNS of this cluster, over the given transport (udp or tcp), and returns the response.
type Exchange func(ctx context.Context, transport string, query []byte) ([]byte, error)

// Resolver answers the DNS queries of one consumer's pods.
type Resolver struct {
	// Names returns the current translation.
	Names func() *Names
	// Exchange queries the DNS of this cluster.
	Exchange Exchange
	// Metrics counts the queries.
	Metrics *Metrics
	// IsTranslated reports whether the node of the client translates the addresses of the consumer's cluster yet. All other clients get
	// the addresses of this cluster. If it is nil, all clients get the addresses of the consumer's cluster.
	IsTranslated func(client netip.Addr) bool
}

// errTooLong is returned for a name that is too long after its translation. Such a name cannot exist.
var errTooLong = errors.New("the translated name is longer than a DNS name may be")

// Answer returns the response to a query that was received from a client over the given transport (udp or tcp). It returns
// nil if the query must not be answered, because it is no DNS query. It may be called concurrently.
func (r *Resolver) Answer(ctx context.Context, transport string, client netip.Addr, query []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil || header.Response {
		r.Metrics.count(transport, resultMalformed)
		return nil
	}
	question, err := parser.Question()
	if err != nil && !errors.Is(err, dnsmessage.ErrSectionDone) {
		r.Metrics.count(transport, resultMalformed)
		return failure(header, nil, dnsmessage.RCodeFormatError)
	}
	kind := otherName
	names := r.Names()
	if r.IsTranslated != nil && !r.IsTranslated(client) {
		names = names.withoutHomeAddresses()
	}
	translatable := err == nil && question.Class == dnsmessage.ClassINET && binary.BigEndian.Uint16(query[4:]) == 1
	if translatable {
		_, kind = names.toCluster(question.Name.String())
	}
	switch {
	case kind == absentName:
		r.Metrics.count(transport, resultTranslated)
		return failure(header, &question, dnsmessage.RCodeNameError)
	case kind == translatedName, translatable && question.Type == dnsmessage.TypePTR:
		response, err := r.translate(ctx, transport, query, names)
		if errors.Is(err, errTooLong) {
			return failure(header, &question, dnsmessage.RCodeNameError)
		}
		if err != nil {
			r.Metrics.count(transport, resultFailed)
			return failure(header, &question, dnsmessage.RCodeServerFailure)
		}
		r.Metrics.count(transport, resultTranslated)
		return response
	}
	response, err := r.Exchange(ctx, transport, query)
	if err != nil {
		r.Metrics.count(transport, resultFailed)
		return failure(header, &question, dnsmessage.RCodeServerFailure)
	}
	r.Metrics.count(transport, resultForwarded)
	return response
}

// translate answers a query about a name of the consumer's cluster.
func (r *Resolver) translate(ctx context.Context, transport string, query []byte, names *Names) ([]byte, error) {
	var asked dnsmessage.Message
	if err := asked.Unpack(query); err != nil {
		return nil, fmt.Errorf("parsing the query, %w", err)
	}
	response, err := r.ask(ctx, transport, asked, names)
	if err != nil {
		return nil, err
	}
	for range maxAliases {
		alias, ok := danglingAlias(response.Answers, asked.Questions[0].Type, names)
		if !ok {
			break
		}
		next := asked
		next.Questions = []dnsmessage.Question{{Name: alias, Type: asked.Questions[0].Type, Class: dnsmessage.ClassINET}}
		rest, err := r.ask(ctx, transport, next, names)
		if err != nil {
			return nil, err
		}
		response.RCode, response.Truncated = rest.RCode, response.Truncated || rest.Truncated
		response.Answers = append(response.Answers, rest.Answers...)
		response.Authorities = rest.Authorities
	}
	response.Questions = asked.Questions
	return pack(response, transport, udpBytes(asked))
}

// ask sends the query, which contains names of the consumer's cluster, to the DNS of this cluster. It returns the
// response with names of the consumer's cluster.
func (r *Resolver) ask(ctx context.Context, transport string, query dnsmessage.Message, names *Names) (dnsmessage.Message, error) {
	var response dnsmessage.Message
	asked := query.Questions[0]
	translated, _ := names.toCluster(asked.Name.String())
	name, err := dnsmessage.NewName(translated)
	if err != nil || len(translated) > maxNameLength {
		return response, errTooLong
	}
	query.Questions = []dnsmessage.Question{{Name: name, Type: asked.Type, Class: asked.Class}}
	packed, err := query.Pack()
	if err != nil {
		return response, fmt.Errorf("translating the query, %w", err)
	}
	answer, err := r.Exchange(ctx, transport, packed)
	if err != nil {
		return response, err
	}
	if err := response.Unpack(answer); err != nil {
		return response, fmt.Errorf("parsing the response of the cluster's DNS, %w", err)
	}
	back := backTranslation{names: names, asked: asked.Name, translated: lower(translated)}
	for _, section := range [][]dnsmessage.Resource{response.Answers, response.Authorities, response.Additionals} {
		for i := range section {
			back.resource(&section[i])
		}
	}
	if back.err != nil {
		return response, back.err
	}
	// A signature of the cluster's DNS does not cover the translated names.
	response.AuthenticData = false
	return response, nil
}

// maxNameLength is the maximum length of a DNS name as text with a final dot.
const maxNameLength = 254

// backTranslation translates the names in a response.
type backTranslation struct {
	names      *Names
	asked      dnsmessage.Name // name of the question as the client has written it
	translated string          // the same name in this cluster, in lower case
	err        error
}

// name translates one name. Clients compare the names of records with the name in their question, and some of them
// also compare the case.
func (b *backTranslation) name(name *dnsmessage.Name) {
	text := name.String()
	if lower(text) == b.translated {
		*name = b.asked
		return
	}
	home := b.names.toHome(text)
	if home == text {
		return
	}
	translated, err := dnsmessage.NewName(home)
	if err != nil || len(home) > maxNameLength {
		b.err = errTooLong
		return
	}
	*name = translated
}

// resource translates the names and the addresses of Services in a record. Only the types listed here have names of Kubernetes objects.
func (b *backTranslation) resource(resource *dnsmessage.Resource) {
	if resource.Header.Type == dnsmessage.TypeOPT {
		return
	}
	b.name(&resource.Header.Name)
	switch body := resource.Body.(type) {
	case *dnsmessage.CNAMEResource:
		b.name(&body.CNAME)
	case *dnsmessage.SRVResource:
		b.name(&body.Target)
	case *dnsmessage.PTRResource:
		b.name(&body.PTR)
	case *dnsmessage.AResource:
		if home, ok := b.names.homeAddresses[netip.AddrFrom4(body.A)]; ok {
			body.A = home.As4()
		}
	}
}

// danglingAlias returns the target of the last record if it is an alias for a name of the consumer's cluster. The
// cluster's DNS cannot resolve such a name.
func danglingAlias(answers []dnsmessage.Resource, asked dnsmessage.Type, names *Names) (dnsmessage.Name, bool) {
	if len(answers) == 0 || asked == dnsmessage.TypeCNAME || asked == dnsmessage.TypeALL {
		return dnsmessage.Name{}, false
	}
	alias, ok := answers[len(answers)-1].Body.(*dnsmessage.CNAMEResource)
	if !ok {
		return dnsmessage.Name{}, false
	}
	_, kind := names.toCluster(alias.CNAME.String())
	return alias.CNAME, kind == translatedName
}

// pack returns the response in wire format. The translated names may be longer than those of the cluster's DNS. A
// response that is too large for the client is truncated, so that the client asks again over TCP.
func pack(response dnsmessage.Message, transport string, limit int) ([]byte, error) {
	packed, err := response.Pack()
	if err != nil {
		return nil, fmt.Errorf("translating the response, %w", err)
	}
	if transport != "udp" || len(packed) <= limit {
		return packed, nil
	}
	response.Truncated = true
	response.Answers, response.Authorities = nil, nil
	var additionals []dnsmessage.Resource
	for _, resource := range response.Additionals {
		if resource.Header.Type == dnsmessage.TypeOPT {
			additionals = append(additionals, resource)
		}
	}
	response.Additionals = additionals
	return response.Pack()
}

// udpBytes returns the size of a response over UDP that the client accepts (EDNS).
func udpBytes(query dnsmessage.Message) int {
	for _, resource := range query.Additionals {
		if resource.Header.Type == dnsmessage.TypeOPT {
			return max(minUDPBytes, int(resource.Header.Class))
		}
	}
	return minUDPBytes
}

// failure returns a response without records.
func failure(query dnsmessage.Header, question *dnsmessage.Question, code dnsmessage.RCode) []byte {
	response := dnsmessage.Message{Header: dnsmessage.Header{
		ID: query.ID, Response: true, OpCode: query.OpCode, RecursionDesired: query.RecursionDesired, RecursionAvailable: true, RCode: code,
	}}
	if question != nil && question.Name.Length > 0 {
		response.Questions = []dnsmessage.Question{*question}
	}
	packed, err := response.Pack()
	if err != nil {
		return nil
	}
	return packed
}
