// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// UserAnnotations are the annotations that users set on objects of any kind. A virtual kubelet warns about
// annotations that differ from one of them only in the case of letters.
var UserAnnotations = [...]string{
	SkipReflectionAnnotation, AllowReflectionAnnotation, ForceRemoteNodePortAnnotation, AntiAffinityPresetAnnotation,
	AntiAffinityLabelsAnnotation, APIServerSupportAnnotation, RemoteServiceAccountNameAnnotation, DownwardAPIAnnotation, HostNamespacesAnnotation,
	RemoteRuntimeClassNameAnnotation, RemoteStorageClassAnnotation, RemoteAccessModesAnnotation,
	UseDirectConnectionsAnnotation,
}
