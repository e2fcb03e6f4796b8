// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"encoding/base64"
	"strings"
)

// FormatKeys returns the value of an annotation with keys, such as wire.AcceptedKeysAnnotation.
func FormatKeys(keys [][]byte) string {
	texts := make([]string, 0, len(keys))
	for _, key := range keys {
		texts = append(texts, base64.StdEncoding.EncodeToString(key))
	}
	return strings.Join(texts, ",")
}

// ParseKeys returns the keys in the value of an annotation. It returns nil if the value contains anything else.
func ParseKeys(value string) (keys [][]byte) {
	if value == "" {
		return nil
	}
	for text := range strings.SplitSeq(value, ",") {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil
		}
		keys = append(keys, key)
	}
	return keys
}
