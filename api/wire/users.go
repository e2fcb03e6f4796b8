// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// UserAnnotations are the annotations that users set on objects of any kind. A virtual kubelet warns of annotations that differ from one of
// them in upper and lower case alone.
var UserAnnotations = [...]string{
	SkipReflectionAnnotation, AllowReflectionAnnotation, ForceRemoteNodePortAnnotation, AntiAffinityPresetAnnotation,
	AntiAffinityLabelsAnnotation, APIServerSupportAnnotation, RemoteServiceAccountNameAnnotation, DownwardAPIAnnotation, HostNamespacesAnnotation,
	RemoteRuntimeClassNameAnnotation, RemoteStorageClassAnnotation, RemoteAccessModesAnnotation,
	UseDirectConnectionsAnnotation,
}
