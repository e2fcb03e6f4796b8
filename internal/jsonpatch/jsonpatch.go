// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonpatch builds JSON patches (RFC 6902) for writes that must change only the fields that they name. A
// typed copy of an object loses the fields that are unknown to its Go type; a patch does not touch them.
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

// Operation is one step of a patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch is a list of steps that are applied all together or not at all. The zero value is the empty patch.
type Patch []Operation

// Test makes the patch fail unless the value at path is v.
func (p *Patch) Test(path string, v any) { *p = append(*p, Operation{"test", path, v}) }

// Add sets the value at path; its parent must exist.
func (p *Patch) Add(path string, v any) { *p = append(*p, Operation{"add", path, v}) }

// Replace sets the value at path, which must exist.
func (p *Patch) Replace(path string, v any) { *p = append(*p, Operation{"replace", path, v}) }

// Remove drops the value at path, which must exist.
func (p *Patch) Remove(path string) { *p = append(*p, Operation{Op: "remove", Path: path}) }

// For returns the patch for the client, preceded by a test that the object still has this UID, so that it does not
// change a recreated object.
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

// IsRejected reports whether the API server finds the patched object invalid. IsOutdated reports whether a test of the
// patch failed because the object has changed. Both errors have the status 422, but only the first lists the invalid
// fields, and only the second is worth a retry.
func IsRejected(err error) bool {
	causes, invalid := causesOf(err)
	return invalid && causes > 0
}

// IsOutdated reports whether a test of the patch failed because the object has changed. See IsRejected.
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

// Strings returns the patch that changes the string map actual, at path, so that it contains all of desired. Of the
// other keys it removes those for which owned returns true. A nil map is absent on the server.
func Strings(path string, actual, desired map[string]string, owned func(key string) bool) Patch {
	var p Patch
	if actual == nil && len(desired) > 0 {
		// The cached object has no such map. If the object on the server has gained one since, this step must not remove
		// it.
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
