// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"github.com/refract-project/refract/controllers/internal/offer"
	"github.com/refract-project/refract/controllers/internal/tenancy"
)

// Types in internal packages that several controllers share.
type (
	// Offer describes the resources, classes and labels that this cluster offers to a consumer.
	Offer = offer.Offer
	// TenancyOptions limit the objects that consumers may create in this cluster.
	TenancyOptions = tenancy.Options
	// TenancyPolicy checks the objects of consumers against the TenancyOptions.
	TenancyPolicy = tenancy.Policy
)

// NewTenancyPolicy returns the policy that the controllers enforce with these options. It is safe for concurrent use.
func NewTenancyPolicy(options TenancyOptions) (*TenancyPolicy, error) {
	return tenancy.NewPolicy(options)
}
