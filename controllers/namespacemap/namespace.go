// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/apifailure"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/internal/tenantlimits"
)

const (
	fieldManager   = wire.NamespaceMapFieldManager
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "liqo"
)

// ensureRemoteNamespace creates or updates one remote namespace and returns its status. If a problem can only be solved
// by a user, it is reported by an Event and the phase CreationLoopBackOff. Errors are retried and leave the phase
// unchanged.
func (c *Controller) ensureRemoteNamespace(ctx context.Context, nm *offloading.NamespaceMap, limits consumerLimits, local, remoteNamespace string) (offloading.RemoteNamespaceStatus, error) {
	before := nm.Status.CurrentMapping[local]
	before.RemoteNamespace = remoteNamespace
	namespace := &corev1.Namespace{}
	err := c.client.Get(ctx, client.ObjectKey{Name: remoteNamespace}, namespace)
	// The name is checked only for a new namespace. If the rules become stricter, the consumer keeps its existing
	// namespaces.
	if !isRemoteNamespaceOf(namespace, nm, local) {
		if err := c.options.Tenancy.CheckName(limits.Limits, nm.Labels[wire.OriginIDLabel], remoteNamespace, c.options.Installation); err != nil {
			return c.refuse(nm, remoteNamespace, "namespace %q, for %s, is not created: %s; or ask the consumer to choose another name", remoteNamespace, local, err), nil
		}
	}
	if apierrors.IsNotFound(err) {
		namespace, err = c.createNamespace(ctx, nm, limits, local, remoteNamespace)
	}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		c.report.Warn(nm, failedRemoteNamespaceReason, mapAction, fmt.Sprintf("creating namespace %s for namespace %s of the consumer: %s", remoteNamespace, local, err))
		return refused(remoteNamespace, explain(before, "the remote namespace is not created", err)), err
	case err != nil:
		return before, fmt.Errorf("creating namespace %s, %w", remoteNamespace, err)
	case !isMadeFor(namespace, nm):
		return c.refuse(nm, remoteNamespace, "namespace %s exists and was not created for this NamespaceMap, so it cannot be the remote namespace of %s: choose another name for the remote namespace, or delete the one that exists", remoteNamespace, local), errForeign(remoteNamespace)
	case !isRemoteNamespaceOf(namespace, nm, local):
		return c.refuse(nm, remoteNamespace, "namespace %s is the remote namespace of %s of this consumer, so it cannot be that of %s: ask the consumer to choose another name for one of the remote namespaces, or unoffload %s",
			remoteNamespace, namespace.Annotations[wire.OriginalNameAnnotation], local, namespace.Annotations[wire.OriginalNameAnnotation]), errForeign(remoteNamespace)
	case namespace.DeletionTimestamp != nil:
		// When the namespace is gone, another reconciliation creates it again.
		return offloading.RemoteNamespaceStatus{RemoteNamespace: remoteNamespace, Phase: offloading.MappingTerminating}, nil
	}
	if err := c.furnish(ctx, nm, limits, namespace); err != nil {
		if class := report.ClassOf(err); before.Phase != offloading.MappingAccepted && slices.Contains(decisions, class) {
			before.Message = explain(before, "the remote namespace is not ready", err)
		}
		return before, err
	}
	return offloading.RemoteNamespaceStatus{RemoteNamespace: remoteNamespace, Phase: offloading.MappingAccepted}, nil
}

// decisions are the classes of errors that persist until an object or policy is changed.
var decisions = []report.Class{report.Forbidden, report.Policy, report.Invalid}

// furnish applies the limits of the consumer to a remote namespace, and then grants the consumer its permissions in the
// namespace.
func (c *Controller) furnish(ctx context.Context, nm *offloading.NamespaceMap, limits consumerLimits, namespace *corev1.Namespace) error {
	var problems []error
	for _, ensure := range []func() error{
		func() error { return c.ensureLevel(ctx, namespace) },
		func() error { return c.copyLimits(ctx, limits, namespace) },
		func() error { return c.ensureEgressPolicies(ctx, nm, limits.Limits, namespace.Name) },
		func() error { return c.ensureLimitRange(ctx, nm, namespace.Name) },
		func() error { return c.ensureObjectCounts(ctx, nm, namespace.Name) },
	} {
		if err := ensure(); err != nil {
			problems = append(problems, err)
			// A limit that another client keeps changing does not delay the other limits.
			if !brake.IsFight(err) {
				break
			}
		}
	}
	// The limits are applied before the consumer gets any permission in the namespace.
	if err := errors.Join(problems...); err != nil {
		return err
	}
	return c.ensureRoleBinding(ctx, nm, namespace.Name)
}

func errForeign(remoteNamespace string) error {
	return report.Errorf(report.Foreign, "namespace %s exists and is not ours", remoteNamespace)
}

