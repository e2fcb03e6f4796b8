// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// events decodes the envelopes of watch events, but not the objects in them. The object shares memory with data, and
// must be decoded before the next event is read.
type events struct{ runtime.Serializer }

func (e events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok || !takeApart(data, event) {
		return e.Serializer.Decode(data, defaults, into)
	}
	kind := metav1.SchemeGroupVersion.WithKind("WatchEvent")
	kind.Group, kind.Version = "", "v1"
	return event, &kind, nil
}

// takeApart parses {"type":"…","object":…}. It returns false for any other text.
func takeApart(data []byte, event *metav1.WatchEvent) bool {
	return takeUsual(data, event) || takeAny(data, event)
}

// takeUsual parses an envelope in the form that API servers write. It does not validate the object, which is validated
// when it is decoded.
func takeUsual(data []byte, event *metav1.WatchEvent) bool {
	rest, ok := bytes.CutPrefix(data, []byte(`{"type":"`))
	if !ok {
		return false
	}
	text, rest, ok := bytes.Cut(rest, []byte(`","object":`))
	if !ok || len(rest) == 0 || rest[0] != '{' || bytes.ContainsAny(text, `"\\`) {
		return false
	}
	var s scan
	end := s.endOf(rest)
	if end < 0 || string(rest[end:]) != "}" {
		return false
	}
	event.Type, event.Object.Raw = string(text), rest[:end]
	return true
}

// takeAny parses an envelope in any valid form.
func takeAny(data []byte, event *metav1.WatchEvent) bool {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(data), lenient...)
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return false
	}
	var read metav1.WatchEvent
	for decoder.PeekKind() != '}' {
		name, err := decoder.ReadToken()
		if err != nil {
			return false
		}
		switch name.String() {
		case "type":
			value, err := decoder.ReadToken()
			if err != nil || value.Kind() != '"' {
				return false
			}
			read.Type = value.String()
		case "object":
			value, err := decoder.ReadValue()
			if err != nil {
				return false
			}
			read.Object.Raw = value
		default:
			return false
		}
	}
	if read.Type == "" || read.Object.Raw == nil {
		return false
	}
	*event = read
	return true
}

// objects decodes single objects.
type objects struct {
	runtime.Serializer
	parsers *parsers
}

func (o objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if list, ok := into.(*unstructured.UnstructuredList); ok && o.parsers.options.isSelective() && o.parsers.parseList(data, list) == nil {
		kind := list.GroupVersionKind()
		return list, &kind, nil
	}
	object, matches := into.(*unstructured.Unstructured)
	if into != nil && !matches {
		return o.Serializer.Decode(data, defaults, into)
	}
	fields, err := o.parsers.parseObject(data)
	if err != nil || !isObject(fields) {
		// client-go's serializer returns a more precise type or error.
		return o.Serializer.Decode(data, defaults, into)
	}
	if object == nil {
		object = &unstructured.Unstructured{}
	}
	object.Object = fields
	kind := object.GroupVersionKind()
	return object, &kind, nil
}

// isObject reports whether the fields belong to a single object. Lists and errors of an API server are decoded by
// client-go, which has types for them.
func isObject(fields map[string]any) bool {
	kind, _ := fields["kind"].(string)
	version, _ := fields["apiVersion"].(string)
	_, list := fields["items"]
	return kind != "" && version != "" && !list && kind != "Status" && !strings.HasSuffix(kind, "List")
}
