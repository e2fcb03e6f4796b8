// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admitted

import (
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refract-project/refract/host/document"
)

// quantities matches quantities of ordinary length. Longer texts are not compared as quantities, because the comparison
// could take long.
var quantities = regexp.MustCompile(`^[+-]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[KMGTPE]i|[numkMGTPE])?$`)

// AreSimilar reports whether the values of all fields differ only in the notation of quantities, such as 1024Mi and
// 1Gi.
func AreSimilar(fields []Field) bool {
	return !slices.ContainsFunc(fields, func(field Field) bool { return !field.Similar })
}

// isSimilar reports whether a stored value equals the sent value except for the notation of quantities. It is unknown
// here which fields contain quantities, so 1 and 1.0 are similar in any field. Therefore the result must not be used to
// decide whether a value is corrected.
func isSimilar(sent, stored any) bool {
	switch sent := sent.(type) {
	case map[string]any:
		stored, ok := stored.(map[string]any)
		for key, value := range sent {
			ok = ok && isSimilar(value, stored[key])
		}
		return ok
	case []any:
		stored, ok := stored.([]any)
		ok = ok && len(stored) == len(sent)
		for i := range sent {
			ok = ok && isSimilar(sent[i], stored[i])
		}
		return ok
	case string:
		if stored, ok := stored.(string); ok && sent != stored {
			return isSameQuantity(sent, stored)
		}
	}
	return document.Of(sent).CoveredBy(document.Of(stored))
}

func isSameQuantity(a, b string) bool {
	if !quantities.MatchString(a) || !quantities.MatchString(b) {
		return false
	}
	one, err := resource.ParseQuantity(a)
	other, otherErr := resource.ParseQuantity(b)
	return err == nil && otherErr == nil && one.Cmp(other) == 0
}
