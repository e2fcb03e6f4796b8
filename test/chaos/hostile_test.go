// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefusalsForAnotherReason(t *testing.T) {
	const policy = "ValidatingAdmissionPolicy 'refract-shadowpods' with binding 'refract-shadowpods' denied request: "
	forbidden := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "attack", errors.New(text))
	}
	for text, err := range map[string]error{
		"none":                       nil,
		"the expected one":           forbidden(policy + "spec.pod.nodeName is not allowed"),
		"no access":                  forbidden(`User "rome" cannot create resource "shadowpods"`),
		"a namespace that ends":      forbidden("unable to create new content in namespace shop-rome because it is being terminated"),
		"an API server that is busy": errors.New("connection refused"),
	} {
		assert.False(t, isOtherRefusal(err, "spec.pod.nodeName"), text)
	}
	assert.True(t, isOtherRefusal(forbidden(policy+"metadata.finalizers is for controllers"), "spec.pod.nodeName"))
}
