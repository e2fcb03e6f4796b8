// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"slices"

	"github.com/refract-project/refract/host/document"
)

// containerSpecs lists the fields with containers whose images and resources can be changed in a running pod.
var containerSpecs = []string{"containers", "initContainers"}

// mutable lists the fields of a pod's spec that can be changed in a running pod, except for the fields of containers.
var mutable = []string{"activeDeadlineSeconds", "tolerations"}

// ephemeralContainers is the field with containers that can be added to a running pod, but not removed.
const ephemeralContainers = "ephemeralContainers"

// SpecChanged reports whether a mutable field in want differs from the present spec: the image or the resources of a
// container with the same name, the pod's own resources, activeDeadlineSeconds, tolerations, or an additional ephemeral
// container. All other fields are immutable. SpecChanged reads the document without building an object from it.
func SpecChanged(want document.View, have map[string]any) bool {
	for _, field := range mutable {
		if !sameField(want.Field(field), have[field]) {
			return true
		}
	}
	if isResized(want, have) {
		return true
	}
	for _, list := range containerSpecs {
		desired := want.Field(list)
		for i, item := range listOf(have[list]) {
			if present, _ := item.(map[string]any); containerChanged(desired, i, present) {
				return true
			}
		}
	}
	return len(furtherEphemeral(want, have)) > 0
}

// Changeable returns the fields of a spec that SpecChanged compares. The result shares memory with spec. spec is not
// modified.
func Changeable(spec map[string]any) map[string]any {
	kept := map[string]any{}
	for _, field := range append([]string{"resources"}, mutable...) {
		if value, ok := spec[field]; ok {
			kept[field] = value
		}
	}
	for list, fields := range map[string][]string{
		"containers": {"name", "image", "resources"}, "initContainers": {"name", "image", "resources"}, ephemeralContainers: {"name"},
	} {
		items := listOf(spec[list])
		if items == nil {
			continue
		}
		containers := make([]any, len(items))
		for i, item := range items {
			container, _ := item.(map[string]any)
			less := map[string]any{}
			for _, field := range fields {
				if value, ok := container[field]; ok {
					less[field] = value
				}
			}
			containers[i] = less
		}
		kept[list] = containers
	}
	return kept
}

// isResized reports whether the resources of a pod or a container have changed. Existing resources can be changed, but
// resources cannot be added or removed.
func isResized(want document.View, have map[string]any) bool {
	sizes, present := want.Field("resources"), have["resources"]
	return !sameField(sizes, nil) && !isNothing(present) && !sameField(sizes, present)
}

// StartsContainer reports whether a change from the present spec to want would start a container: a container with
// another image, or an additional ephemeral container.
func StartsContainer(want document.View, have map[string]any) bool {
	for _, list := range containerSpecs {
		for i, item := range listOf(have[list]) {
			if present, _ := item.(map[string]any); imageChanged(want.Field(list), i, present) {
				return true
			}
		}
	}
	return len(furtherEphemeral(want, have)) > 0
}

func containerChanged(desired document.View, i int, present map[string]any) bool {
	container, ok := findContainer(desired, i, present["name"])
	return ok && isResized(container, present) || imageChanged(desired, i, present)
}

func imageChanged(desired document.View, i int, present map[string]any) bool {
	container, ok := findContainer(desired, i, present["name"])
	if !ok {
		return false
	}
	image, ok := container.Field("image").Text()
	return ok && image != present["image"]
}

// furtherEphemeral returns the ephemeral containers in want that are not in the present spec.
func furtherEphemeral(want document.View, have map[string]any) (further []any) {
	desired := want.Field(ephemeralContainers)
	if desired.Kind() != document.List {
		return nil
	}
	present := map[any]bool{}
	for _, item := range listOf(have[ephemeralContainers]) {
		if container, ok := item.(map[string]any); ok {
			present[container["name"]] = true
		}
	}
	for i := range desired.Len() {
		if name, ok := desired.Index(i).Field("name").Text(); ok && !present[name] {
			further = append(further, desired.Index(i).Value())
		}
	}
	return further
}

// sameField compares two values. A missing field, null, an empty list and an empty map are equal.
func sameField(want document.View, have any) bool {
	switch want.Kind() {
	case document.Absent, document.Null:
		return isNothing(have)
	case document.List, document.Map:
		if want.Len() == 0 {
			return isNothing(have)
		}
	}
	return want.Equal(document.Of(have))
}

func isNothing(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// findContainer returns the container with the given name. It first looks at index i, where the container usually is.
func findContainer(containers document.View, i int, name any) (document.View, bool) {
	if container, ok := containerAt(containers, i, name); ok {
		return container, true
	}
	for j := range containers.Len() {
		if container, ok := containerAt(containers, j, name); ok {
			return container, true
		}
	}
	return document.View{}, false
}

func containerAt(containers document.View, i int, name any) (container document.View, ok bool) {
	if i >= containers.Len() {
		return container, false
	}
	container = containers.Index(i)
	text, ok := container.Field("name").Text()
	return container, ok && text == name
}

// UpdateSpec returns the present spec with the mutable fields of want.
func UpdateSpec(want document.View, have map[string]any) map[string]any {
	updated := updateSpec(want, have, true)
	if isResized(want, have) {
		updated["resources"] = want.Field("resources").Value()
	}
	if further := furtherEphemeral(want, have); len(further) > 0 {
		updated[ephemeralContainers] = append(slices.Clone(listOf(have[ephemeralContainers])), further...)
	}
	return updated
}

// UpdatePlain is like UpdateSpec, but keeps the present resources and ephemeral containers. Clients change these
// through subresources.
func UpdatePlain(want document.View, have map[string]any) map[string]any {
	return updateSpec(want, have, false)
}

func updateSpec(want document.View, have map[string]any, sizes bool) map[string]any {
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
			if present, _ := item.(map[string]any); containerChanged(want.Field(list), i, present) {
				changed[i] = updateContainer(want.Field(list), i, present, sizes)
			}
		}
		updated[list] = changed
	}
	return updated
}

func updateContainer(desired document.View, i int, present map[string]any, sizes bool) map[string]any {
	updated := maps.Clone(present)
	container, _ := findContainer(desired, i, present["name"])
	if image, ok := container.Field("image").Text(); ok {
		updated["image"] = image
	}
	if sizes && isResized(container, present) {
		updated["resources"] = container.Field("resources").Value()
	}
	return updated
}
