// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Annotations that the control plane of Kubernetes writes to a PersistentVolumeClaim. They concern the volume and the
// nodes of its own cluster, so they are not reflected.
const (
	// BindCompletedAnnotation means that the claim is bound to a volume.
	BindCompletedAnnotation = "pv.kubernetes.io/bind-completed"
	// BoundByControllerAnnotation means that a controller, and not the user, has chosen the volume.
	BoundByControllerAnnotation = "pv.kubernetes.io/bound-by-controller"
	// StorageProvisionerAnnotation names the provisioner of the volume.
	StorageProvisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	// BetaStorageProvisionerAnnotation is the former name of StorageProvisionerAnnotation.
	BetaStorageProvisionerAnnotation = "volume.beta.kubernetes.io/storage-provisioner"
	// SelectedNodeAnnotation is the name of the node for whose pod the volume is provisioned.
	SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"
	// BetaStorageClassAnnotation is the deprecated form of spec.storageClassName.
	BetaStorageClassAnnotation = "volume.beta.kubernetes.io/storage-class"
	// StorageResizerAnnotation names the resizer of the volume.
	StorageResizerAnnotation = "volume.kubernetes.io/storage-resizer"
	// ProvisionedByAnnotation, on a PersistentVolume, names its provisioner.
	ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
	// MigratedToAnnotation names the driver to which an in-tree volume was migrated.
	MigratedToAnnotation = "pv.kubernetes.io/migrated-to"
)

// Names of the storage that providers offer.
const (
	// StorageProvisioner is the provisioner of virtual storage classes.
	StorageProvisioner = "liqo.io/storage"
	// DefaultStorageClass is the name of the virtual storage class, unless the installation sets another name.
	DefaultStorageClass = "liqo"
)

// Reasons of Events about claims. Kubernetes' own provisioners use the same reasons.
const (
	// ProvisioningFailedReason means that no volume could be provisioned. The message contains the cause.
	ProvisioningFailedReason = "ProvisioningFailed"
	// ReschedulingRequiredReason means that no volume will be provisioned on the selected node, and another node must
	// be selected.
	ReschedulingRequiredReason = "ReschedulingRequired"
	// VolumeResizeFailedReason means that the volume could not be expanded.
	VolumeResizeFailedReason = "VolumeResizeFailed"
	// ClaimLostReason means that the volume no longer exists, and its data may be lost, too.
	ClaimLostReason = "ClaimLost"
)
