// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import "github.com/refract-project/refract/controllers/offer"

// Options are the settings of the controllers of this package.
type Options struct {
	// Enabled starts them.
	Enabled bool
	// APIServer is where consumers find that of this cluster; Config is set where the controllers are registered.
	APIServer APIServer
	// Offer is what this cluster gives to consumers.
	Offer offer.Offer
	// RolePrefix stands before the names of the ClusterRoles of the installation.
	RolePrefix string
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}
