// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Events. They are reflected from the provider to the consumer, so that users see in their own
// cluster what happens to their objects on the provider. This corresponds to Liqo's event reflection.
//
//   - involvedObject becomes the consumer's object. The reflection engine provides the reference: for an Event about a
//     ShadowPod or its pod, it refers to the consumer's pod. The fieldPath, which names a container, for example, is
//     unchanged. An Event about an object that the consumer does not have is not reflected.
//   - The source and the reporting component are unchanged, because clients select Events by them, for example with
//     "source=kubelet". The labels that the engine adds to every copy, and source.host, show that the Event comes from
//     the provider. (Liqo appends " (remote)" to source.component.)
//   - If the namespace of the related object is the remote namespace, it becomes the consumer's namespace.
//   - All other fields are unchanged: type, reason, action, count, series, and all times. The message is also
//     unchanged, although it may contain the remote namespace, because a word in a text may have another meaning.
//   - Labels and annotations that the virtual node excludes from reflection are removed.
package main

import (
	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:         "event",
	Version:      "1.0.0",
	Kinds:        []string{"Event"},
	Writes:       []string{"metadata.labels", "metadata.annotations", "involvedObject", "related"},
	Capabilities: []string{"skip"},
}, sdk.Incoming(incoming))

func main() {}

const fieldPath = "involvedObject.fieldPath"

func incoming(ctx sdk.Context, event sdk.Object) error {
	involved := ctx.Node().Get("involved")
	if involved.Len("") == 0 {
		return sdk.Skip("the object that it is about does not exist in this cluster")
	}
	sdk.FilterMetadata(ctx, event)
	field := event.String(fieldPath)
	event.Copy("involvedObject", involved)
	if field != "" {
		event.SetString(fieldPath, field)
	}
	moveRelated(ctx, event)
	return nil
}

// moveRelated replaces the remote namespace with the consumer's namespace in the reference to the related object.
func moveRelated(ctx sdk.Context, event sdk.Object) {
	related := event.Get("related")
	if !related.Exists() {
		return
	}
	if remoteNamespace := ctx.RemoteNamespace(); remoteNamespace != "" && related.Is("namespace", remoteNamespace) {
		related.SetString("namespace", ctx.LocalNamespace())
	}
}
