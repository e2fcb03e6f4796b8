// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"

	"github.com/refract-project/refract/host/document"
)

// containerSpecs are the lists whose images may change while a pod lives.
var containerSpecs = []string{"containers", "initContainers"}

// mutable are the other fields of a pod's spec that may change while it lives.
var mutable = []string{"activeDeadlineSeconds", "tolerations"}

// SpecChanged reports whether want differs from the present spec in a field that may still change: the image of a
// container of the same name, activeDeadlineSeconds, tolerations. Everything else was decided when the pod was
// created. It reads the document without materialising it.
func SpecChanged(want document.View, have map[string]any) bool {
	for _, field := range mutable {
		if !sameField(want.Field(field), have[field]) {
			return true
		}
	}
	for _, list := range containerSpecs {
		wanted := want.Field(list)
		for i, item := range listOf(have[list]) {
			container, _ := item.(map[string]any)
			if image, ok := imageOf(wanted, i, container["name"]); ok && image != container["image"] {
				return true
			}
		}
	}
	return false
}

// sameField treats an absent list, null and an empty list alike.
func sameField(want document.View, have any) bool {
	switch want.Kind() {
	case document.Absent, document.Null:
		return have == nil || len(listOf(have)) == 0 && isList(have)
	case document.List:
		if want.Len() == 0 {
			return have == nil || isList(have) && len(listOf(have)) == 0
		}
	}
	return want.Equal(document.Of(have))
}

func isList(value any) bool {
	_, ok := value.([]any)
	return ok
}

// imageOf finds the image of a container, first where it is expected, then by name.
func imageOf(containers document.View, i int, name any) (any, bool) {
	if image, ok := imageAt(containers, i, name); ok {
		return image, true
	}
	for j := range containers.Len() {
		if image, ok := imageAt(containers, j, name); ok {
			return image, true
		}
	}
	return nil, false
}

func imageAt(containers document.View, i int, name any) (any, bool) {
	if i >= containers.Len() {
		return nil, false
	}
	container := containers.Index(i)
	if text, ok := container.Field("name").Text(); !ok || text != name {
		return nil, false
	}
	image, ok := container.Field("image").Text()
	return image, ok
}

// UpdateSpec returns the present spec with the fields that may change taken from want.
func UpdateSpec(want document.View, have map[string]any) map[string]any {
	updated := maps.Clone(have)
	for _, field := range mutable {
		if value := want.Field(field).Value(); value != nil {
			updated[field] = value
		} else {
			delete(updated, field)
		}
	}
	for _, list := range containerSpecs {
		items := listOf(have[list])
		if items == nil {
			continue
		}
		changed := make([]any, len(items))
		for i, item := range items {
			changed[i] = item
			container, _ := item.(map[string]any)
			if image, ok := imageOf(want.Field(list), i, container["name"]); ok && image != container["image"] {
				container = maps.Clone(container)
				container["image"] = image
				changed[i] = container
			}
		}
		updated[list] = changed
	}
	return updated
}