// refuse reports why a remote namespace is not created: in an Event on the map and, for the consumer, in the status.
func (c *Controller) refuse(nm *offloading.NamespaceMap, remoteNamespace, format string, args ...any) offloading.RemoteNamespaceStatus {
	message := fmt.Sprintf(format, args...)
	c.report.Warn(nm, failedRemoteNamespaceReason, mapAction, message)
	return refused(remoteNamespace, message)
}

func refused(remoteNamespace, message string) offloading.RemoteNamespaceStatus {
	return offloading.RemoteNamespaceStatus{
		RemoteNamespace: remoteNamespace, Phase: offloading.MappingCreationLoopBackOff, Message: printable.Shorten(printable.Line(message), offloading.MaxMappingMessage),
	}
}

// explain returns the message about an error from the API server. The message does not change while the same policy or
// the same kind of check denies the request. The text of a webhook may be different each time, and each write of the
// status triggers another attempt.
func explain(before offloading.RemoteNamespaceStatus, problem string, err error) string {
	decider := string(apierrors.ReasonForError(err))
	if policy := admission.DenyingPolicy(err); policy != "" {
		decider = policy
	}
	beginning := fmt.Sprintf("%s (%s): ", problem, decider)
	if strings.HasPrefix(before.Message, beginning) {
		return before.Message
	}
	return printable.Shorten(printable.Line(beginning+err.Error()), offloading.MaxMappingMessage)
}

// createNamespace creates the remote namespace. If a namespace with this name exists and is not in the cache, because
// it belongs to another owner, createNamespace returns the existing namespace.
func (c *Controller) createNamespace(ctx context.Context, nm *offloading.NamespaceMap, limits consumerLimits, local, remoteNamespace string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: remoteNamespace,
		Labels: map[string]string{
			wire.RemoteClusterIDLabel: nm.Labels[wire.OriginIDLabel],
			tenancy.EnforceLabel:      c.options.Tenancy.Level(nm.Labels[wire.OriginIDLabel]),
		},
		Annotations: map[string]string{
			wire.ManagedByNamespaceMapAnnotation: client.ObjectKeyFromObject(nm).String(),
			wire.OriginalNameAnnotation:          local,
		},
	}}
	maps.Copy(namespace.Annotations, limits.annotations)
	err := c.client.Create(ctx, namespace, client.FieldOwner(fieldManager))
	if apierrors.IsAlreadyExists(err) {
		namespace = &corev1.Namespace{}
		err = c.uncached.Get(ctx, client.ObjectKey{Name: remoteNamespace}, namespace)
	}
	return namespace, err
}

// ensureLevel sets the consumer's Pod Security level on a namespace without a level, which an earlier version has
// created. An existing level is kept, because an administrator may have set it.
func (c *Controller) ensureLevel(ctx context.Context, namespace *corev1.Namespace) error {
	if namespace.Labels[tenancy.EnforceLabel] != "" {
		return nil
	}
	changed := namespace.DeepCopy()
	changed.Labels[tenancy.EnforceLabel] = c.options.Tenancy.Level(namespace.Labels[wire.RemoteClusterIDLabel])
	if err := c.client.Patch(ctx, changed, client.MergeFrom(namespace), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("setting the Pod Security level of namespace %s, %w", namespace.Name, err)
	}
	return nil
}

// copyLimits copies the limits of the consumer to a remote namespace, where the admission policies read them.
func (c *Controller) copyLimits(ctx context.Context, limits consumerLimits, namespace *corev1.Namespace) error {
	desired, actual := limits.annotations, tenantlimits.Annotations(namespace.Annotations)
	if maps.Equal(actual, desired) {
		return nil
	}
	changed := namespace.DeepCopy()
	for key := range actual {
		delete(changed.Annotations, key)
	}
	maps.Copy(changed.Annotations, desired)
	if err := c.client.Patch(ctx, changed, client.MergeFrom(namespace), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("setting the limits of namespace %s, %w", namespace.Name, err)
	}
	return nil
}

// isMadeFor reports whether the namespace was created for this map and its consumer.
func isMadeFor(namespace *corev1.Namespace, nm *offloading.NamespaceMap) bool {
	return namespace.Annotations[wire.ManagedByNamespaceMapAnnotation] == client.ObjectKeyFromObject(nm).String() &&
		namespace.Labels[wire.RemoteClusterIDLabel] == nm.Labels[wire.OriginIDLabel]
}

// isRemoteNamespaceOf reports whether the namespace was created for the namespace local of the consumer. Two mappings
// may request the same remote namespace, but neither of them may use or delete the remote namespace of the other one.
func isRemoteNamespaceOf(namespace *corev1.Namespace, nm *offloading.NamespaceMap, local string) bool {
	return isMadeFor(namespace, nm) && namespace.Annotations[wire.OriginalNameAnnotation] == local
}

