// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package namespaceoffloading offloads namespaces of the consumer to virtual nodes.
//
// For every provider with a virtual node that the NamespaceOffloading selects, the namespace gets an entry in the
// provider's NamespaceMap. The provider reports the result in the status of the map, which is summarized in the
// status of the NamespaceOffloading. A label on the namespace lets its pods run on virtual nodes, and a RoleBinding
// in it lets the virtual kubelets of the selected providers read the objects that they reflect. The RoleBinding is
// created first, and a provider gets no new entry without it; it is deleted when no provider is selected anymore. A
// RoleBinding of the same name with another owner is reported and left unchanged.
//
// Two namespaces never share a remote namespace: the second one waits until the first has released the name,
// regardless of the provider.
//
// Removing an entry from a NamespaceMap deletes the remote namespace with all its workloads. This happens only in
// three cases: the NamespaceOffloading is deleted; for a grace period, no node of the provider was selected by the
// labels of either its Node or its VirtualNode; or the namespace has no NamespaceOffloading at all. A missing node or
// an invalid selector removes nothing. An entry stays as long as volumes have data in the remote namespace (package
// remotedata). If the namespace itself is deleted, entries whose volumes are retained outlive its
// NamespaceOffloading.
//
// Only NamespaceOffloadings, VirtualNodes and Nodes decide which namespaces are offloaded to a provider. An entry of
// a NamespaceMap does not, because other clients may write it. A selector must match both the labels of the Node and
// those that the VirtualNode specifies, because virtual kubelets may write their Nodes. While the selection of a
// provider is uncertain, its virtual kubelets keep existing access, and get no new access.
package namespaceoffloading

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/finalizer"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/remotedata"
)

// Options are the settings of the controller.
type Options struct {
	// Workers is the number of NamespaceOffloadings that are reconciled at the same time.
	Workers int
	// ClusterID is the ID of this cluster, the consumer.
	ClusterID core.ClusterID
	// ExtendedClusterRole is the ClusterRole that virtual kubelets get in the namespaces that are offloaded to their
	// providers. An empty name grants no role.
	ExtendedClusterRole string
	// WithdrawalGrace is how long a namespace stays on a provider that its clusterSelector no longer selects; 0
	// withdraws it at once.
	WithdrawalGrace time.Duration
	// Clock returns the time of transitions.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller offloads namespaces to providers.
type Controller struct {
	client   client.Client
	uncached client.Reader
	report   *report.Reporter
	options  Options
	// unbacked tracks the NamespaceMap entries that have no NamespaceOffloading.
	unbacked unbackedEntries
}

// NewController returns a controller that uses the client c. live must not use a cache, because it reads RoleBindings
// with other owners. c is a brake.RestoringClient, which limits how often a Namespace or RoleBinding is restored while
// another client keeps changing it.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, uncached: live, report: report.New(recorder), options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "namespaceoffloading" }

// Reasons and action of the Events of this controller.
const (
	invalidReason = "Invalid"
	accessReason  = "FailedAccess"
	takenReason   = "NameTaken"
	// refusedReason is the reason of Events about a provider that does not create the remote namespace.
	refusedReason = "RemoteNamespaceRefused"
	// unpromisedReason is the reason of Events about a Node that is selected only by labels that its VirtualNode does
	// not specify.
	unpromisedReason = "LabelsNotInVirtualNode"
	// unbackedReason is the reason of Events that announce the removal of a mapping, and droppedReason is the reason of
	// Events that report the removal.
	unbackedReason = "NamespaceNotOffloaded"
	droppedReason  = "MappingRemoved"
	offloadAction  = "OffloadNamespace"

	fieldManager = wire.NamespaceOffloadingFieldManager
)

// Reconcile offloads or unoffloads the namespace, and writes the status. It returns errors even if the status could be
// written, so that failed steps are retried.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	wait, err := brake.Wait(c.reconcileOffloading(ctx, request))
	return reconcile.Result{RequeueAfter: wait}, err
}

