// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

const familyIP = byte(nftables.TableFamilyIPv4)

var hooks = map[Hook]*nftables.ChainHook{
	Prerouting: nftables.ChainHookPrerouting, Input: nftables.ChainHookInput, Forwarding: nftables.ChainHookForward,
	Output: nftables.ChainHookOutput, Postrouting: nftables.ChainHookPostrouting,
}

// Offsets and lengths of fields in packet headers, in bytes.
const (
	sourceOffset, destinationOffset = 12, 16
	addressLength                   = 4
	portOffset, portLength          = 2, 2
	tcpFlagsOffset                  = 13
	flagSYN, flagRST                = 0x02, 0x04
	maxSegmentOption                = 2
	maxSegmentOffset                = 2
	maxSegmentLength                = 2
)

// compiledChain is a chain with its rules as the kernel executes them. A chain without a hook contains rules that other
// rules continue with.
type compiledChain struct {
	Chain
	rules []compiledRule
}

type compiledRule struct {
	expressions []expr.Any
	userData    []byte
}

// compile returns all chains of the table.
func (t Table) compile() (chains []compiledChain) {
	for _, c := range t.Chains {
		compiled := compiledChain{Chain: c}
		for _, r := range c.Rules {
			compiled.rules = append(compiled.rules, compiledRule{r.expressions(), r.userData()})
		}
		chains = append(chains, compiled)
	}
	if t.Services != nil {
		chains = append(chains, t.Services.compile()...)
	}
	return chains
}

func (k *linuxKernel) encode(t Table) (*tableState, error) {
	state := newTableState(t.Name)
	for _, s := range t.Sets {
		state.sets[s.Name] = mergeRanges(s.Ranges)
	}
	for _, m := range t.Maps {
		state.maps[m.Name] = m.encode()
	}
	if t.Services != nil {
		maps.Copy(state.maps, t.Services.encode())
	}
	for _, c := range t.compile() {
		chain := chainState{drop: c.Drop}
		if c.Hook != "" {
			chain.base = baseOf(string(c.Type), *hooks[c.Hook], nftables.ChainPriority(c.Priority))
		}
		for i, r := range c.rules {
			encoded, err := encodeRule(r.expressions, r.userData)
			if err != nil {
				return nil, fmt.Errorf("chain %s, rule %d, %w", c.Name, i, err)
			}
			chain.rules = append(chain.rules, encoded)
		}
		state.chains[c.Name] = chain
	}
	return state, nil
}

func newTableState(name string) *tableState {
	return &tableState{name: name, sets: map[string][]addressRange{}, maps: map[string]map[string]string{},
		chains: map[string]chainState{}}
}

// readTable returns a table, or nil if it does not exist.
func (k *linuxKernel) readTable(name string) (*tableState, error) {
	tables, err := k.nftables.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return nil, fmt.Errorf("listing the tables of nftables, %w", err)
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == name })
	if i < 0 {
		return nil, nil
	}
	state := newTableState(name)
	sets, err := k.nftables.GetSets(tables[i])
	if err != nil {
		return nil, fmt.Errorf("listing the sets of table %s, %w", name, err)
	}
	for _, s := range sets {
		elements, err := k.nftables.GetSetElements(s)
		if err != nil {
			return nil, fmt.Errorf("reading the set %s, %w", s.Name, err)
		}
		if s.Interval {
			state.sets[s.Name] = rangesOf(elements)
		} else if state.maps[s.Name], err = readElements(s.Name, elements); err != nil {
			return nil, err
		}
	}
	chains, err := k.nftables.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return nil, fmt.Errorf("listing the chains, %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == name {
			if state.chains[c.Name], err = k.readChain(c); err != nil {
				return nil, fmt.Errorf("reading the chain %s, %w", c.Name, err)
			}
		}
	}
	return state, nil
}

