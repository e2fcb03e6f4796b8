// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstatus labels the offloaded pods of a virtual node while the node is not ready, so that they get no
// traffic.
//
// Kubernetes marks the pods of such a node as not ready. However, a virtual kubelet that can still read the provider's
// pods would reflect their readiness and thereby revert this. The label liqo.io/remote-unavailable prevents that: the
// virtual kubelet reports a pod with this label as not ready, and leaves its ShadowPod unchanged. The label is removed
// when the node is ready again. Finished pods are not labelled. The virtual kubelet cannot set the label itself,
// because it may be the component that has failed.
package podstatus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/jsonpatch"
)

const (
	fieldManager = wire.PodStatusFieldManager
	// parallel is the number of pods that are patched at once. page is the default for Options.Page.
	parallel, page = 8, 500
	// recheckInterval is how often the pods of a node that is not ready are listed again, because some may have been
	// offloaded in the meantime.
	recheckInterval = 30 * time.Second
)

// Options are the settings of the controller.
type Options struct {
	// Workers is how many nodes are reconciled at the same time.
	Workers int
	// Page is how many pods are listed in one request; 0 means 500.
	Page int64
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller labels the offloaded pods of a virtual node while the node is not ready.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options
}

// NewController returns a controller that writes through c and lists pods with live. Pods are not cached, because they
// are needed only when a node changes.
func NewController(c client.Client, live client.Reader, options Options) *Controller {
	if options.Page == 0 {
		options.Page = page
	}
	return &Controller{client: c, live: live, options: options}
}

// Name returns the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "podstatus" }

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &corev1.NodeList{}, func(client.Object) bool { return true } // the cache contains only virtual nodes
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(c.options.Workers)).
		For(&corev1.Node{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: readinessChanged})).
		Complete(report.Failures(c, c.options.Failed))
}

func readinessChanged(e event.UpdateEvent) bool {
	before, now := readinessOf(e.ObjectOld.(*corev1.Node)), readinessOf(e.ObjectNew.(*corev1.Node))
	// An event with two equal versions is a resync.
	return before != now || e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
}

// readinessOf returns the status of the condition Ready, or an empty string if the node has not reported it yet.
func readinessOf(node *corev1.Node) corev1.ConditionStatus {
	if _, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); condition != nil {
		return condition.Status
	}
	return ""
}

// Reconcile labels the offloaded pods of a node that is not ready, and removes the label from the pods of a ready node.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := c.client.Get(ctx, request.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ready := readinessOf(node)
	if ready == "" || node.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	unavailable := ready != corev1.ConditionTrue
	if err := c.labelPods(ctx, node.Name, unavailable); err != nil || !unavailable {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: recheckInterval}, nil
}

// labelPods corrects the label of all pods of the node whose label is wrong. An error on one pod does not stop it from
// labelling the others.
func (c *Controller) labelPods(ctx context.Context, node string, unavailable bool) error {
	found := &metav1.PartialObjectMetadataList{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	options := []client.ListOption{
		client.MatchingFieldsSelector{Selector: selectPodsOf(node, unavailable)}, client.MatchingLabelsSelector{Selector: selectWronglyLabelled(unavailable)}, client.Limit(c.options.Page),
	}
	var problems []error
	for {
		if err := c.live.List(ctx, found, append(options, client.Continue(found.Continue))...); err != nil {
			return errors.Join(append(problems, fmt.Errorf("listing the pods of node %s, %w", node, err))...)
		}
		problems = append(problems, c.patchPods(ctx, found.Items, unavailable)...)
		if found.Continue == "" {
			return errors.Join(problems...)
		}
	}
}

// selectPodsOf selects the pods of the node. If unavailable is true, finished pods are excluded, because they get no
// traffic and need no label. If it is false, they are included, so that an existing label is removed.
func selectPodsOf(node string, unavailable bool) fields.Selector {
	there := fields.OneTermEqualSelector("spec.nodeName", node)
	if !unavailable {
		return there
	}
	return fields.AndSelectors(there,
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))
}

// selectWronglyLabelled selects the offloaded pods that lack the label although they need it. If unavailable is false,
// it selects the pods that have the label although they do not need it.
func selectWronglyLabelled(unavailable bool) labels.Selector {
	has := selection.Equals
	if unavailable {
		has = selection.NotEquals
	}
	offloaded, _ := labels.NewRequirement(wire.OffloadedPodLabel, selection.Equals, []string{"true"})
	marked, _ := labels.NewRequirement(wire.RemoteUnavailableLabel, has, []string{"true"})
	return labels.NewSelector().Add(*offloaded, *marked)
}

func (c *Controller) patchPods(ctx context.Context, pods []metav1.PartialObjectMetadata, unavailable bool) []error {
	problems := make([]error, len(pods))
	group := errgroup.Group{}
	group.SetLimit(parallel)
	for i := range pods {
		group.Go(func() error {
			problems[i] = c.patchPod(ctx, &pods[i], unavailable)
			return nil
		})
	}
	_ = group.Wait()
	return problems
}

func (c *Controller) patchPod(ctx context.Context, pod *metav1.PartialObjectMetadata, unavailable bool) error {
	var changes jsonpatch.Patch
	if path := "/metadata/labels" + jsonpatch.Pointer(wire.RemoteUnavailableLabel); unavailable {
		changes.Add(path, "true") // the pod has labels, because it was selected by a label
	} else {
		changes.Remove(path)
	}
	patch, err := changes.For(pod.UID)
	if err != nil {
		return err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.client.Patch(ctx, target, patch, client.FieldOwner(fieldManager))
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("labelling pod %s/%s, %w", pod.Namespace, pod.Name, err)
}
