// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"hash/crc32"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Escape makes a user name the value of a label, as the compatible system does.
// One that is too long for a label, which that system cannot take, is cut and
// distinguished from others by a hash.
func Escape(user string) string {
	escaped := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		}
		return '-'
	}, user), "-_.")
	if len(escaped) <= validation.LabelValueMaxLength {
		return escaped
	}
	sum := fmt.Sprintf("-%08x", crc32.ChecksumIEEE([]byte(user)))
	return escaped[:validation.LabelValueMaxLength-len(sum)] + sum
}