func (k *linuxKernel) readChain(c *nftables.Chain) (state chainState, err error) {
	if c.Hooknum != nil && c.Priority != nil {
		state.base = baseOf(string(c.Type), *c.Hooknum, *c.Priority)
	}
	state.drop = c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
	rules, err := k.nftables.GetRules(c.Table, c)
	for _, r := range rules {
		encoded, err := encodeRule(r.Exprs, r.UserData)
		if err != nil {
			return state, err
		}
		state.rules = append(state.rules, encoded)
	}
	return state, err
}

// writeTable writes a table in one transaction, so that packets pass either all of the old rules or all of the new
// ones. It writes only the differences, so that the counters in other chains are kept, unless the structure of the
// table changes.
func (k *linuxKernel) writeTable(a action, desired Table) error {
	name := desired.Name
	present, err := k.readTable(name)
	if err != nil {
		return err
	}
	want, err := k.encode(desired)
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: name, Family: nftables.TableFamilyIPv4}
	if a == remove || present != nil && !present.sameStructure(want) {
		k.nftables.DelTable(table)
		present = nil
	}
	if a == remove {
		return k.flush()
	}
	if present == nil {
		k.nftables.AddTable(table)
	}
	for _, s := range desired.Sets {
		if err := k.writeSet(table, s, present, want); err != nil {
			return err
		}
	}
	before := newTableState(name)
	if present != nil {
		before = present
	}
	if err := k.writeChains(table, desired, present, want); err != nil {
		return err
	}
	if err := k.flush(); err != nil {
		return err
	}
	k.flowsPending = true
	k.recordRemovedPorts(before.maps[portsMap], want.maps[portsMap])
	return nil
}

// recordRemovedPorts records which ports were removed from Services.
func (k *linuxKernel) recordRemovedPorts(before, now map[string]string) {
	for key := range before {
		if _, ok := now[key]; !ok {
			if k.removedPorts == nil {
				k.removedPorts = map[string]bool{}
			}
			k.removedPorts[key] = true
		}
	}
}

// writeChains writes the chains, and the maps that refer to them. A chain must exist before an element refers to it, and
// until no element refers to it.
func (k *linuxKernel) writeChains(table *nftables.Table, desired Table, present, want *tableState) error {
	if present == nil {
		for _, m := range desired.maps() {
			if err := k.nftables.AddSet(m.set(table), nil); err != nil {
				return err
			}
		}
		present = newTableState(table.Name)
	}
	type changedChain struct {
		*nftables.Chain
		rules []compiledRule
	}
	var changed []changedChain
	for _, c := range desired.compile() {
		has, exists := present.chains[c.Name]
		if exists && has.equal(want.chains[c.Name]) {
			continue
		}
		chain := k.nftables.AddChain(c.describe(table))
		if exists {
			k.nftables.FlushChain(chain)
		}
		changed = append(changed, changedChain{chain, c.rules})
	}
	for _, c := range changed {
		for _, r := range c.rules {
			k.nftables.AddRule(&nftables.Rule{Table: table, Chain: c.Chain, Exprs: r.expressions, UserData: r.userData})
		}
	}
	for _, m := range desired.maps() {
		if err := k.writeElements(m.set(table), present.maps[m.name], want.maps[m.name]); err != nil {
			return err
		}
	}
	for _, name := range sorted(present.chains, cmp.Compare[string]) {
		if _, ok := want.chains[name]; !ok {
			k.nftables.DelChain(&nftables.Chain{Name: name, Table: table})
		}
	}
	return nil
}

func (c compiledChain) describe(table *nftables.Table) *nftables.Chain {
	if c.Hook == "" {
		return &nftables.Chain{Name: c.Name, Table: table}
	}
	policy := nftables.ChainPolicyAccept
	if c.Drop {
		policy = nftables.ChainPolicyDrop
	}
	return &nftables.Chain{Name: c.Name, Table: table, Type: nftables.ChainType(c.Type), Hooknum: hooks[c.Hook],
		Priority: nftables.ChainPriorityRef(nftables.ChainPriority(c.Priority)), Policy: &policy}
}

