// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/controllers/internal/offer"
)

// Options are the settings of the controllers of this package.
type Options struct {
	// Enabled means that the controllers are started.
	Enabled bool
	// APIServer describes the API server of this cluster for consumers. Its Config is set when the controllers are
	// registered.
	APIServer APIServer
	// Offer holds the resources that this cluster offers to consumers.
	Offer offer.Offer
	// RolePrefix is the prefix of the names of the installation's ClusterRoles.
	RolePrefix string
	// ObjectCounts is the maximum number of a consumer's objects of each kind. Limits for kinds in remote namespaces
	// are ignored.
	ObjectCounts corev1.ResourceList
	// RecountDelay is how long a limit is left out of a ResourceQuota because this cluster does not count the limited
	// kind yet; 0 means 2 minutes.
	RecountDelay time.Duration
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}