// reconcileOffloading does the work of Reconcile, and returns the delay until the next reconciliation.
func (c *Controller) reconcileOffloading(ctx context.Context, request reconcile.Request) (time.Duration, error) {
	nso := &offloading.NamespaceOffloading{}
	err := c.client.Get(ctx, request.NamespacedName, nso)
	if apierrors.IsNotFound(err) {
		c.clearReports(request.Namespace)
		if request.Name != offloading.NamespaceOffloadingName {
			return 0, nil
		}
		// A NamespaceOffloading that was deleted while ExtendedClusterRole was empty has left its RoleBinding behind,
		// which must be deleted now.
		wait, err := c.dropUnbacked(ctx, request.Namespace)
		return wait, errors.Join(err, c.bindVirtualKubelets(ctx, request.Namespace, nil, nil))
	}
	if err != nil {
		return 0, fmt.Errorf("getting NamespaceOffloading %s, %w", request.NamespacedName, err)
	}
	if nso.Name != offloading.NamespaceOffloadingName {
		c.report.Warn(nso, invalidReason, offloadAction, fmt.Sprintf(
			"ignored: the only NamespaceOffloading of a namespace is named %q. Delete this one", offloading.NamespaceOffloadingName))
		return 0, nil
	}
	providers, err := c.listProviders(ctx)
	if err != nil {
		return 0, err
	}
	if nso.DeletionTimestamp != nil {
		err := c.unoffloadNamespace(ctx, nso, providers)
		return c.nextHeld(nso, providers), err
	}
	err = c.offloadNamespace(ctx, nso, providers)
	// After errStatusesLeft, the status is not updated, because the next attempt finds the affected providers in the
	// status.
	if !errors.Is(err, errStatusesLeft) {
		err = errors.Join(err, c.writeStatus(ctx, nso, providers))
	}
	return shorterDelay(c.nextLeave(providers), c.nextHeld(nso, providers)), err
}

// offloadNamespace maps the namespace on the selected providers, and allows its pods to be scheduled to them. An error
// on one provider does not delay the other providers.
func (c *Controller) offloadNamespace(ctx context.Context, nso *offloading.NamespaceOffloading, providers []*provider) error {
	if err := finalizer.Ensure(ctx, c.client, nso, wire.NamespaceOffloadingFinalizer, true); err != nil {
		return err
	}
	remoteNamespace := c.remoteNamespaceName(nso)
	selects, err := newSelector(&nso.Spec.ClusterSelector)
	if err != nil {
		c.report.Warn(nso, invalidReason, offloadAction, fmt.Sprintf("spec.clusterSelector is invalid, nothing was changed: %s", err))
		return nil
	}
	answers := map[*provider]selection{}
	for _, p := range providers {
		answers[p] = c.decideMapping(nso, p, selects)
	}
	if problems := validation.IsDNS1123Label(remoteNamespace); len(problems) > 0 {
		c.refuseName(nso, providers, answers, fmt.Sprintf(
			"the remote namespace cannot be named %q: %s; recreate the NamespaceOffloading with another namespaceMappingStrategy, or SelectedName with a shorter remoteNamespaceName", remoteNamespace, problems[0]))
		return nil
	}
	if err := c.holdData(ctx, nso, providers, func(p *provider) bool { return answers[p] == no }); err != nil {
		return err
	}
	for _, p := range providers {
		if p.isHeld() {
			answers[p] = unsure
		}
	}
	selected := slices.DeleteFunc(slices.Clone(providers), func(p *provider) bool { return answers[p] != yes })
	doubtful := slices.DeleteFunc(slices.Clone(providers), func(p *provider) bool { return answers[p] != unsure || !p.isMapped(nso.Namespace) })
	// Access is granted before the mapping is requested, so that the virtual kubelet already has access when the
	// provider responds.
	closed := c.bindVirtualKubelets(ctx, nso.Namespace, selected, doubtful)
	problems, renamed := []error{closed}, []string(nil)
	for _, p := range providers {
		switch answers[p] {
		case yes:
			p.picked = true
			switch now := p.requestedName(nso.Namespace); {
			case now != "" && now != remoteNamespace:
				// The mapping keeps its name, because another name would orphan or delete the remote namespace with
				// the old name.
				renamed = append(renamed, fmt.Sprintf("on %s this namespace is already mapped to %s", p.id, now))
			case now != "" || closed == nil:
				problems = append(problems, c.mapNamespace(ctx, nso, p, remoteNamespace))
			}
		case no:
			problems = append(problems, c.leaveProvider(ctx, nso, p))
			if p.hasLeft(nso) {
				problems = append(problems, c.clearStatusesOf(ctx, nso.Namespace, p.id))
			}
		}
	}
	for _, id := range removedProviders(nso, providers) {
		problems = append(problems, c.clearStatusesOf(ctx, nso.Namespace, id))
	}
	c.reportComplaints(nso, closed, []complaint{
		{invalidReason, describeRenaming(renamed, remoteNamespace)}, {takenReason, c.describeRivals(nso, providers)}, {refusedReason, c.describeRefusals(nso, providers)}, {accessReason, describeStrangers(slices.Concat(selected, doubtful))},
		{remotedata.HeldReason, describeAllHeld(nso.Namespace, providers)},
		{unpromisedReason, describeAllUnpromised(&nso.Spec.ClusterSelector, providers)},
	})
	problems = append(problems, c.labelNamespace(ctx, nso.Namespace, nso.Spec.PodOffloadingStrategy != offloading.LocalPodOffloadingStrategyType))
	return errors.Join(problems...)
}

// complaint is a problem with some providers. It is reported to the user.
type complaint struct{ reason, note string }