// flush sends a transaction. If the kernel refuses it, further answers to its requests wait in the socket, where later
// requests would take them for their own. Therefore another socket is opened. The calling thread must be in the network
// namespace of the Applier, as for Keep.
func (k *linuxKernel) flush() error {
	err := k.nftables.Flush()
	if err == nil {
		return nil
	}
	tables, failed := openTables()
	if failed != nil {
		return errors.Join(err, failed)
	}
	_ = k.nftables.CloseLasting()
	k.nftables = tables
	return err
}

func (k *linuxKernel) writeSet(table *nftables.Table, s Set, present, want *tableState) error {
	set := &nftables.Set{Table: table, Name: s.Name, Interval: true, KeyType: nftables.TypeIPAddr}
	elements := elementsOf(want.sets[s.Name])
	if present == nil {
		return k.nftables.AddSet(set, elements)
	}
	if slices.Equal(present.sets[s.Name], want.sets[s.Name]) {
		return nil
	}
	k.nftables.FlushSet(set)
	if len(elements) == 0 {
		return nil
	}
	return k.nftables.SetAddElements(set, elements)
}

func elementsOf(ranges []addressRange) (elements []nftables.SetElement) {
	for _, r := range ranges {
		elements = append(elements, nftables.SetElement{Key: r.first.AsSlice()}, nftables.SetElement{Key: r.end.AsSlice(),
			IntervalEnd: true})
	}
	return elements
}

// rangesOf returns the ranges in a set. The kernel lists the ends of ranges in no particular order.
func rangesOf(elements []nftables.SetElement) (ranges []addressRange) {
	slices.SortFunc(elements, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
	var first netip.Addr
	for _, e := range elements {
		if e.IntervalEnd && first.IsValid() {
			ranges = append(ranges, addressRange{first, addrOf(e.Key)})
		} else if !e.IntervalEnd {
			first = addrOf(e.Key)
		}
	}
	return ranges
}

func baseOf(kind string, hook nftables.ChainHook, priority nftables.ChainPriority) string {
	return fmt.Sprintf("type %s hook %d priority %d", kind, hook, priority)
}

// encodeRule returns the text by which rules are compared: the expressions, with all counters set to zero, and the
// comment.
func encodeRule(expressions []expr.Any, userData []byte) (string, error) {
	var parts []string
	for _, e := range expressions {
		if _, ok := e.(*expr.Counter); ok {
			e = &expr.Counter{}
		}
		encoded, err := expr.Marshal(familyIP, e)
		if err != nil {
			return "", fmt.Errorf("encoding %T, %w", e, err)
		}
		parts = append(parts, hex.EncodeToString(encoded))
	}
	comment, _ := userdata.GetString(userData, userdata.TypeComment)
	return strings.Join(append(parts, comment), " "), nil
}

func (r Rule) userData() []byte {
	if r.Comment == "" {
		return nil
	}
	return userdata.AppendString(nil, userdata.TypeComment, r.Comment)
}

// expressions returns the nftables program of the rule. Each match loads a field into register 1 and compares it.
func (r Rule) expressions() (program []expr.Any) {
	emit := func(e ...expr.Any) { program = append(program, e...) }
	emit(matchLink(expr.MetaKeyIIFNAME, r.In)...)
	emit(matchLink(expr.MetaKeyOIFNAME, r.Out)...)
	emit(matchRange(sourceOffset, r.Source)...)
	emit(matchSet(sourceOffset, r.SourceSet, r.NotSourceSet)...)
	emit(matchRange(destinationOffset, r.Destination)...)
	emit(matchSet(destinationOffset, r.DestinationSet, r.NotDestinationSet)...)
	emit(r.matchConnection()...)
	protocol := r.Protocol
	if r.Opening {
		protocol = TCP
	}
	if protocol != 0 {
		emit(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{protocol}))
	}
	if r.Port != 0 {
		emit(load(expr.PayloadBaseTransportHeader, portOffset, portLength), equals(binary.BigEndian.AppendUint16(nil, r.Port)))
	}
	if r.Opening {
		emit(load(expr.PayloadBaseTransportHeader, tcpFlagsOffset, 1), mask([]byte{flagSYN | flagRST}), equals([]byte{flagSYN}))
	}
	if r.Count {
		emit(&expr.Counter{})
	}
	return append(program, r.Action.expressions()...)
}

