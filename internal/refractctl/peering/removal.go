// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// Object names an object in one of the clusters.
type Object struct {
	// Cluster is the ID of the cluster.
	Cluster, Kind, Namespace, Name string
}

// Removal is the result of ending a peering.
type Removal struct {
	// Consumer and Provider are the IDs of the clusters.
	Consumer, Provider string
	// Removed contains the objects that were removed or, in a dry run, would be removed. In a dry run, they include the
	// contents of deleted namespaces, and the objects that controllers would remove with a virtual node.
	Removed []Object
	// Left contains the objects of the peering that were not removed: objects that other clients have created, objects
	// that the peering in the other direction still needs, and objects that the administrator of the provider must
	// remove.
	Left []Object
	// IsReverse is true if the clusters are also joined in the other direction.
	IsReverse bool
}

// leaving is a run that removes a peering. It records the objects that it has removed or left in both clusters.
type leaving struct {
	*pair
	atConsumer, atProvider *cluster.Remover
	dryRun, deleteData     bool
	// isReverse is set when the run detects that the clusters are also joined in the other direction.
	isReverse bool
}

func (p *pair) beginRemoval(o *Options) *leaving {
	return &leaving{pair: p, atConsumer: cluster.NewRemover(p.consumer, o.DryRun), atProvider: cluster.NewRemover(p.provider, o.DryRun), dryRun: o.DryRun, deleteData: o.DeleteData}
}

// removal returns the objects that have been removed or left so far.
func (l *leaving) removal() *Removal {
	return &Removal{Consumer: l.consumer.ID(), Provider: l.provider.ID(), IsReverse: l.isReverse,
		Removed: append(objectsOf(l.consumer, l.atConsumer.Removed()), objectsOf(l.provider, l.atProvider.Removed())...),
		Left:    append(objectsOf(l.consumer, l.atConsumer.Left()), objectsOf(l.provider, l.atProvider.Left())...)}
}

func objectsOf(side *cluster.Side, objects []*metav1.PartialObjectMetadata) (all []Object) {
	for _, object := range objects {
		all = append(all, Object{side.ID(), object.Kind, object.Namespace, object.Name})
	}
	return all
}

// report lists the objects that a dry run has found.
func (r *Removal) report(progress progress.Reporter) {
	for _, list := range []struct {
		objects []Object
		what    string
	}{{r.Removed, "would be removed"}, {r.Left, "would be left"}} {
		for _, object := range list.objects {
			progress.Report("%s: %s %s %s", object.Cluster, object.Kind, strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"), list.what)
		}
	}
}
