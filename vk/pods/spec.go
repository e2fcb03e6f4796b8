// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"slices"

	"github.com/refract-project/refract/host/document"
)

// containerSpecs are the lists whose images and resources may change while a pod lives.
var containerSpecs = []string{"containers", "initContainers"}

// mutable are the other fields of a pod's spec that may change while it lives.
var mutable = []string{"activeDeadlineSeconds", "tolerations"}

// ephemeralContainers are added to a pod that lives, and then stay.
const ephemeralContainers = "ephemeralContainers"

// SpecChanged reports whether want differs from the present spec in what may still change: the image and the resources of a container of
// the same name, the pod's own resources, activeDeadlineSeconds, tolerations, a further ephemeral container. Everything else was
// decided when the pod was created. It reads the document without materialising it.
func SpecChanged(want document.View, have map[string]any) bool {
	for _, field := range mutable {
		if !sameField(want.Field(field), have[field]) {
			return true
		}
	}
	if resized(want, have) {
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

// Changeable returns the fields of a spec that SpecChanged compares. It shares them with spec, and does not modify it.
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

// resized reports whether the sizes of a pod, or of a container, changed. Those it has may change; none appear that it had not, and none go.
func resized(want document.View, have map[string]any) bool {
	sizes, present := want.Field("resources"), have["resources"]
	return !sameField(sizes, nil) && !isNothing(present) && !sameField(sizes, present)
}

// StartsContainer reports whether want has a container start that the present spec has not: one with another image, or a further ephemeral one.
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
	container, ok := find(desired, i, present["name"])
	return ok && resized(container, present) || imageChanged(desired, i, present)
}

func imageChanged(desired document.View, i int, present map[string]any) bool {
	container, ok := find(desired, i, present["name"])
	if !ok {
		return false
	}
	image, ok := container.Field("image").Text()
	return ok && image != present["image"]
}

// furtherEphemeral returns the ephemeral containers that are not there yet.
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

// sameField treats an absent field, null, an empty list and an empty map alike.
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

// find returns a container, looking first where it is expected, then by name.
func find(containers document.View, i int, name any) (document.View, bool) {
	if container, ok := named(containers, i, name); ok {
		return container, true
	}
	for j := range containers.Len() {
		if container, ok := named(containers, j, name); ok {
			return container, true
		}
	}
	return document.View{}, false
}

func named(containers document.View, i int, name any) (container document.View, ok bool) {
	if i >= containers.Len() {
		return container, false
	}
	container = containers.Index(i)
	text, ok := container.Field("name").Text()
	return container, ok && text == name
}

// UpdateSpec returns the present spec with the mutable fields of want.
func UpdateSpec(want document.View, have map[string]any) map[string]any {
	updated := update(want, have, true)
	if resized(want, have) {
		updated["resources"] = want.Field("resources").Value()
	}
	if further := furtherEphemeral(want, have); len(further) > 0 {
		updated[ephemeralContainers] = append(slices.Clone(listOf(have[ephemeralContainers])), further...)
	}
	return updated
}

// UpdatePlain is UpdateSpec without the fields that need a subresource: resources and ephemeral containers.
func UpdatePlain(want document.View, have map[string]any) map[string]any {
	return update(want, have, false)
}

func update(want document.View, have map[string]any, sizes bool) map[string]any {
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
	container, _ := find(desired, i, present["name"])
	if image, ok := container.Field("image").Text(); ok {
		updated["image"] = image
	}
	if sizes && resized(container, present) {
		updated["resources"] = container.Field("resources").Value()
	}
	return updated
}