// Values of fields in the kernel's connection tracking.
const (
	answerDirection         = 1
	statusTranslated uint32 = 1 << 5 // IPS_DST_NAT
)

// matchConnection returns the expressions for the fields of the connection that a packet belongs to, and for the kind of
// its destination.
func (r Rule) matchConnection() (program []expr.Any) {
	if r.DestinationTranslated {
		bits := binary.NativeEndian.AppendUint32(nil, statusTranslated)
		program = append(program, &expr.Ct{Key: expr.CtKeySTATUS, Register: 1}, mask(bits), equals(bits))
	}
	if r.ToHost {
		program = append(program, &expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
			equals(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)))
	}
	if r.Answer {
		program = append(program, &expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, equals([]byte{answerDirection}))
	}
	return program
}

func (a Action) expressions() []expr.Any {
	switch {
	case a.Accept:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	case a.Drop:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	case a.NoTrack:
		return []expr.Any{&expr.Notrack{}}
	case a.TranslateSource.IsValid():
		return translate(expr.NATTypeSourceNAT, a.TranslateSource)
	case a.TranslateDestination.IsValid():
		return translate(expr.NATTypeDestNAT, a.TranslateDestination)
	case a.MapDestination != "":
		return []expr.Any{
			load(expr.PayloadBaseNetworkHeader, destinationOffset, addressLength),
			&expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: a.MapDestination},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegAddrMax: 1},
		}
	case a.Masquerade:
		return []expr.Any{&expr.Masq{}}
	case a.KeepSource:
		return []expr.Any{
			load(expr.PayloadBaseNetworkHeader, sourceOffset, addressLength),
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegAddrMax: 1},
		}
	case a.Mark != 0:
		return []expr.Any{
			&expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, a.Mark)},
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
		}
	case a.MaxSegment != 0:
		return []expr.Any{
			&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, a.MaxSegment)},
			&expr.Exthdr{SourceRegister: 1, Type: maxSegmentOption, Offset: maxSegmentOffset, Len: maxSegmentLength,
				Op: expr.ExthdrOpTcpopt},
		}
	}
	return nil
}

// translate returns expressions that replace the network bits of an address (NETMAP).
func translate(kind expr.NATType, to netip.Prefix) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: to.Masked().Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: lastAddress(to).AsSlice()},
		&expr.NAT{Type: kind, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegAddrMax: 2, Prefix: true},
	}
}

func matchLink(key expr.MetaKey, name string) []expr.Any {
	if name == "" {
		return nil
	}
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, equals(padded)}
}

func matchRange(offset uint32, p netip.Prefix) []expr.Any {
	if !p.IsValid() {
		return nil
	}
	address := load(expr.PayloadBaseNetworkHeader, offset, addressLength)
	if p.IsSingleIP() {
		return []expr.Any{address, equals(p.Addr().AsSlice())}
	}
	return []expr.Any{address, mask(netOf(p).Mask), equals(p.Masked().Addr().AsSlice())}
}

func matchSet(offset uint32, name string, invert bool) []expr.Any {
	if name == "" {
		return nil
	}
	return []expr.Any{load(expr.PayloadBaseNetworkHeader, offset, addressLength), &expr.Lookup{SourceRegister: 1, SetName: name,
		Invert: invert}}
}

func load(base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{OperationType: expr.PayloadLoad, DestRegister: 1, Base: base, Offset: offset, Len: length}
}

func mask(bits []byte) expr.Any {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(bits)), Mask: bits, Xor: make([]byte, len(bits))}
}

func equals(value []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: value} }
