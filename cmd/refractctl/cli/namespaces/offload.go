// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/coverage"
	"github.com/refract-project/refract/internal/refractctl/doctor"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// offload contains the flags of "offload namespace". They have the same names as in Liqo.
type offload struct {
	access                                   *invocation.Access
	podStrategy, mappingStrategy, remoteName string
	selectors                                []string
	namespaceSelector                        string
	timeout                                  time.Duration
	output                                   *invocation.Output
}

// NewOffloadCommand returns the command "offload namespace".
func NewOffloadCommand(access *invocation.Access) *cobra.Command {
	o := &offload{access: access}
	command := &cobra.Command{
		Use:     "namespace NAME...",
		Aliases: []string{"namespaces", "ns"},
		Short:   "Offload namespaces to other clusters",
		Long: "Offload namespaces to the clusters behind virtual nodes, so that their pods may be scheduled there,\n" +
			"and wait until the remote namespaces exist. Run it again to change where pods may run.\n\n" +
			"Only new pods are affected: existing pods stay where they are until they are recreated\n" +
			"(kubectl rollout restart).",
		Example: "  refractctl offload namespace shop\n" +
			"  refractctl offload namespace shop --pod-offloading-strategy=Remote --selector=region=north\n" +
			"  refractctl offload namespace shop -o yaml",
		ValidArgsFunction: access.CompleteNamespaces,
		RunE:              invocation.ExplainErrors(o.runOffload),
	}
	flags := command.Flags()
	flags.StringVar(&o.podStrategy, "pod-offloading-strategy", string(offloading.LocalAndRemotePodOffloadingStrategyType), "where pods may run: "+strings.Join(podStrategies, ", "))
	flags.StringVar(&o.mappingStrategy, "namespace-mapping-strategy", string(offloading.DefaultNameMappingStrategyType), "how the remote namespaces are named: "+strings.Join(mappingStrategies, ", "))
	flags.StringVar(&o.remoteName, "remote-namespace-name", "", "name of the remote namespaces, with --namespace-mapping-strategy=SelectedName")
	flags.StringArrayVarP(&o.selectors, "selector", "l", nil, "labels of the virtual nodes to offload to, such as region=north,tier!=edge; repeated: any of them")
	flags.StringVar(&o.namespaceSelector, "ns-selector", "", "offload the namespaces with these labels, instead of naming them")
	flags.DurationVar(&o.timeout, "timeout", 20*time.Second, "how long to wait")
	o.output = invocation.AddOutput(command, "", "")
	flags.Lookup("output").Usage = "print the objects instead of applying them; one of: " + strings.Join(o.output.AcceptedFormats(), ", ")
	invocation.CompleteFlag(command, "pod-offloading-strategy", podStrategies...)
	invocation.CompleteFlag(command, "namespace-mapping-strategy", mappingStrategies...)
	return command
}

var (
	podStrategies = []string{
		string(offloading.LocalPodOffloadingStrategyType), string(offloading.RemotePodOffloadingStrategyType),
		string(offloading.LocalAndRemotePodOffloadingStrategyType),
	}
	mappingStrategies = []string{
		string(offloading.EnforceSameNameMappingStrategyType), string(offloading.DefaultNameMappingStrategyType),
		string(offloading.SelectedNameMappingStrategyType),
	}
)

func (o *offload) validateFlags(names []string) error {
	if err := errors.Join(validNamespaces(names, o.namespaceSelector), o.output.ValidateFormat()); err != nil {
		return err
	}
	if !slices.Contains(podStrategies, o.podStrategy) {
		return fmt.Errorf("--pod-offloading-strategy is %q: use one of %s", o.podStrategy, strings.Join(podStrategies, ", "))
	}
	if !slices.Contains(mappingStrategies, o.mappingStrategy) {
		return fmt.Errorf("--namespace-mapping-strategy is %q: use one of %s", o.mappingStrategy, strings.Join(mappingStrategies, ", "))
	}
	selected := o.mappingStrategy == string(offloading.SelectedNameMappingStrategyType)
	switch {
	case selected && o.remoteName == "":
		return errors.New("--namespace-mapping-strategy=SelectedName needs --remote-namespace-name")
	case !selected && o.remoteName != "":
		return errors.New("--remote-namespace-name needs --namespace-mapping-strategy=SelectedName")
	case selected && len(validation.IsDNS1123Label(o.remoteName)) > 0:
		return fmt.Errorf("--remote-namespace-name is %q: %s", o.remoteName, validation.IsDNS1123Label(o.remoteName)[0])
	case selected && len(names) > 1:
		return fmt.Errorf("%d namespaces cannot have the same remote namespace %s: offload them one by one", len(names), o.remoteName)
	}
	return nil
}

