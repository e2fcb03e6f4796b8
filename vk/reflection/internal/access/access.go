// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package access reads how a pod uses an API server: its service account, and the volumes with its tokens.
package access

import (
	"fmt"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// WithoutRemedy is the remedy for pods that need no API server.
const WithoutRemedy = "or, if the pod needs no API server, recreate it with annotation " + wire.APIServerSupportAnnotation + ": " + wire.APIServerSupportDisabled

// ServiceAccount returns the service account of a pod.
func ServiceAccount(pod *unstructured.Unstructured) string {
	if name := raw.Text(pod, "spec", "serviceAccountName"); name != "" {
		return name
	}
	return "default"
}

// Declined returns the annotation with which a pod opts out of this cluster's API server, or "" if it has none.
func Declined(pod *unstructured.Unstructured) string {
	switch mode := raw.Annotations(pod.Object)[wire.APIServerSupportAnnotation]; mode {
	case wire.APIServerSupportDisabled, wire.APIServerSupportRemote:
		return fmt.Sprintf("annotation %s is %s", wire.APIServerSupportAnnotation, mode)
	}
	return ""
}

// Projections lists the sources of projected volumes, each after the name of its volume.
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

// MountsSecret reports whether one of the volumes projects the Secret.
func MountsSecret(volumes any, name string) bool {
	for _, source := range Projections(volumes) {
		if raw.Nested(source, "secret", "name") == name {
			return true
		}
	}
	return false
}

// secretsField, in the spec of a pod that is cached without its volumes, has "volume/Secret" for each projected Secret.
const secretsField = "projectedSecrets"

// KeepSecrets adds the input of Secrets to kept, which replaces a spec in memory.
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

// Secrets lists the Secrets that a spec projects, each after the name of its volume. It also reads a spec that
// KeepSecrets has written.
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
