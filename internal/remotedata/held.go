// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package remotedata

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/printable"
)

// RefuseHeld returns an error if data on the provider delays the withdrawal of an object, according to an Event since
// the given time. The error contains the message of the Event. The argument confirm describes how to confirm the
// deletion. The controllers find such data only after the withdrawal has begun, because only the provider knows the
// claims that other clients have created there. If the user may not list Events, RefuseHeld returns nil.
func RefuseHeld(ctx context.Context, c client.Client, kind, namespace, name string, since time.Time, confirm string) error {
	list := &corev1.EventList{}
	err := c.List(ctx, list, client.InNamespace(namespace),
		client.MatchingFields{"involvedObject.kind": kind, "involvedObject.name": name, "reason": HeldReason})
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the Events of %s %s/%s, %w", kind, namespace, name, err)
	}
	for i := range list.Items {
		event := &list.Items[i]
		last := event.EventTime.Time
		if event.Series != nil {
			last = event.Series.LastObservedTime.Time
		}
		if !last.Before(since) {
			return fmt.Errorf("%s. You can also %s", printable.Line(event.Message), confirm)
		}
	}
	return nil
}
