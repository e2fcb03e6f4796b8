// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for PersistentVolumeClaims of the virtual storage class. The provider creates their volumes. As in
// Liqo's persistent storage, the claims are reflected unchanged except for the storage class. In detail, on the way to
// the provider:
//
//   - spec.storageClassName becomes the first of these classes that exists: the class in the annotation
//     liqo.io/remote-storage-class, the class of the provider's claim, the class that was negotiated with the
//     provider. If there is none, the field is removed, and the provider uses its default. The class of a claim is
//     immutable: an annotation that differs from the class of the provider's claim is ignored with a warning.
//   - spec.accessModes becomes the list in the annotation liqo.io/remote-access-modes, whose entries are separated by
//     commas. With an empty list, the modes of the claim are unchanged. An entry that is not one of the four modes is
//     an error.
//   - spec.volumeMode becomes Filesystem if it is not set.
//   - References to objects of the consumer are removed: selector, volumeName, dataSource, dataSourceRef,
//     volumeAttributesClassName. A data source causes a warning, because the volume starts empty, contrary to the
//     request.
//   - Annotations that the consumer's control plane has set, about the volume, the provisioner and the node, are
//     removed.
//   - All other fields are unchanged, including the requested size, which may be increased later. Labels and
//     annotations that the virtual node excludes from reflection are removed. The annotations above have an effect
//     even if they are excluded, and liqo.io/remote-storage-class is always reflected, so that the copy shows the
//     reason for its class.
//
// On the way back, the capacity, the conditions and the progress of resizing are reflected (status.go).
package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:    "persistentvolumeclaim",
	Version: "1.0.0",
	Kinds:   []string{"PersistentVolumeClaim"},
	Writes:  []string{"metadata.labels", "metadata.annotations", "spec", "status"},
}, sdk.Outgoing(outgoing), sdk.Incoming(incoming))

func main() {}

const (
	className       = "spec.storageClassName"
	classAnnotation = "metadata.annotations[" + wire.RemoteStorageClassAnnotation + "]"
	modesAnnotation = "metadata.annotations[" + wire.RemoteAccessModesAnnotation + "]"
)

// Paths of fields that are removed from every claim.
const (
	sources = "spec.dataSource\nspec.dataSourceRef"
	own     = "spec.selector\nspec.volumeName\nspec.volumeAttributesClassName"
	notes   = "metadata.annotations[" + wire.BindCompletedAnnotation + "]" +
		"\nmetadata.annotations[" + wire.BoundByControllerAnnotation + "]" +
		"\nmetadata.annotations[" + wire.StorageProvisionerAnnotation + "]" +
		"\nmetadata.annotations[" + wire.BetaStorageProvisionerAnnotation + "]" +
		"\nmetadata.annotations[" + wire.SelectedNodeAnnotation + "]" +
		"\nmetadata.annotations[" + wire.BetaStorageClassAnnotation + "]" +
		"\nmetadata.annotations[" + wire.StorageResizerAnnotation + "]" +
		"\nmetadata.annotations[" + wire.MigratedToAnnotation + "]"
)

func outgoing(ctx sdk.Context, claim sdk.Object) error {
	// The annotations must have an effect even if they are excluded from reflection, so they are read before the
	// metadata is filtered.
	asked := claim.String(classAnnotation)
	if modes, ok := claim.Lookup(modesAnnotation); ok {
		if err := setAccessModes(claim, modes); err != nil {
			return err
		}
	}
	sdk.FilterMetadata(ctx, claim)
	if claim.Remove(notes) > 0 {
		claim.Annotations().Prune()
	}
	setClass(ctx, claim, asked)
	claim.Remove(own)
	if claim.Remove(sources) > 0 {
		ctx.Warn("spec.dataSource is not reflected: the remote volume starts empty. " +
			"Snapshots and claims do not exist on the provider; copy the data from within a pod")
	}
	if !claim.Has("spec.volumeMode") {
		claim.SetString("spec.volumeMode", "Filesystem")
	}
	return nil
}

// setClass sets the provider's storage class. asked is the value of the annotation liqo.io/remote-storage-class.
func setClass(ctx sdk.Context, claim sdk.Object, asked string) {
	class, present := asked, ctx.Node().String("remoteStorageClass")
	switch {
	case class == "" && present == "":
		class = ctx.Node().String("storageClass")
	case class == "":
		class = present
	case present != "" && present != class:
		ctx.Warn("the annotation "+wire.RemoteStorageClassAnnotation+" names the class ", class,
			", but the provider's claim is of the class ", present,
			" and cannot change it: make a new claim for the other class")
		class = present
	}
	if class == "" {
		claim.Remove(className)
	} else {
		claim.SetString(className, class)
	}
	if asked != "" {
		claim.SetString(classAnnotation, asked)
	}
}
