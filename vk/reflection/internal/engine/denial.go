// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
)

// denialGrace is how long an API server may deny the list of a kind before an Event reports it. The grace is needed
// because an API server denies requests for a moment after its start or after the creation of a RoleBinding. A longer
// grace would delay the report.
const denialGrace = 5 * time.Second

// denial records that an API server does not allow the list of a kind in a namespace, because Liqo or an older
// version of Refract does not grant all kinds. During the denial, objects of the kind are not reflected; other kinds
// are not affected. A denial is safe for concurrent use.
type denial struct {
	mu       sync.Mutex
	since    time.Time // zero if there is no denial
	reported bool
}

// note records the result of a list, and reports whether the denial must be reported now.
func (d *denial) note(err error, now time.Time) (report bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.since, d.reported = time.Time{}, false
	case !apierrors.IsForbidden(err):
	case d.since.IsZero():
		d.since = now
	case !d.reported && now.Sub(d.since) >= denialGrace:
		d.reported = true
		return true
	}
	return false
}

// lasts reports whether a reported denial is still in effect.
func (d *denial) lasts() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reported
}

// listedHere handles the result of a list of the objects by this cluster's API server.
func (s *Scope) listedHere(err error) {
	m := s.r.m
	if !s.deniedHere.note(err, m.options.Clock.Now()) {
		return
	}
	s.steps.WakeAll()
	m.log.Warn("This cluster does not let the virtual kubelet list a kind: none of its objects is reflected", "kind", s.r.kind.Name, "namespace", s.Local, "err", err)
	for _, vn := range m.settings.VirtualNode.All() {
		m.events.Warn("VirtualNode", vn, wire.FailedReflectionReason, fmt.Sprintf("no %s of namespace %s is reflected%s: this cluster does not let the virtual kubelet list them. Upgrade its roles with refractctl install",
			s.r.kind.SourceKind().Kind, s.Local, s.r.kind.unprotected()))
	}
}

// listedThere handles the result of a list of the copies by the provider's API server.
func (s *Scope) listedThere(err error) {
	m := s.r.m
	if !s.deniedThere.note(err, m.options.Clock.Now()) {
		return
	}
	s.steps.WakeAll()
	m.log.Warn("The provider does not let this cluster list a kind: none of its objects is reflected", "kind", s.r.kind.Name, "namespace", s.Local, "remoteNamespace", s.Remote, "err", err)
	for _, object := range s.Objects() {
		s.warnOfDenial(object)
	}
}

// warnOfDenial warns about an object whose kind the provider does not permit.
func (s *Scope) warnOfDenial(object *unstructured.Unstructured) {
	kind, m := &s.r.kind, s.r.m
	s.r.events.Warn(object, wire.FailedReflectionReason, fmt.Sprintf("cluster %s does not grant %s in namespace %s, so this %s is not reflected%s. Ask the administrator of that cluster to upgrade Refract, or to grant it",
		m.options.RemoteClusterID, s.r.copies.Resource.GroupResource(), s.Remote, kind.SourceKind().Kind, kind.unprotected()))
}
