// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/internal/ipam"
)

// ranges contains the ranges of a Configuration.
type ranges struct {
	// localPods contains the pod ranges of this cluster. local contains its pod ranges and external ranges.
	localPods, local []netip.Prefix
	remote           []remoteRange
}

// remoteRange is a range of the peer. own is the range that the peer itself uses, and seen is the range of the same
// size that this cluster uses for it.
type remoteRange struct{ own, seen netip.Prefix }

func (r ranges) trueRemote() (list []netip.Prefix) {
	for _, remote := range r.remote {
		list = append(list, remote.own)
	}
	return list
}

func (r ranges) seenRemote() (list []netip.Prefix) {
	for _, remote := range r.remote {
		list = append(list, remote.seen)
	}
	return list
}

// parseConfiguration parses a Configuration whose status is up to date. It checks the ranges again although the
// controller has checked them. Otherwise anybody who can write the status could direct traffic of this cluster to the
// peer.
func parseConfiguration(c *networking.Configuration) (found ranges, err error) {
	if c == nil {
		return found, errors.New("waiting for the Configuration of the peer")
	}
	name := "Configuration " + c.Namespace + "/" + c.Name
	if err := incomplete(c); err != nil {
		return found, fmt.Errorf("waiting for %s: %w", name, err)
	}
	if found.localPods, err = parseList(c.Spec.Local.CIDR.Pod); err != nil {
		return found, fmt.Errorf("%s, spec.local.cidr.pod: %w", name, err)
	}
	external, err := parseList(c.Spec.Local.CIDR.External)
	if err != nil {
		return found, fmt.Errorf("%s, spec.local.cidr.external: %w", name, err)
	}
	found.local = slices.Concat(found.localPods, external)
	own, err := parseList(c.Spec.Remote.CIDR.Pod, c.Spec.Remote.CIDR.External)
	if err != nil {
		return found, fmt.Errorf("%s, spec.remote.cidr: %w", name, err)
	}
	seen, err := parseList(c.Status.Remote.CIDR.Pod, c.Status.Remote.CIDR.External)
	if err != nil {
		return found, fmt.Errorf("%s, status.remote.cidr: %w", name, err)
	}
	for i := range own {
		r := remoteRange{own[i], seen[i]}
		if r.own.Bits() != r.seen.Bits() {
			return found, fmt.Errorf("%s, status.remote.cidr: %s is not of the size of %s", name, r.seen, r.own)
		}
		for _, local := range found.local {
			if local.Overlaps(r.seen) {
				return found, fmt.Errorf("%s, status.remote.cidr: %s overlaps %s of this cluster", name, r.seen, local)
			}
		}
		found.remote = append(found.remote, r)
	}
	return found, nil
}

func parseList(lists ...[]networking.CIDR) ([]netip.Prefix, error) {
	var texts []string
	for _, cidr := range slices.Concat(lists...) {
		texts = append(texts, string(cidr))
	}
	return ipam.ParsePeerRanges(texts)
}

// incomplete returns an error that describes what is missing in the status. Releases of Liqo that do not set the
// condition set only the ranges.
func incomplete(c *networking.Configuration) error {
	condition := meta.FindStatusCondition(c.Status.Conditions, networking.ConfiguredCondition)
	switch {
	case c.Spec.Local == nil || len(c.Spec.Local.CIDR.Pod) == 0:
		return errors.New("spec.local.cidr.pod is empty")
	case len(c.Spec.Remote.CIDR.Pod) == 0:
		return errors.New("spec.remote.cidr.pod is empty")
	case c.Status.Remote == nil || len(c.Status.Remote.CIDR.Pod) != len(c.Spec.Remote.CIDR.Pod):
		return errors.New("not all of spec.remote.cidr.pod are in status.remote.cidr.pod")
	case len(c.Status.Remote.CIDR.External) != len(c.Spec.Remote.CIDR.External):
		return errors.New("not all of spec.remote.cidr.external are in status.remote.cidr.external")
	case condition == nil:
		return nil
	case condition.ObservedGeneration != c.Generation:
		return errors.New("its status is that of an earlier spec")
	case condition.Status != metav1.ConditionTrue:
		return fmt.Errorf("its condition %s is %s (%s)", networking.ConfiguredCondition, condition.Status, condition.Reason)
	}
	return nil
}
