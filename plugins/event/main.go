// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Events. They cross from the provider to
// the consumer, so that users see in their cluster what happens
// to their objects on the provider (Liqo: event reflection).
//
//   - involvedObject becomes the consumer's object. The engine provides the
//     reference: for an Event about a ShadowPod or its pod it is the consumer's
//     pod. The fieldPath, which names for example the container, is unchanged.
//     An Event about an object that the consumer does not have is not reflected.
//   - The source and the reporting component are unchanged: clients select by
//     them, for example "source=kubelet". The labels that the engine adds to
//     every copy, and source.host, show that the Event comes from the provider.
//     (Liqo: appends " (remote)" to source.component.)
//   - The namespace of the related object becomes the consumer's, if the object
//     is in the remote namespace.
//   - Everything else is unchanged: type, reason, action, count, series,
//     all times. So is the message, which may contain the remote
//     namespace: it is text, and a word in it may have another meaning.
//   - Labels and annotations that the virtual node
//     excludes from reflection stay on the provider.
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

// moveRelated changes the namespace in the reference to the
// related object from the remote namespace to the consumer's.
func moveRelated(ctx sdk.Context, event sdk.Object) {
	related := event.Get("related")
	if !related.Exists() {
		return
	}
	if remoteNamespace := ctx.RemoteNamespace(); remoteNamespace != "" && related.Is("namespace", remoteNamespace) {
		related.SetString("namespace", ctx.LocalNamespace())
	}
}
