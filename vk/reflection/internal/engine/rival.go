// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// mayWrite returns a *oscillation.QuarantineError if another client keeps reverting writes to the copy. object is the
// next write.
func (r *reflector) mayWrite(ctx context.Context, x *Desired, hash uint64, object *unstructured.Unstructured) error {
	return blamed(x.scope.fights, x.Key, x.scope.fights.MayWrite(x.Key, x.cause(), hash), func() string { return r.describeRival(ctx, x, object) })
}

// mayShow returns a *oscillation.QuarantineError if another client keeps reverting the status that is written here. The
// statuses of pods have no such guard, because the controllers of Kubernetes write them, too, each time a node becomes
// not ready.
func (r *reflector) mayShow(ctx context.Context, local *unstructured.Unstructured, status map[string]any, hash uint64) error {
	key := raw.Key(local)
	return blamed(r.shown, key, r.shown.MayWrite(key, hash, hash), func() string {
		entries, err := r.managersHere(ctx, local)
		if err != nil {
			return ""
		}
		subresource := ""
		if r.kind.Status.Subresource {
			subresource = "status"
		}
		differing := oscillation.Differences(map[string]any{"status": status}, map[string]any{"status": local.Object["status"]}, false)
		return oscillation.DescribeWriter(entries, subresource, differing)
	})
}

// blamed adds the description of the rival to the error of a quarantine that begins.
func blamed(g *oscillation.Guard[Key], key Key, err error, rival func() string) error {
	var fight *oscillation.QuarantineError
	if errors.As(err, &fight) && fight.Began {
		fight.Rival = rival()
		g.RecordRival(key, fight.Rival)
	}
	return err
}

// describeRival describes the client that deletes or writes the copy, and the fields that differ. It returns "" if the
// client is not known.
func (r *reflector) describeRival(ctx context.Context, x *Desired, object *unstructured.Unstructured) string {
	found, err := r.read(ctx, x.scope, x.Name)
	if err != nil {
		return ""
	}
	if found == nil {
		return oscillation.DescribeDeleter(object.GetLabels(), object.GetAnnotations())
	}
	var entries []metav1.ManagedFieldsEntry
	err = r.m.callRemote(ctx, func(ctx context.Context) error {
		metadata, err := r.m.there.Metadata.Resource(r.kind.target()).Namespace(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
		if err == nil {
			entries = metadata.ManagedFields
		}
		return err
	})
	if err != nil {
		return ""
	}
	return oscillation.DescribeWriter(entries, "", oscillation.Differences(writtenFields(object), writtenFields(found), r.kind.Copy.Mode == Replace))
}

// writtenFields returns the labels, the annotations and the content of an object.
func writtenFields(object *unstructured.Unstructured) map[string]any {
	fields := maps.Clone(object.Object)
	maps.DeleteFunc(fields, func(key string, _ any) bool { return isOwn(key) })
	fields["metadata"] = map[string]any{"labels": raw.Labels(object.Object), "annotations": raw.Annotations(object.Object)}
	return fields
}
