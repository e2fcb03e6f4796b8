// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/progress"
)

// takeBackPatience limits the removal of the objects that a failed run has created. Most of the time is the deletion
// of a namespace.
const takeBackPatience = 30 * time.Second

// noteCreated records that this run has created an object.
func (c *Cluster) noteCreated(object client.Object) {
	noted := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), CreationTimestamp: object.GetCreationTimestamp()}}
	noted.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	c.created = append(c.created, noted)
}

// takeBack removes the objects that this run has created in both clusters, after the run has failed with err. It
// returns err together with a list of the objects that are left. After an interruption or a timeout all objects stay,
// and the command continues when it is run again. again and undo are the commands that continue the run and that
// remove the remaining objects.
func (o *Options) takeBack(ctx context.Context, err error, again, undo string) error {
	if ctx.Err() != nil && !errors.Is(err, clientcert.ErrNotSigned) {
		return progress.Ended(ctx, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackPatience)
	defer cancel()
	unanswered := cmdutil.Away(err)
	for _, side := range []struct{ c, peer *Cluster }{{o.Consumer, o.Provider}, {o.Provider, o.Consumer}} {
		if len(side.c.created) == 0 {
			continue
		}
		o.say("%s: removing what this run has created", side.c.ID())
		if failed := o.removeCreated(ctx, side.c, side.peer); failed != nil {
			err = fmt.Errorf("%w\n%s is left in cluster %s, which did not remove it (%w): run %s again to continue, or %s to remove it",
				err, listed(side.c.created), side.c.Name, failed, again, undo)
			unanswered = false
		}
	}
	if unanswered { // the last request may have been served
		err = fmt.Errorf("%w\nrun %s again to continue, or %s to remove what is left of it", err, again, undo)
	}
	return err
}

// removeCreated deletes the objects that this run has created in a cluster, the last object first, and removes
// deleted objects from the record.
func (o *Options) removeCreated(ctx context.Context, c, peer *Cluster) error {
	for _, object := range slices.Backward(slices.Clone(c.created)) {
		if err := c.removeExactly(ctx, object); err != nil {
			return err
		}
		if object.Kind == "Namespace" {
			if err := o.await(ctx, "namespace "+object.Name+" of "+c.ID(), func(ctx context.Context) (string, error) { return c.gone(ctx, object.Name) }); err != nil {
				return err
			}
			if err := c.removeForeignCluster(ctx, peer.ID(), object.CreationTimestamp); err != nil {
				return err
			}
		}
		c.created = c.created[:len(c.created)-1]
	}
	return nil
}

// removeExactly deletes an object, but not another object that has its name by now.
func (c *Cluster) removeExactly(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := c.Client.Delete(ctx, object, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("cluster %s: deleting %s %s, %w", c.Name, object.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// removeForeignCluster deletes the ForeignCluster of a peer if the controllers have created it after the tenant
// namespace.
func (c *Cluster) removeForeignCluster(ctx context.Context, peer string, since metav1.Time) error {
	cluster := &core.ForeignCluster{}
	err := c.Client.Get(ctx, types.NamespacedName{Name: peer}, cluster)
	if apierrors.IsNotFound(err) || err == nil && cluster.CreationTimestamp.Before(&since) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster %s: getting ForeignCluster %s, %w", c.Name, peer, err)
	}
	return c.removeExactly(ctx, cluster)
}

// listed formats objects for the user: the first one, and the number of the others.
func listed(objects []*metav1.PartialObjectMetadata) string {
	name := strings.TrimPrefix(client.ObjectKeyFromObject(objects[0]).String(), "/")
	first := objects[0].Kind + " " + name
	if more := len(objects) - 1; more > 0 {
		return fmt.Sprintf("%s, with %d more objects,", first, more)
	}
	return first
}
