// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Names of the maps and chains of Services. A chain with the prefix pickPrefix or stickPrefix exists for each number of
// endpoints.
const (
	podsMap, portsMap, endpointsMap = "service-pods", "service-ports", "service-endpoints"
	// refusedMap contains the ports without endpoints, and selfMap the pairs of addresses of a pod that is its own endpoint.
	refusedMap, selfMap     = "service-refused", "service-self"
	translateChain          = "services"
	refuseChain             = "services-refuse"
	hairpinChain            = "services-hairpin"
	pickPrefix, stickPrefix = "pick-", "stick-"
)

// Priorities of the chains of Services. translatePriority comes before kube-proxy (-100), because only the first translation
// of a connection takes effect. refusePriority comes after connection tracking (-200) and before all translations.
const (
	translatePriority = -110
	refusePriority    = -150
	hairpinPriority   = 98
)

// stickySeed is the seed of the hash of a client's address. With a different seed on each node, or after each restart,
// clients would move to other endpoints.
const stickySeed = 0x52656672

// Registers of a packet's key in portsMap and endpointsMap, in units of four bytes. The owner has four of them.
const (
	ownerRegister = iota
	_
	_
	_
	addressRegister
	protocolRegister
	portRegister
	indexRegister
	clientRegister
)

var (
	// ownerType has the size of the key of an owner. It is displayed as an IPv6 address.
	ownerType   = nftables.TypeIP6Addr
	portKey     = []nftables.SetDatatype{ownerType, nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService}
	serviceMaps = []tableMap{
		{podsMap, nftables.TypeIPAddr, ownerType},
		{portsMap, nftables.MustConcatSetType(portKey...), nftables.TypeVerdict},
		{refusedMap, nftables.MustConcatSetType(portKey...), nftables.SetDatatype{}},
		{endpointsMap, nftables.MustConcatSetType(append(slices.Clone(portKey), nftables.TypeMark)...),
			nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)},
		{selfMap, nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr), nftables.SetDatatype{}},
	}
)

// encode returns the content of the maps, by their names. Values in portsMap are names of chains.
func (s *Services) encode() map[string]map[string]string {
	content := map[string]map[string]string{}
	for _, m := range serviceMaps {
		content[m.name] = map[string]string{}
	}
	for pod, owner := range s.Pods {
		address := pod.As4()
		content[podsMap][string(address[:])] = ownerKey(owner)
		content[selfMap][string(address[:])+string(address[:])] = ""
	}
	for port, backends := range s.Ports {
		key := port.key()
		if len(backends.Endpoints) == 0 {
			content[refusedMap][key] = ""
			continue
		}
		content[portsMap][key] = backends.chain()
		for i, endpoint := range backends.Endpoints {
			index := binary.NativeEndian.AppendUint32(nil, uint32(i))
			content[endpointsMap][key+string(index)] = endpointValue(endpoint)
		}
	}
	return content
}

// ownerKey returns the key of an owner. Owners choose their names, so it must be hard to find two names with the same key.
func ownerKey(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return string(sum[:ownerType.Bytes])
}

// key returns the key in portsMap. Each part is padded to four bytes.
func (p ServicePort) key() string {
	address := p.Address.As4()
	port := binary.BigEndian.AppendUint16(nil, p.Port)
	return ownerKey(p.Owner) + string(address[:]) + string([]byte{p.Protocol, 0, 0, 0, port[0], port[1], 0, 0})
}

func endpointValue(endpoint netip.AddrPort) string {
	address := endpoint.Addr().As4()
	port := binary.BigEndian.AppendUint16(nil, endpoint.Port())
	return string(address[:]) + string([]byte{port[0], port[1], 0, 0})
}

// chain returns the name of the chain that chooses one of the endpoints.
func (b Backends) chain() string {
	prefix := pickPrefix
	if b.Sticky && len(b.Endpoints) > 1 {
		prefix = stickPrefix
	}
	return prefix + strconv.Itoa(len(b.Endpoints))
}

