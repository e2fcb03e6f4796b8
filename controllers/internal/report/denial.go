// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/admission"
)

// ReconcileAction is the action of Events about a reconciliation as a whole.
const ReconcileAction = "Reconcile"

// regardingTimeout limits the request for the object of an Event. The request blocks a worker of the controller.
const regardingTimeout = 5 * time.Second

// Denials returns a function for the failures of a controller that reconciles objects of a kind. If an admission policy
// denied a request, the function writes a Warning Event about the object. live must not be cached.
func Denials(kind schema.GroupVersionKind, live client.Reader, recorder events.EventRecorder) func(error) {
	reporter := New(recorder)
	return func(err error) {
		policy := admission.DenyingPolicy(err)
		var failure *Failure
		if policy == "" || !errors.As(err, &failure) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), regardingTimeout)
		defer cancel()
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		if err := live.Get(ctx, failure.Request.NamespacedName, object); err != nil {
			if apierrors.IsNotFound(err) {
				return // the object no longer exists
			}
			log.Log.Error(err, "Cannot report the denial of a policy", "policy", policy, "kind", kind.Kind, "object", failure.Request.String())
			return
		}
		reporter.Warn(object, admission.DeniedReason, ReconcileAction, admission.Note(policy, failure))
	}
}
