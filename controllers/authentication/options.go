// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/controllers/offer"
)

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
	// ObjectCounts is how many objects of each kind consumers may have. Counts of remote namespaces are ignored.
	ObjectCounts corev1.ResourceList
	// RecountDelay is how long counts are left out that the cluster does not compute; 0 is 2 minutes.
	RecountDelay time.Duration
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}