// reportComplaints writes an Event about the most important problem. This is the missing access of virtual kubelets or,
// if there is no such problem, the first complaint.
func (c *Controller) reportComplaints(nso *offloading.NamespaceOffloading, closed error, complaints []complaint) {
	if closed != nil {
		c.warnOfAccess(nso, closed)
		return
	}
	for _, about := range complaints {
		if about.note != "" {
			c.writeWarning(nso, about.reason, about.note)
			return
		}
	}
	c.clearReports(nso.Namespace)
}

// unoffloadNamespace stops the scheduling of the namespace's pods to virtual nodes, and removes the namespace from
// every NamespaceMap unless data would be lost. When the last remote namespace is gone, it removes the finalizer. It
// does not wait for a provider that is declared dead, because such a provider never confirms the removal.
func (c *Controller) unoffloadNamespace(ctx context.Context, nso *offloading.NamespaceOffloading, providers []*provider) error {
	if !controllerutil.ContainsFinalizer(nso, wire.NamespaceOffloadingFinalizer) {
		return nil
	}
	problems := []error{c.labelNamespace(ctx, nso.Namespace, false)}
	for _, p := range providers {
		// The map is read from the API server, because the cache may not contain a request that was just made. With the
		// cached map, this request and its remote namespace would remain.
		problems = append(problems, c.lookUpMap(ctx, p))
	}
	if err := errors.Join(c.holdData(ctx, nso, providers, func(*provider) bool { return true }), c.keepRetained(ctx, nso.Namespace, providers)); err != nil {
		return errors.Join(append(problems, err)...)
	}
	remaining := 0
	for _, p := range providers {
		if !p.isHeld() {
			problems = append(problems, c.unmapNamespace(ctx, nso, p))
		}
		if p.isMapped(nso.Namespace) && !p.dead && !p.retained {
			remaining++
		}
	}
	if held := describeAllHeld(nso.Namespace, providers); held != "" {
		c.report.Warn(nso, remotedata.HeldReason, offloadAction, held)
	}
	problems = append(problems, c.writeStatus(ctx, nso, providers))
	if err := errors.Join(problems...); err != nil || remaining > 0 {
		// The update of the NamespaceMap's status will trigger the next reconciliation.
		return err
	}
	if err := c.bindVirtualKubelets(ctx, nso.Namespace, nil, nil); err != nil {
		c.warnOfAccess(nso, err)
		return err
	}
	if err := c.clearStatuses(ctx, nso.Namespace, func(string) bool { return true }); err != nil {
		return err
	}
	return finalizer.Ensure(ctx, c.client, nso, wire.NamespaceOffloadingFinalizer, false)
}

// describeRenaming returns a note about the providers where the remote namespace already has another name, which it
// keeps.
func describeRenaming(renamed []string, remoteNamespace string) string {
	if len(renamed) == 0 {
		return ""
	}
	return fmt.Sprintf("%s; it is not changed to %s: unoffload the namespace first", strings.Join(renamed, ", "), remoteNamespace)
}

// remoteNamespaceName returns the name of the namespace on the providers.
func (c *Controller) remoteNamespaceName(nso *offloading.NamespaceOffloading) string {
	switch nso.Spec.NamespaceMappingStrategy {
	case offloading.EnforceSameNameMappingStrategyType:
		return nso.Namespace
	case offloading.SelectedNameMappingStrategyType:
		return nso.Spec.RemoteNamespaceName
	}
	return nso.Namespace + "-" + c.options.ClusterID.String()
}

// labelNamespace enables or disables the scheduling of the namespace's pods to virtual nodes.
func (c *Controller) labelNamespace(ctx context.Context, name string, enabled bool) error {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	if (namespace.Labels[wire.SchedulingEnabledLabel] == "true") == enabled {
		return nil
	}
	changed := namespace.DeepCopy()
	if enabled {
		if changed.Labels == nil {
			changed.Labels = map[string]string{}
		}
		changed.Labels[wire.SchedulingEnabledLabel] = "true"
	} else {
		delete(changed.Labels, wire.SchedulingEnabledLabel)
	}
	err := c.client.Patch(ctx, changed, client.MergeFrom(namespace), client.FieldOwner(fieldManager), brake.Desired(strconv.FormatBool(enabled)))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("labelling namespace %s, %w", name, err)
	}
	return nil
}

// Quarantined returns the number of Namespaces and RoleBindings that are restored only every few seconds, because
// another client keeps changing them.
func (c *Controller) Quarantined() int { return brake.Quarantined(c.client) }

// Enforces returns an empty list of the enforced kind, and a filter for NamespaceOffloadings. Both are used for
// metrics.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.NamespaceOffloadingList{}, func(nso client.Object) bool { return nso.GetName() == offloading.NamespaceOffloadingName }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return c.setUpWatches(mgr)
}
