// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"hash/crc32"
	"strings"
)

// UserAnnotations are the annotations that users set on objects of any kind. A virtual kubelet warns about
// annotations that differ from one of them only in the case of letters.
var UserAnnotations = [...]string{
	SkipReflectionAnnotation, AllowReflectionAnnotation, ForceRemoteNodePortAnnotation, AntiAffinityPresetAnnotation,
	AntiAffinityLabelsAnnotation, APIServerSupportAnnotation, RemoteServiceAccountNameAnnotation, DownwardAPIAnnotation, HostNamespacesAnnotation,
	RemoteRuntimeClassNameAnnotation, RemoteStorageClassAnnotation, RemoteAccessModesAnnotation,
	UseDirectConnectionsAnnotation,
}

// maxLabelValueLength is the largest length of a label value in Kubernetes.
const maxLabelValueLength = 63

// EscapeUser converts a user name to a label value, as Liqo does. A name that is too long for a label is truncated and
// gets a hash, which makes it unique. Liqo does not support such names.
func EscapeUser(user string) string {
	escaped := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		}
		return '-'
	}, user), "-_.")
	if len(escaped) <= maxLabelValueLength {
		return escaped
	}
	sum := fmt.Sprintf("-%08x", crc32.ChecksumIEEE([]byte(user)))
	return escaped[:maxLabelValueLength-len(sum)] + sum
}
