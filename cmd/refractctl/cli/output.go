// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// format is the value of -o.
type format string

const (
	asText format = ""
	asJSON format = "json"
	asYAML format = "yaml"
)

func (f format) validate() error {
	switch f {
	case asText, asJSON, asYAML:
		return nil
	}
	return fmt.Errorf("--output is %q: use json or yaml", string(f))
}

// print writes v as JSON or YAML.
func (f format) print(out io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil && f == asYAML {
		text, err = yaml.Marshal(v)
	}
	if err != nil {
		return fmt.Errorf("encoding the output, %w", err)
	}
	if f == asJSON {
		text = append(text, '\n')
	}
	_, err = out.Write(text)
	return err
}

// manifest returns obj as a user would write it: with its kind, without what
// only the server fills in.
func manifest(obj client.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %s, %w", obj.GetName(), err)
	}
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return content, nil
}
