// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// RulesChanged selects the updates of namespaces that may change which requests of consumers are allowed: changes of
// the owner, of limits and of the Pod Security level.
func RulesChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetLabels()[wire.RemoteClusterIDLabel] != after.GetLabels()[wire.RemoteClusterIDLabel] ||
		before.GetLabels()[EnforceLabel] != after.GetLabels()[EnforceLabel] ||
		before.GetAnnotations()[wire.ManagedByNamespaceMapAnnotation] != after.GetAnnotations()[wire.ManagedByNamespaceMapAnnotation] ||
		!maps.Equal(tenantlimits.Annotations(before.GetAnnotations()), tenantlimits.Annotations(after.GetAnnotations()))
}
