// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Events, which cross from the provider to the consumer
// so that users see in their cluster what happens to their objects there (Liqo: event
// reflection).
//
//   - involvedObject becomes the consumer's object, whose reference the engine
//     gives: for an Event about a ShadowPod or its pod that is the consumer's
//     pod. The fieldPath, which names for example the container, stays. An Event
//     about something that the consumer does not have is not reflected.
//   - The source and the reporting component stay: clients select by them, for
//     example "source=kubelet". The labels that the engine adds to every copy,
//     and source.host, show that the Event comes from the provider.
//     (Liqo: appends " (remote)" to source.component.)
//   - The namespace of the related object becomes the consumer's, if the object
//     is in the remote namespace.
//   - Everything else crosses as it is: type, reason, action, count, series, all
//     times. So does the message, which may name the remote namespace: it is
//     text, and a word in it may mean something else.
//   - Of the metadata, the labels and annotations that the virtual node does not
//     want reflected stay where they are.
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

// moveRelated takes the reference to the related object to the namespace in
// which the consumer has what the provider has in the remote namespace.
func moveRelated(ctx sdk.Context, event sdk.Object) {
	related := event.Get("related")
	if !related.Exists() {
		return
	}
	if remoteNamespace := ctx.RemoteNamespace(); remoteNamespace != "" && related.Is("namespace", remoteNamespace) {
		related.SetString("namespace", ctx.LocalNamespace())
	}
}
