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
//   - source.component is followed by " (remote)". Where there is none, as in
//     Events of events.k8s.io, the reporting component is named there.
//   - The namespace of the related object becomes the consumer's, if the object
//     is in the remote namespace.
//   - Everything else crosses as it is: type, reason, action, count, series, all
//     times, the reporting component and instance, source.host. So does the
//     message, which may name the remote namespace: it is text, and a word in it
//     may mean something else.
//   - Of the metadata, the labels and annotations that the virtual node does not
//     want reflected stay where they are.
package main

import (
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:         "event",
	Version:      "1.0.0",
	Kinds:        []string{"Event"},
	Writes:       []string{"metadata.labels", "metadata.annotations", "involvedObject", "related", "source"},
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
	markRemote(event)
	moveRelated(ctx, event)
	return nil
}

// markRemote reports whether what reported the Event is a component of the provider.
func markRemote(event sdk.Object) {
	component := event.String("source.component")
	if component == "" {
		component = event.String("reportingComponent")
	}
	if !strings.HasSuffix(component, wire.RemoteEventSuffix) {
		event.SetString("source.component", sdk.Concat(component, wire.RemoteEventSuffix))
	}
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
