// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonpatch builds JSON patches (RFC 6902). A patch changes only the fields that it names. In contrast, an
// update with a typed object would drop the fields that its Go type does not have.
package jsonpatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Operation is one operation of a patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch is a list of operations, of which either all or none are applied. The zero value is an empty patch.
type Patch []Operation

// Test makes the patch fail unless the value at path is v.
func (p *Patch) Test(path string, v any) { *p = append(*p, Operation{"test", path, v}) }

// Add sets the value at path. The parent of path must exist.
func (p *Patch) Add(path string, v any) { *p = append(*p, Operation{"add", path, v}) }

// Replace sets the value at path. A value must already exist there.
func (p *Patch) Replace(path string, v any) { *p = append(*p, Operation{"replace", path, v}) }

// Remove removes the value at path, which must exist.
func (p *Patch) Remove(path string) { *p = append(*p, Operation{Op: "remove", Path: path}) }

// For returns the patch in the form that a client sends. It starts with a test of the object's UID, so that an object
// that was deleted and recreated is not changed.
func (p Patch) For(uid types.UID) (client.Patch, error) {
	guarded := append(Patch{{"test", "/metadata/uid", string(uid)}}, p...)
	raw, err := json.Marshal(guarded)
	if err != nil {
		return nil, fmt.Errorf("encoding patch, %w", err)
	}
	return client.RawPatch(types.JSONPatchType, raw), nil
}

// String returns the patch as JSON. Equal patches have equal strings.
func (p Patch) String() string {
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Sprintf("%#v", []Operation(p))
	}
	return string(raw)
}

// IsRejected reports whether the API server rejected the patched object as invalid. The status is 422, as for
// IsOutdated, but only this error lists the invalid fields.
func IsRejected(err error) bool {
	causes, invalid := causesOf(err)
	return invalid && causes > 0
}

// IsOutdated reports whether a test in the patch failed because the object has changed. The patch can be built again
// from the current object and retried (see IsRejected).
func IsOutdated(err error) bool {
	causes, invalid := causesOf(err)
	return invalid && causes == 0
}

func causesOf(err error) (causes int, invalid bool) {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return 0, false
	}
	if details := status.Status().Details; details != nil {
		causes = len(details.Causes)
	}
	return causes, true
}

// Pointer returns the JSON pointer (RFC 6901) of the given segments.
func Pointer(segments ...string) string {
	var b strings.Builder
	for _, segment := range segments {
		b.WriteByte('/')
		b.WriteString(escaper.Replace(segment))
	}
	return b.String()
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// Strings returns a patch that adds the entries of desired to the string map at path. Entries that already have the
// desired value are not patched. Other keys are removed if owned returns true for them. actual is the current content
// of the map. It is nil if the map does not exist on the server.
func Strings(path string, actual, desired map[string]string, owned func(key string) bool) Patch {
	var p Patch
	if actual == nil && len(desired) > 0 {
		// The cached object has no such map. If such a map was added to the object on the server in the meantime, the
		// patch must fail instead of replacing it.
		p.Test(path, nil)
		p.Add(path, desired)
		return p
	}
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		if v, ok := actual[key]; !ok || v != desired[key] {
			p.Add(path+Pointer(key), desired[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(actual)) {
		if _, isDesired := desired[key]; !isDesired && owned(key) {
			p.Remove(path + Pointer(key))
		}
	}
	return p
}
