// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

func invalid(faults ...*field.Error) error {
	return fmt.Errorf("updating, %w", apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "settings", faults))
}

func terminating() error {
	err := apierrors.NewForbidden(configMaps, "settings", errors.New("being deleted"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// TestEachErrorHasItsRemedy checks that the message about an error of an API server contains the remedy if there is
// one.
func TestEachErrorHasItsRemedy(t *testing.T) {
	for remedy, err := range map[string]error{
		"offload the namespace again once it is gone": terminating(),
		"change what the policy denies, or ask the administrator of that cluster to change the policy": apierrors.NewForbidden(configMaps, "settings",
			errors.New("ValidatingAdmissionPolicy 'a' with binding 'b' denied request: y")),
		"ask the provider to raise the quota, or delete objects there":                         apierrors.NewForbidden(configMaps, "settings", errors.New("exceeded quota: compute")),
		"grant the virtual kubelet this permission":                                            apierrors.NewForbidden(configMaps, "settings", errors.New(`User "milan" cannot patch`)),
		"make the object smaller: reflection adds labels and annotations to the remote object": invalid(field.TooLong(field.NewPath("data"), "x", 1)),
		"revert the change, or delete the remote object to recreate it":                        invalid(field.Invalid(field.NewPath("spec"), "x", "field is immutable")),
		"correct the field here, or in the plugin or VirtualNode that sets it":                 invalid(field.Invalid(field.NewPath("spec"), "x", "must be a number")),
	} {
		assert.Contains(t, Remedy(err), remedy, "%v", err)
	}
	assert.Contains(t, Remedy(apierrors.NewRequestEntityTooLargeError("x")), "make the object smaller")
	for _, err := range []error{errors.New("anything"), apierrors.NewForbidden(configMaps, "settings", errors.New("no")), &ReservedNameError{}, WrapThrottled("here", apierrors.NewTooManyRequests("x", 1))} {
		assert.Empty(t, Remedy(err), "%v", err)
	}
}

// TestImmutability checks that a rejection counts as immutability only if all of its causes are immutable fields.
func TestImmutability(t *testing.T) {
	immutable := field.Invalid(field.NewPath("spec", "a"), "x", "field is immutable")
	assert.True(t, IsImmutability(invalid(immutable)))
	assert.True(t, IsImmutability(invalid(field.Forbidden(field.NewPath("spec", "b"), "may not change once set"))))
	assert.False(t, IsImmutability(invalid(immutable, field.Required(field.NewPath("spec", "c"), "is missing"))))
	assert.False(t, IsImmutability(errors.New("field is immutable")))
}

// TestErrorsOfPluginsHaveTheirReason checks the class and the Event reason of errors that do not come from an API
// server.
func TestErrorsOfPluginsHaveTheirReason(t *testing.T) {
	for reason, err := range map[string]error{
		PluginTrappedReason:   &host.TrapError{},
		PluginOutOfFuelReason: &host.OutOfFuelError{},
		PluginLimitReason:     &host.LimitError{},
		PluginAccessReason:    &host.AccessError{},
		PluginFailedReason:    &host.PluginFailedError{},
		PluginGuardReason:     &host.GuardError{},
		InvalidObjectReason:   &OutputError{},
	} {
		class, got := Classify(fmt.Errorf("mutating, %w", err))
		assert.Equal(t, Plugin, class, reason)
		assert.Equal(t, reason, got)
	}
	class, reason := Classify(&ReservedNameError{Kind: "ConfigMap", Name: "a", Owner: "b"})
	assert.Equal(t, Input, class)
	assert.Equal(t, wire.FailedReflectionReason, reason)
	class, _ = Classify(terminating())
	assert.Equal(t, Conflict, class)
}

// TestClassesThatLast checks which classes of errors persist until a user changes something, and which of them are
// responses that users can do something about.
func TestClassesThatLast(t *testing.T) {
	for class, lasts := range map[Class]bool{Unreachable: false, Throttled: false, Conflict: false, Refused: true, Denied: true, Foreign: true, Plugin: true, Input: true, Quarantine: true} {
		assert.Equal(t, lasts, class.Lasts(), class)
		assert.Equal(t, class == Refused || class == Denied, class.Answered(), class)
	}
}

// TestWritesThatMayHaveArrived checks for which errors MayHaveArrived reports that the write may have been executed.
func TestWritesThatMayHaveArrived(t *testing.T) {
	dial := &url.Error{Op: "Post", URL: "https://127.0.0.1", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}
	read := &url.Error{Op: "Post", URL: "https://127.0.0.1", Err: &net.OpError{Op: "read", Err: errors.New("reset")}}
	for _, c := range []struct {
		err     error
		arrived bool
	}{
		{nil, true},
		{&SlowError{Limit: time.Second}, true},
		{apierrors.NewInternalError(errors.New("disk")), true},
		{apierrors.NewBadRequest("x"), false},
		{apierrors.NewTooManyRequests("x", 1), false},
		{dial, false},
		{read, true},
		{breaker.ErrUnreachable, false},
	} {
		assert.Equal(t, c.arrived, MayHaveArrived(c.err), "%v", c.err)
	}
}

// TestErrorsNameWhatToDo checks that error messages for users contain the problem and the remedy.
func TestErrorsNameWhatToDo(t *testing.T) {
	assert.Contains(t, (&ForeignError{Kind: "ConfigMap", Namespace: "shop", Name: "a"}).Error(), "ConfigMap shop/a already exists on the provider and is not managed by Refract; rename or delete one of them")
	assert.Contains(t, (&ReservedNameError{Kind: "ConfigMap", Name: "a", Owner: "b"}).Error(), "recreate it with another name")
	assert.Contains(t, (&SlowError{Limit: time.Second}).Error(), "check for a slow admission webhook")
	assert.Contains(t, WrapThrottled("this cluster's API server", apierrors.NewTooManyRequests("x", 1)).Error(), "the object is tried again by itself")
	other := errors.New("other")
	assert.Same(t, other, WrapThrottled("", other))
	assert.Contains(t, (&RetryAfter{After: time.Second}).Error(), "1s")
}
