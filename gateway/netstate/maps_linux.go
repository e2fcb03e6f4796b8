// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// elementsPerMessage limits the elements in a message to the kernel, which must be smaller than 64 KiB.
const elementsPerMessage = 300

// tableMap describes a map, or a set without ranges, of a table.
type tableMap struct {
	name string
	key  nftables.SetDatatype
	// value is the zero value for a set.
	value nftables.SetDatatype
}

// maps returns all maps of the table.
func (t Table) maps() (all []tableMap) {
	for _, m := range t.Maps {
		all = append(all, tableMap{m.Name, nftables.TypeIPAddr, nftables.TypeIPAddr})
	}
	if t.Services != nil {
		all = append(all, serviceMaps...)
	}
	return all
}

func (m tableMap) set(table *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: table, Name: m.name, KeyType: m.key, DataType: m.value, IsMap: m.value.Name != ""}
}

func (m AddressMap) encode() map[string]string {
	content := make(map[string]string, len(m.Entries))
	for key, value := range m.Entries {
		content[string(key.AsSlice())] = string(value.AsSlice())
	}
	return content
}

// readElements returns the content of a map.
func readElements(name string, elements []nftables.SetElement) (map[string]string, error) {
	content := make(map[string]string, len(elements))
	for _, e := range elements {
		value := string(e.Val)
		if name == portsMap {
			attributes, err := nl.ParseRouteAttr(e.Val)
			if err != nil {
				return nil, fmt.Errorf("parsing an element of the map %s, %w", name, err)
			}
			value = ""
			for _, a := range attributes {
				if a.Attr.Type&nl.NLA_TYPE_MASK == unix.NFTA_VERDICT_CHAIN {
					value = string(trimNull(a.Value))
				}
			}
		}
		content[string(e.Key)] = value
	}
	return content, nil
}

// writeElements writes the differences between the present and the desired content of a map.
func (k *linuxKernel) writeElements(set *nftables.Set, present, desired map[string]string) error {
	var obsolete, missing []nftables.SetElement
	for _, key := range slices.Sorted(maps.Keys(present)) {
		if value, ok := desired[key]; !ok || value != present[key] {
			obsolete = append(obsolete, nftables.SetElement{Key: []byte(key)})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		value, ok := present[key]
		if ok && value == desired[key] {
			continue
		}
		element := nftables.SetElement{Key: []byte(key), Val: []byte(desired[key])}
		if set.Name == portsMap {
			element = nftables.SetElement{Key: []byte(key), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: desired[key]}}
		}
		missing = append(missing, element)
	}
	for chunk := range slices.Chunk(obsolete, elementsPerMessage) {
		if err := k.nftables.SetDeleteElements(set, chunk); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(missing, elementsPerMessage) {
		if err := k.nftables.SetAddElements(set, chunk); err != nil {
			return err
		}
	}
	return nil
}
