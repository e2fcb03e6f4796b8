// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"hash/crc32"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// EscapeUser converts a user name to a label value in the same way as Liqo. A name that is too long for a label value
// is truncated, and a hash makes it unique. Liqo does not support such names.
func EscapeUser(user string) string {
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
