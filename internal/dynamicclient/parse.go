// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// lenient accepts the same input as client-go: the last one of duplicate keys is used, and invalid UTF-8 is replaced.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

var errNotAnObject = errors.New("not a JSON object")

// parsers is a pool of parsers, which remember the keys of the objects that they have parsed. The objects of a kind
// have the same keys. Because parsers are reused, a cache of many objects contains each key only once in memory. It is
// safe for concurrent use.
type parsers struct {
	options Options
	idle    sync.Pool
}

// parseObject decodes a JSON object into the content of an unstructured object. Whole numbers become int64 if they fit,
// and all other numbers become float64.
func (s *parsers) parseObject(data []byte) (map[string]any, error) {
	p := s.parserFor(data)
	defer s.idle.Put(p)
	if excess := s.options.Limits.ExceededBy(data); excess != "" {
		return p.parseIdentity(excess)
	}
	object, err := p.parseRoot()
	if err == nil && p.excess != "" {
		p.decoder.Reset(bytes.NewBuffer(data), lenient...)
		return p.parseIdentity(p.excess)
	}
	return object, err
}

// parserFor returns a parser for data. The caller must put it back into the pool after use.
func (s *parsers) parserFor(data []byte) *parser {
	p, ok := s.idle.Get().(*parser)
	if !ok || len(p.keys) > maxKeys {
		p = &parser{decoder: &jsontext.Decoder{}, keys: map[string]string{}, options: &s.options}
	}
	p.decoder.Reset(bytes.NewBuffer(data), lenient...)
	p.managed, p.excess = 0, ""
	return p
}

// maxKeys limits the number of keys that a parser remembers, because objects may have any number of different label and
// annotation keys. With a lower limit, an ordinary mix of kinds would evict keys, which would be allocated again.
const maxKeys = 2048

// maxKeyBytes limits the length of a key that a parser remembers, because authors of objects choose the keys.
const maxKeyBytes = 128

// parser builds values from tokens. It is not safe for concurrent use.
type parser struct {
	decoder *jsontext.Decoder
	// keys contains the keys that the parser remembers. Keys such as "name" occur dozens of times in an object.
	keys map[string]string
	// options determines which fields are skipped. managedFields are two fifths of an ordinary pod.
	options *Options
	// managed is the size of the object's managedFields in bytes. excess is the limit that the object's metadata
	// exceeds.
	managed int64
	excess  string
}

// place is a position in the document.
type place int

const (
	inside place = iota
	root
	metadata
)

func (p *parser) parseRoot() (map[string]any, error) {
	if p.decoder.PeekKind() != '{' {
		return nil, errNotAnObject
	}
	object, err := p.parseObjectAt(root)
	if err != nil {
		return nil, err
	}
	if _, err := p.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("more follows the object: %w", err)
	}
	return object, nil
}

func (p *parser) parseValue() (any, error) {
	switch p.decoder.PeekKind() {
	case '{':
		return p.parseObjectAt(inside)
	case '[':
		return p.parseElements()
	case '0':
		return p.parseNumber()
	}
	token, err := p.decoder.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '"':
		return token.String(), nil
	case 't':
		return true, nil
	case 'f':
		return false, nil
	case 'n':
		return nil, nil
	}
	return nil, fmt.Errorf("unexpected %s", token.Kind())
}

func (p *parser) parseObjectAt(at place) (map[string]any, error) {
	if _, err := p.decoder.ReadToken(); err != nil {
		return nil, err
	}
	object := map[string]any{}
	for p.decoder.PeekKind() != '}' {
		key, err := p.parseKey()
		if err != nil {
			return nil, err
		}
		switch {
		case at == metadata && key == "managedFields":
			object[key], err = p.managedFields()
			if p.options.DropManagedFields {
				delete(object, key)
			}
		case at == root && key == "metadata" && p.decoder.PeekKind() == '{':
			object[key], err = p.parseMetadata()
		case at == root && slices.Contains(p.options.Text, key):
			object[key], err = p.readText()
		default:
			object[key], err = p.parseValue()
		}
		if err != nil {
			return nil, err
		}
	}
	_, err := p.decoder.ReadToken()
	return object, err
}

// managedFields decodes or skips the managedFields of the object, depending on the options.
func (p *parser) managedFields() (value any, err error) {
	begin := p.decoder.InputOffset()
	if p.options.DropManagedFields {
		err = p.decoder.SkipValue()
	} else {
		value, err = p.parseValue()
	}
	p.managed = p.decoder.InputOffset() - begin
	return value, err
}

func (p *parser) parseKey() (string, error) {
	raw, err := p.decoder.ReadValue()
	if err != nil {
		return "", err
	}
	if known, ok := p.keys[string(raw)]; ok {
		return known, nil
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", err
	}
	key := string(text)
	if len(raw) <= maxKeyBytes {
		p.keys[string(raw)] = key
	}
	return key, nil
}

func (p *parser) parseElements() (any, error) {
	if _, err := p.decoder.ReadToken(); err != nil {
		return nil, err
	}
	list := []any{}
	for p.decoder.PeekKind() != ']' {
		element, err := p.parseValue()
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	_, err := p.decoder.ReadToken()
	return list, err
}

func (p *parser) parseNumber() (any, error) {
	raw, err := p.decoder.ReadValue()
	if err != nil {
		return nil, err
	}
	if whole, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return whole, nil
	}
	return strconv.ParseFloat(string(raw), 64)
}