func (o *offload) runOffload(cmd *cobra.Command, names []string) error {
	names = o.access.NamedNamespaces(names, o.namespaceSelector)
	if err := o.validateFlags(names); err != nil {
		return invocation.UsageError(err)
	}
	selector, err := nodeSelector(o.selectors)
	if err != nil {
		return invocation.UsageError(err)
	}
	if !o.output.IsTable() && o.namespaceSelector == "" {
		return o.printAll(cmd.OutOrStdout(), names, selector)
	}
	c, err := o.access.NewClient(invocation.RequestTimeout)
	if err != nil {
		return err
	}
	names, err = chooseNamespaces(cmd.Context(), c, names, o.namespaceSelector)
	if err != nil {
		return err
	}
	if !o.output.IsTable() {
		return o.printAll(cmd.OutOrStdout(), names, selector)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	applied, problems := invocation.AttemptEach(names, func(name string) error { return o.applyOffloading(ctx, c, cmd, name, selector) })
	err = errors.Join(problems, awaitExtended(ctx, c, cmd.ErrOrStderr(), applied, o.timeout))
	if err == nil {
		WarnUncovered(cmd.Context(), c, cmd.ErrOrStderr(), applied)
	}
	if err == nil && len(applied) > 0 && o.podStrategy != string(offloading.LocalPodOffloadingStrategyType) {
		warnUncalled(ctx, c, cmd.ErrOrStderr(), applied[0])
	}
	return err
}

// WarnUncovered warns of NetworkPolicies and PodDisruptionBudgets in the namespaces that other clusters do not
// enforce.
func WarnUncovered(ctx context.Context, c client.Client, out io.Writer, namespaces []string) {
	notes := sets.New[string]()
	for _, namespace := range namespaces {
		report, err := coverage.Of(ctx, c, namespace)
		if err != nil {
			fmt.Fprintf(out, "warning: whether the NetworkPolicies and PodDisruptionBudgets of namespace %s hold on other clusters is unknown, %v\n", namespace, err)
			continue
		}
		for _, gap := range report.Gaps {
			fmt.Fprintf(out, "warning: %s\n", gap)
		}
		notes.Insert(report.Notes...)
	}
	for _, note := range sets.List(notes) {
		fmt.Fprintf(out, "note: %s\n", note)
	}
}

// warnUncalled prints a warning if the API server does not call the webhook, because new pods of the namespace would
// then stay in this cluster or be rejected. It prints nothing if the user may not create pods in the namespace.
func warnUncalled(ctx context.Context, c client.Client, out io.Writer, namespace string) {
	configuration := &metav1.PartialObjectMetadata{}
	configuration.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"))
	if c.Get(ctx, client.ObjectKey{Name: rbac.WebhookName}, configuration) != nil {
		return
	}
	// It may take a moment until the API server observes the new state of the namespace.
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	var uncalled, rejected bool
	_ = progress.Poll(ctx, func(ctx context.Context) (bool, error) {
		called, err := doctor.WebhookCalled(ctx, c, namespace)
		if err == nil { // the timeout interrupts the last attempt, which then returns an error
			uncalled = !called
		}
		rejected = doctor.IsRejection(err)
		return called, err
	})
	switch {
	case rejected:
		fmt.Fprintf(out, "warning: %s\n", doctor.Rejected)
	case uncalled:
		fmt.Fprintf(out, "warning: %s\n", doctor.NotCalled)
	}
}

// noticeTimeout is many times the time that an API server needs to observe a change to a namespace.
const noticeTimeout = 3 * time.Second

func (o *offload) desiredOffloading(namespace string, selector corev1.NodeSelector) *offloading.NamespaceOffloading {
	return &offloading.NamespaceOffloading{
		TypeMeta:   metav1.TypeMeta{APIVersion: offloading.GroupVersion.String(), Kind: offloading.NamespaceOffloadingKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName},
		Spec: offloading.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloading.NamespaceMappingStrategyType(o.mappingStrategy),
			RemoteNamespaceName:      o.remoteName,
			PodOffloadingStrategy:    offloading.PodOffloadingStrategyType(o.podStrategy),
			ClusterSelector:          selector,
		},
	}
}

func (o *offload) printAll(out io.Writer, names []string, selector corev1.NodeSelector) error {
	printer, err := o.output.NewPrinter()
	if err != nil {
		return err
	}
	for _, name := range names {
		object, err := invocation.ManifestOf(o.desiredOffloading(name, selector))
		if err != nil {
			return err
		}
		if err := printer.PrintObj(object, out); err != nil {
			return err
		}
	}
	return nil
}

