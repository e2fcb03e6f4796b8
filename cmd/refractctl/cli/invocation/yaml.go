// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"errors"
	"io"

	goyaml "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
)

// EncodeYAML encodes an object as YAML in the style of kubectl. kubectl's own encoder converts objects to JSON first,
// and refuses content that API servers accept: control characters in strings, and keys of more than 1024 bytes.
func EncodeYAML(object map[string]any) ([]byte, error) { return goyaml.Marshal(object) }

// yamlPrinter prints a sequence of objects, as printers.YAMLPrinter does.
type yamlPrinter struct{ isLater bool }

// newYAMLPrinter returns a yamlPrinter. If managedFields is false, the managedFields of objects are left out.
func newYAMLPrinter(managedFields bool) printers.ResourcePrinter {
	if managedFields {
		return &yamlPrinter{}
	}
	return &printers.OmitManagedFieldsPrinter{Delegate: &yamlPrinter{}}
}

// PrintObj implements printers.ResourcePrinter.
func (p *yamlPrinter) PrintObj(object runtime.Object, out io.Writer) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	if o := (&unstructured.Unstructured{Object: fields}); o.GroupVersionKind().Empty() {
		return errors.New("the object has no apiVersion and kind")
	}
	text, err := EncodeYAML(fields)
	if err != nil {
		return err
	}
	if p.isLater {
		text = append([]byte("---\n"), text...)
	}
	p.isLater = true
	_, err = out.Write(text)
	return err
}
