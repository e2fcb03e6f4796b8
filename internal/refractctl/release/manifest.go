// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// checkManifest decodes each object of a manifest as the API server would, but before anything is changed. Helm does
// not decode the objects in the dry run of a first installation, because the cluster does not have their kinds yet.
// Objects whose kind is not in the scheme are only parsed as YAML.
func checkManifest(scheme *runtime.Scheme, manifest string) error {
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	var found []error
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return errors.Join(found...)
		}
		if err != nil {
			return fmt.Errorf("reading the manifest of the chart, %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			found = append(found, fmt.Errorf("the values produce an object that is not valid YAML, %w:\n%s", err, document))
			continue
		}
		if len(object.Object) == 0 {
			// The document contains only comments.
			continue
		}
		if _, _, err := decoder.Decode(document, nil, nil); err != nil && !runtime.IsNotRegisteredError(err) {
			found = append(found, fmt.Errorf("the values produce a %v that the API server would reject, %v: %w", object.Object["kind"], nameIn(object.Object), err))
		}
	}
}

// nameIn returns the name of an object. The result may have any type, because an invalid type may be the error to
// report.
func nameIn(object map[string]any) any {
	metadata, _ := object["metadata"].(map[string]any)
	return metadata["name"]
}