// applyOffloading creates the NamespaceOffloading. If it exists, only fields whose flags are set are updated.
func (o *offload) applyOffloading(ctx context.Context, c client.Client, cmd *cobra.Command, namespace string, selector corev1.NodeSelector) error {
	if err := checkOffloadable(ctx, c, namespace, cmd.ErrOrStderr()); err != nil {
		return err
	}
	desired, existing := o.desiredOffloading(namespace, selector), &offloading.NamespaceOffloading{}
	err := c.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	if apierrors.IsNotFound(err) {
		if err := checkRemoteName(ctx, c, desired); err != nil {
			return err
		}
		if err := c.Create(ctx, desired); err != nil {
			return fmt.Errorf("creating NamespaceOffloading in %s, %w", namespace, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting NamespaceOffloading in %s, %w", namespace, err)
	}
	if existing.DeletionTimestamp != nil {
		return fmt.Errorf("namespace %s is being unoffloaded: wait until that is done (refractctl unoffload namespace %s)", namespace, namespace)
	}
	changed := existing.DeepCopy()
	given := cmd.Flags().Changed
	if given("pod-offloading-strategy") {
		changed.Spec.PodOffloadingStrategy = desired.Spec.PodOffloadingStrategy
	}
	if given("selector") {
		changed.Spec.ClusterSelector = selector
	}
	if given("namespace-mapping-strategy") && existing.Spec.NamespaceMappingStrategy != desired.Spec.NamespaceMappingStrategy ||
		given("remote-namespace-name") && existing.Spec.RemoteNamespaceName != desired.Spec.RemoteNamespaceName {
		return fmt.Errorf("namespace %s is offloaded with namespaceMappingStrategy %s and remoteNamespaceName %q, which cannot change: unoffload it first",
			namespace, existing.Spec.NamespaceMappingStrategy, existing.Spec.RemoteNamespaceName)
	}
	if err := c.Patch(ctx, changed, client.MergeFrom(existing)); err != nil {
		return fmt.Errorf("changing NamespaceOffloading in %s, %w", namespace, err)
	}
	return nil
}

// checkOffloadable returns an error if the namespace does not exist, or if offloading it would send credentials of this
// installation to its providers. It prints a warning for the namespaces of Kubernetes itself.
func checkOffloadable(ctx context.Context, c client.Client, name string, out io.Writer) error {
	namespace := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return fmt.Errorf("getting namespace %s, %w", name, err)
	}
	if namespace.Labels[wire.TenantNamespaceLabel] == "true" {
		return fmt.Errorf("namespace %s cannot be offloaded: it is the tenant namespace of a peer, and its Secrets with the credentials of the peering would be copied to the providers; offload the namespaces of applications", name)
	}
	// For users who may not list Deployments, the check is left out.
	if installed, err := release.Find(ctx, c); err == nil && installed.Namespace == name {
		return fmt.Errorf("namespace %s cannot be offloaded: Refract itself is installed there, and its Secrets would be copied to the providers; offload the namespaces of applications", name)
	}
	if strings.HasPrefix(name, "kube-") {
		fmt.Fprintf(out, "warning: namespace %s belongs to Kubernetes: its ConfigMaps and Secrets are copied to the providers, and its new pods may run there, where they serve the wrong cluster (undo it with: refractctl unoffload namespace %[1]s)\n", name)
	}
	return nil
}

// checkRemoteName returns an error if the name of the namespace and the ID of this cluster are too long to be the name
// of the remote namespace. Users who may not read the ID get the same error from the controller manager, as an Event.
func checkRemoteName(ctx context.Context, c client.Client, o *offloading.NamespaceOffloading) error {
	if o.Spec.NamespaceMappingStrategy != offloading.DefaultNameMappingStrategyType {
		return nil
	}
	ids := &corev1.ConfigMapList{}
	if err := c.List(ctx, ids, client.MatchingLabels{"app.kubernetes.io/name": cluster.LiqoIDName}); err != nil || len(ids.Items) == 0 {
		return nil //nolint:nilerr // the controller manager knows the ID
	}
	remoteName := o.Namespace + "-" + ids.Items[0].Data[cluster.LiqoIDKey]
	problems := validation.IsDNS1123Label(remoteName)
	if len(problems) == 0 {
		return nil
	}
	return invocation.UsageError(fmt.Errorf("the remote namespace of %s cannot be named %s: %s; use --namespace-mapping-strategy=EnforceSameName, or SelectedName with a shorter --remote-namespace-name",
		o.Namespace, remoteName, problems[0]))
}

// nodeSelector parses each text as a term. A node must match at least one of the terms.
func nodeSelector(texts []string) (corev1.NodeSelector, error) {
	var selector corev1.NodeSelector
	for _, text := range texts {
		parsed, err := labels.Parse(text)
		if err != nil {
			return selector, fmt.Errorf("--selector %q: %w", text, err)
		}
		requirements, _ := parsed.Requirements()
		if len(requirements) == 0 {
			return selector, errors.New("--selector is empty: omit it to offload to all clusters")
		}
		var term corev1.NodeSelectorTerm
		for _, requirement := range requirements {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: requirement.Key(), Operator: nodeOperator(requirement), Values: requirement.Values().List(),
			})
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return selector, nil
}
