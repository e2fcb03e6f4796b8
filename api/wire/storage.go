// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Annotations of the control plane on a PersistentVolumeClaim (Kubernetes): notes
// about the volume and the nodes of its own cluster, which do not cross.
const (
	// BindCompletedAnnotation: the claim has its volume.
	BindCompletedAnnotation = "pv.kubernetes.io/bind-completed"
	// BoundByControllerAnnotation: the controller chose the volume, not the user.
	BoundByControllerAnnotation = "pv.kubernetes.io/bound-by-controller"
	// StorageProvisionerAnnotation names the provisioner of the volume.
	StorageProvisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	// BetaStorageProvisionerAnnotation is the former name of StorageProvisionerAnnotation.
	BetaStorageProvisionerAnnotation = "volume.beta.kubernetes.io/storage-provisioner"
	// SelectedNodeAnnotation names the node for whose pod it is to be made.
	SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"
	// BetaStorageClassAnnotation is the deprecated form of spec.storageClassName.
	BetaStorageClassAnnotation = "volume.beta.kubernetes.io/storage-class"
	// StorageResizerAnnotation names the resizer of the volume.
	StorageResizerAnnotation = "volume.kubernetes.io/storage-resizer"
	// ProvisionedByAnnotation, on a PersistentVolume, names its provisioner.
	ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
	// MigratedToAnnotation names the driver to which an in-tree volume has moved.
	MigratedToAnnotation = "pv.kubernetes.io/migrated-to"
)

// The storage that providers lend.
const (
	// StorageProvisioner is the provisioner of virtual storage classes.
	StorageProvisioner = "liqo.io/storage"
	// DefaultStorageClass is the name of the virtual storage class unless the
	// installation gives it another.
	DefaultStorageClass = "liqo"
)

// Reasons of the Events about claims, as Kubernetes' own provisioners have them.
const (
	// ProvisioningFailedReason: there is no volume; the message says why.
	ProvisioningFailedReason = "ProvisioningFailed"
	// ReschedulingRequiredReason: there will be none on that node; another is
	// to be selected.
	ReschedulingRequiredReason = "ReschedulingRequired"
	// VolumeResizeFailedReason: the volume does not grow.
	VolumeResizeFailedReason = "VolumeResizeFailed"
	// ClaimLostReason: the volume is gone, and its data may be, too.
	ClaimLostReason = "ClaimLost"
)
