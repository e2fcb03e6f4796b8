// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for PersistentVolumeClaims of the virtual storage class,
// whose volumes the provider makes. What users know (Liqo: persistent storage)
// is: verbatim, but for the storage class. In detail, on the way to the
// provider:
//
//   - spec.storageClassName becomes what the annotation
//     liqo.io/remote-storage-class names, else the class that the provider's
//     claim has, else the one negotiated with the provider, else it goes and
//     the provider takes its default. The class of a claim cannot be changed: an
//     annotation that names another one than the provider's claim has is left
//     alone, with a warning.
//   - spec.accessModes becomes what the annotation liqo.io/remote-access-modes
//     lists, separated by commas. An empty list leaves the modes of the claim; a
//     word that is not one of the four modes is an error.
//   - spec.volumeMode is Filesystem if nothing else is asked for.
//   - What names objects of the consumer goes: selector, volumeName, dataSource,
//     dataSourceRef, volumeAttributesClassName. A data source is warned of: the
//     volume starts empty, which is not what was asked for.
//   - The notes of the consumer's control plane about volume, provisioner and
//     node, which are annotations, go.
//   - Everything else crosses as it is, the requested size too, also when it is
//     raised later. Of the metadata, the labels and annotations that the virtual
//     node does not want reflected stay on this cluster; those that are named above do
//     what they say nevertheless, and liqo.io/remote-storage-class crosses, so
//     that the copy says why it has its class.
//
// On the way back the capacity, the conditions and the progress of resizing
// cross (status.go).
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

// What goes.
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
	// Read before the metadata is filtered: what does not cross counts here.
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

// setClass chooses the provider's storage class; asked is the annotation's.
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
