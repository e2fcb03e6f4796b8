// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/jsoncost"
)

// Limits are limits of a single object as the API server encodes it. 0 means no limit.
type Limits struct {
	// Bytes is the maximum size of the object's JSON.
	Bytes int64
	// Values is the maximum of jsoncost.Cost.Values for the object, which approximates the number of its objects,
	// lists, fields and list elements.
	Values int64
	// MetadataBytes is the maximum size of the object's metadata without the managedFields.
	MetadataBytes int64
}

// excessField is a top-level field of a decoded object that has exceeded the limits. API servers do not use a field
// with this name.
const excessField = "refract.io/excess"

// Excess returns the limit that an object exceeds, or an empty string if it exceeds none. An object that exceeds a
// limit is decoded with only its identifying metadata and its status, so that authors of objects cannot exhaust the
// memory of readers.
func Excess(object *unstructured.Unstructured) string {
	excess, _ := object.Object[excessField].(string)
	return excess
}

// ExceededBy returns the limit that the text of an object exceeds, or "" if it exceeds none. The result does not
// contain the actual size, which would change with each status write.
func (l Limits) ExceededBy(text []byte) string {
	if l.Bytes > 0 && int64(len(text)) > l.Bytes {
		return l.ExcessBytes()
	}
	if l.Values > 0 && int64(len(text)) > l.Values && jsoncost.Of(text).Values > l.Values {
		return fmt.Sprintf("it has more than %d values", l.Values)
	}
	return ""
}

// ExcessBytes returns the result of ExceededBy for an object that is larger than Bytes.
func (l Limits) ExcessBytes() string { return fmt.Sprintf("it has more than %d bytes", l.Bytes) }

// identifying lists the metadata fields that are kept if an object exceeds the limits.
var identifying = []string{"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}

// parseIdentity decodes an object without its content.
func (p *parser) parseIdentity(excess string) (map[string]any, error) {
	object := map[string]any{excessField: excess}
	err := p.parseFields(func(key string) (err error) {
		switch {
		case key == "metadata" && p.decoder.PeekKind() == '{':
			kept := map[string]any{}
			object[key] = kept
			return p.parseFields(func(key string) (err error) {
				if !slices.Contains(identifying, key) {
					return p.decoder.SkipValue()
				}
				kept[key], err = p.parseValue()
				return err
			})
		case key == "apiVersion", key == "kind", key == "status":
			object[key], err = p.parseValue()
			return err
		}
		return p.decoder.SkipValue()
	})
	return object, err
}

// parseFields calls read for each field of an object. read must read the value of the field from the decoder.
func (p *parser) parseFields(read func(key string) error) error {
	if p.decoder.PeekKind() != '{' {
		return errNotAnObject
	}
	if _, err := p.decoder.ReadToken(); err != nil {
		return err
	}
	for p.decoder.PeekKind() != '}' {
		key, err := p.decoder.ReadToken()
		if err != nil {
			return err
		}
		if err := read(key.String()); err != nil {
			return err
		}
	}
	_, err := p.decoder.ReadToken()
	return err
}

// parseMetadata decodes the metadata of an object, and records whether it exceeds the limits.
func (p *parser) parseMetadata() (map[string]any, error) {
	begin := p.decoder.InputOffset()
	object, err := p.parseObjectAt(metadata)
	size, limit := p.decoder.InputOffset()-begin-p.managed, p.options.Limits.MetadataBytes
	if limit > 0 && size > limit {
		p.excess = fmt.Sprintf("its metadata have more than %d bytes", limit)
	}
	return object, err
}

// readText returns a value as text, without decoding it.
func (p *parser) readText() (string, error) {
	value, err := p.decoder.ReadValue()
	return string(value), err
}

// isSelective reports whether the options require that some objects are decoded only partially.
func (o *Options) isSelective() bool { return len(o.Text) > 0 || o.Limits != Limits{} }

var errNotAList = errors.New("not a list of objects")

// parseList decodes a list object by object, so that an object that exceeds the limits takes no more memory in a list
// than it does alone.
func (s *parsers) parseList(data []byte, list *unstructured.UnstructuredList) error {
	p := s.parserFor(data)
	defer s.idle.Put(p)
	read := unstructured.UnstructuredList{Object: map[string]any{}}
	err := p.parseFields(func(key string) (err error) {
		if key != "items" || p.decoder.PeekKind() != '[' {
			read.Object[key], err = p.parseValue()
			return err
		}
		if _, err := p.decoder.ReadToken(); err != nil {
			return err
		}
		for p.decoder.PeekKind() != ']' {
			item, err := p.decoder.ReadValue()
			if err != nil {
				return err
			}
			fields, err := s.parseObject(item)
			if err != nil {
				return err
			}
			read.Items = append(read.Items, unstructured.Unstructured{Object: fields})
		}
		_, err = p.decoder.ReadToken()
		return err
	})
	switch {
	case err != nil:
		return err
	case read.GetKind() == "" || read.GetAPIVersion() == "" || read.GetKind() == "Status":
		return errNotAList
	}
	kind := strings.TrimSuffix(read.GetKind(), "List")
	for i := range read.Items {
		if item := &read.Items[i]; item.GetKind() == "" {
			item.SetKind(kind)
			item.SetAPIVersion(read.GetAPIVersion())
		}
	}
	*list = read
	return nil
}

// Value decodes the text of a field in Options.Text.
func Value(text string) (any, error) {
	p := &parser{decoder: jsontext.NewDecoder(bytes.NewBufferString(text), lenient...), keys: map[string]string{}, options: &Options{}}
	value, err := p.parseValue()
	if err != nil {
		return nil, fmt.Errorf("decoding a field, %w", err)
	}
	return value, nil
}