// deleteRemoteNamespace deletes the namespace. It returns true if the namespace is gone, or was not created for the
// namespace local.
func (c *Controller) deleteRemoteNamespace(ctx context.Context, nm *offloading.NamespaceMap, local, remoteNamespace string) (bool, error) {
	namespace := &corev1.Namespace{}
	err := c.uncached.Get(ctx, client.ObjectKey{Name: remoteNamespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("getting namespace %s, %w", remoteNamespace, err)
	case !isRemoteNamespaceOf(namespace, nm, local):
		return true, nil
	case namespace.DeletionTimestamp != nil:
		return false, nil
	}
	err = c.client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID})
	if client.IgnoreNotFound(err) == nil {
		return false, nil
	}
	err = fmt.Errorf("deleting namespace %s, %w", remoteNamespace, err)
	if !apierrors.IsConflict(err) && !apifailure.IsOverloaded(err) {
		c.report.Warn(nm, failedDeleteReason, mapAction, fmt.Sprintf("%s; retrying. Grant the controllers the right to delete it, or delete it yourself", err))
	}
	return false, err
}

// ensureRoleBinding grants the consumer its role in the remote namespace. The consumer authenticates either with a
// certificate, as a member of the group with its cluster ID as the name, or with a token, as its ServiceAccount in the
// tenant namespace.
func (c *Controller) ensureRoleBinding(ctx context.Context, nm *offloading.NamespaceMap, remoteNamespace string) error {
	desired := c.roleBinding(nm, remoteNamespace)
	actual := &rbacv1.RoleBinding{}
	err := c.client.Get(ctx, client.ObjectKeyFromObject(desired), actual)
	if apierrors.IsNotFound(err) {
		if c.options.LimitNewNamespace != nil {
			if err := c.options.LimitNewNamespace(ctx, nm.Labels[wire.OriginIDLabel], remoteNamespace); err != nil {
				return err
			}
		}
		err = c.client.Create(ctx, desired.DeepCopy(), client.FieldOwner(fieldManager))
		if err == nil {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating RoleBinding %s, %w", client.ObjectKeyFromObject(desired), err)
		}
		err = c.uncached.Get(ctx, client.ObjectKeyFromObject(desired), actual)
	}
	if err != nil {
		return fmt.Errorf("getting RoleBinding %s, %w", client.ObjectKeyFromObject(desired), err)
	}
	if actual.RoleRef != desired.RoleRef {
		return fmt.Errorf("RoleBinding %s refers to %s, not %s, which is immutable: delete the RoleBinding to recreate it",
			client.ObjectKeyFromObject(actual), actual.RoleRef.Name, desired.RoleRef.Name)
	}
	subjects := mergeSubjects(actual, desired.Subjects)
	if equality.Semantic.DeepEqual(actual.Subjects, subjects) {
		return nil
	}
	changed := actual.DeepCopy()
	changed.Subjects = subjects
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, asked.Annotation, desired.Annotations[asked.Annotation])
	if err := c.client.Patch(ctx, changed, client.MergeFrom(actual), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("updating RoleBinding %s, %w", client.ObjectKeyFromObject(actual), err)
	}
	return nil
}

// mergeSubjects returns the desired subjects, and the subjects that other clients have added to the binding. It leaves
// out subjects that only an earlier version has set.
func mergeSubjects(binding *rbacv1.RoleBinding, desired []rbacv1.Subject) []rbacv1.Subject {
	last := asked.Read(binding.Annotations)
	merged := slices.DeleteFunc(slices.Clone(binding.Subjects), func(subject rbacv1.Subject) bool {
		return last != nil && last.Content.Has("", subjectPath(subject)...) && !slices.Contains(desired, subject)
	})
	for _, subject := range desired {
		if !slices.Contains(merged, subject) {
			merged = append(merged, subject)
		}
	}
	return merged
}

func subjectPath(subject rbacv1.Subject) []string {
	return []string{"subjects", subject.APIGroup, subject.Kind, subject.Namespace, subject.Name}
}

func (c *Controller) roleBinding(nm *offloading.NamespaceMap, remoteNamespace string) *rbacv1.RoleBinding {
	origin := nm.Labels[wire.OriginIDLabel]
	subjects := []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: origin},
		{Kind: rbacv1.ServiceAccountKind, Namespace: nm.Namespace, Name: wire.ConsumerServiceAccount},
	}
	record := asked.Record{Content: asked.Values{}}
	for _, subject := range subjects {
		record.Content.Set("", subjectPath(subject)...)
	}
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: remoteNamespace,
			Name:      nm.Namespace,
			Labels:    map[string]string{managedByLabel: managedBy, wire.RemoteClusterIDLabel: origin},
			Annotations: map[string]string{
				wire.ManagedByNamespaceMapAnnotation: client.ObjectKeyFromObject(nm).String(),
				asked.Annotation:                     record.Text(),
			},
		},
		Subjects: subjects,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.options.RemoteClusterRole},
	}
}
