// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package access reads from a pod how the pod uses an API server: its service account, and the volumes that contain its
// tokens.
package access

import (
	"fmt"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// WithoutRemedy is the end of error messages about tokens and service accounts. It tells the user how to opt a pod out
// of API server access.
const WithoutRemedy = "or, if the pod needs no API server, recreate it with annotation " + wire.APIServerSupportAnnotation + ": " + wire.APIServerSupportDisabled

// ServiceAccount returns the name of a pod's service account.
func ServiceAccount(pod *unstructured.Unstructured) string {
	if name := raw.Text(pod, "spec", "serviceAccountName"); name != "" {
		return name
	}
	return "default"
}

// Declined returns a text with the annotation by which a pod declines access to this cluster's API server. It returns
// "" if the pod has no such annotation.
func Declined(pod *unstructured.Unstructured) string {
	switch mode := raw.Annotations(pod.Object)[wire.APIServerSupportAnnotation]; mode {
	case wire.APIServerSupportDisabled, wire.APIServerSupportRemote:
		return fmt.Sprintf("annotation %s is %s", wire.APIServerSupportAnnotation, mode)
	}
	return ""
}

// Projections iterates over the sources of projected volumes. The key of each source is the name of its volume.
func Projections(volumes any) iter.Seq2[string, map[string]any] {
	return func(yield func(string, map[string]any) bool) {
		list, _ := volumes.([]any)
		for _, item := range list {
			name, _ := raw.Map(item)["name"].(string)
			sources, _ := raw.Nested(raw.Map(item), "projected", "sources").([]any)
			for _, source := range sources {
				if !yield(name, raw.Map(source)) {
					return
				}
			}
		}
	}
}

// MountsSecret reports whether one of the volumes projects the Secret with the given name.
func MountsSecret(volumes any, name string) bool {
	for _, source := range Projections(volumes) {
		if raw.Nested(source, "secret", "name") == name {
			return true
		}
	}
	return false
}

// secretsField is an extra field in the reduced spec of a cached pod, which contains no volumes. It is a list with an
// entry "VOLUME/SECRET" for each projected Secret.
const secretsField = "projectedSecrets"

// KeepSecrets adds the projected Secrets of spec to kept, the reduced spec in the cache, so that Secrets can return
// them.
func KeepSecrets(spec, kept map[string]any) {
	var list []any
	for volume, source := range Projections(spec["volumes"]) {
		if name, _ := raw.Nested(source, "secret", "name").(string); name != "" {
			list = append(list, volume+"/"+name)
		}
	}
	if len(list) > 0 {
		kept[secretsField] = list
	}
}

// Secrets iterates over the Secrets that a spec projects. The key of each Secret is the name of its volume. The spec
// may be a reduced spec with the result of KeepSecrets.
func Secrets(spec map[string]any) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		kept := map[string]any{}
		if KeepSecrets(spec, kept); kept[secretsField] == nil {
			kept = spec
		}
		list, _ := kept[secretsField].([]any)
		for _, item := range list {
			text, _ := item.(string)
			if volume, name, ok := strings.Cut(text, "/"); ok && !yield(volume, name) {
				return
			}
		}
	}
}