// compile returns the chains of Services. There is one chain for each number of endpoints, and not for each Service.
func (s *Services) compile() []compiledChain {
	chains := []compiledChain{
		{Chain: Chain{Name: translateChain, Type: NAT, Hook: Prerouting, Priority: translatePriority}, rules: []compiledRule{
			{expressions: append(loadPort(), &expr.Lookup{SourceRegister: register(ownerRegister), DestRegister: unix.NFT_REG_VERDICT,
				IsDestRegSet: true, SetName: portsMap})}}},
		{Chain: Chain{Name: refuseChain, Type: Filter, Hook: Prerouting, Priority: refusePriority}, rules: []compiledRule{
			{expressions: refuse(matchNumber(expr.MetaKeyL4PROTO, TCP), &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})},
			{expressions: refuse(nil, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable})}}},
		{Chain: Chain{Name: hairpinChain, Type: NAT, Hook: Postrouting, Priority: hairpinPriority}, rules: []compiledRule{
			{expressions: []expr.Any{
				loadInto(0, expr.PayloadBaseNetworkHeader, sourceOffset, addressLength),
				loadInto(1, expr.PayloadBaseNetworkHeader, destinationOffset, addressLength),
				&expr.Lookup{SourceRegister: register(0), SetName: selfMap}, &expr.Masq{}}}}},
	}
	numbers := map[string]Backends{}
	for _, b := range s.Ports {
		if len(b.Endpoints) > 0 {
			numbers[b.chain()] = b
		}
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		chains = append(chains, compiledChain{Chain: Chain{Name: name}, rules: []compiledRule{{expressions: numbers[name].choose()}}})
	}
	return chains
}

// portUnreachable is the code of the ICMP message that a port does not exist.
const portUnreachable = 3

// loadPort returns expressions that load the key of the packet in portsMap. They do not match packets of other pods.
func loadPort() []expr.Any {
	return []expr.Any{
		loadInto(ownerRegister, expr.PayloadBaseNetworkHeader, sourceOffset, addressLength),
		&expr.Lookup{SourceRegister: register(ownerRegister), DestRegister: register(ownerRegister), IsDestRegSet: true, SetName: podsMap},
		loadInto(addressRegister, expr.PayloadBaseNetworkHeader, destinationOffset, addressLength),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register(protocolRegister)},
		loadInto(portRegister, expr.PayloadBaseTransportHeader, portOffset, portLength),
	}
}

// refuse returns a rule that rejects packets to a port without endpoints, unless they belong to a connection that was
// established before.
func refuse(match []expr.Any, reject *expr.Reject) []expr.Any {
	const newConnection = 8 // NF_CT_STATE_BIT(IP_CT_NEW)
	bit := binary.NativeEndian.AppendUint32(nil, newConnection)
	program := append(match, &expr.Ct{Register: 1, Key: expr.CtKeySTATE}, mask(bit),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, len(bit))})
	program = append(program, loadPort()...)
	return append(program, &expr.Lookup{SourceRegister: register(ownerRegister), SetName: refusedMap}, reject)
}

// choose returns the rule that translates the destination of the packet to one of the endpoints.
func (b Backends) choose() []expr.Any {
	program, number := loadPort(), uint32(len(b.Endpoints))
	if b.Sticky && number > 1 {
		program = append(program, loadInto(clientRegister, expr.PayloadBaseNetworkHeader, sourceOffset, addressLength),
			&expr.Hash{SourceRegister: register(clientRegister), DestRegister: register(indexRegister), Length: addressLength,
				Modulus: number, Seed: stickySeed, Type: expr.HashTypeJenkins})
	} else {
		program = append(program, &expr.Numgen{Register: register(indexRegister), Modulus: number, Type: unix.NFT_NG_RANDOM})
	}
	const endpointRegister = 0
	return append(program,
		&expr.Lookup{SourceRegister: register(ownerRegister), DestRegister: register(endpointRegister), IsDestRegSet: true,
			SetName: endpointsMap},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4,
			RegAddrMin: register(endpointRegister), RegAddrMax: register(endpointRegister),
			RegProtoMin: register(endpointRegister + 1), RegProtoMax: register(endpointRegister + 1), Specified: true})
}

// register returns the number of a register of four bytes, as the kernel lists it. The kernel lists each fourth of them
// as a register of 16 bytes.
func register(index uint32) uint32 {
	if index%4 == 0 {
		return unix.NFT_REG_1 + index/4
	}
	return unix.NFT_REG32_00 + index
}

func loadInto(index uint32, base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{OperationType: expr.PayloadLoad, DestRegister: register(index), Base: base, Offset: offset, Len: length}
}

func matchNumber(key expr.MetaKey, value byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, equals([]byte{value})}
}
