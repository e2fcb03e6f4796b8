// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	ri "helm.sh/helm/v4/pkg/release"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
)

// Installer installs, upgrades and removes one release. It is not safe for concurrent use.
type Installer struct {
	// Getter and Client must belong to the same cluster.
	Getter genericclioptions.RESTClientGetter
	Client client.Client
	// Name and Namespace identify the release.
	Name, Namespace string
	// DryRun means that nothing is changed.
	DryRun bool
	// AllowDowngrade permits Install to replace a release of a newer version of the chart.
	AllowDowngrade bool
	// Progress receives a line for each step and for each condition that the installer waits for. Lines do not end with
	// a newline.
	Progress progress.Reporter
}

// Result describes the release that was installed or, in a dry run, would be installed.
type Result struct {
	// Revision is the revision of the release. The first revision is 1.
	Revision int
	// Manifest contains the objects as YAML. It does not contain the CRDs.
	Manifest string
	// Notes are the notes for the user.
	Notes string
}

// Install installs or upgrades the chart with values. Values of the existing release are kept unless they are
// overridden. CRDs are applied first. An interrupted installation is continued. Install does not wait until the
// Deployments are available (see Await).
func (i *Installer) Install(ctx context.Context, values map[string]any) (*Result, error) {
	result, err := i.installChart(ctx, values)
	return result, progress.Ended(ctx, err)
}

func (i *Installer) installChart(ctx context.Context, values map[string]any) (*Result, error) {
	chart, err := loadChart()
	if err != nil {
		return nil, err
	}
	crds, err := definitionsOf(chart)
	if err != nil {
		return nil, err
	}
	config, err := i.newConfiguration()
	if err != nil {
		return nil, err
	}
	upgrade, err := isDeployed(config, i.Name)
	if err != nil {
		return nil, err
	}
	if err := i.checkOnlyOne(ctx); err != nil {
		return nil, err
	}
	if err := i.checkDowngrade(config, chart); err != nil {
		return nil, err
	}
	// The dry run finds errors in the values before anything is changed.
	planned, err := i.applyChart(ctx, chart, values, upgrade, true)
	if err != nil {
		return nil, err
	}
	if err := checkManifest(i.Client.Scheme(), planned.Manifest); err != nil {
		return nil, err
	}
	if err := i.checkKeepsID(ctx, planned); err != nil {
		return nil, err
	}
	i.Progress.Report("applying %d CRDs", len(crds))
	if err := i.applyCRDs(ctx, crds); err != nil {
		return nil, err
	}
	if upgrade {
		i.Progress.Report("upgrading release %s in namespace %s", i.Name, i.Namespace)
	} else {
		i.Progress.Report("installing release %s in namespace %s", i.Name, i.Namespace)
	}
	done, err := i.applyChart(ctx, chart, values, upgrade, i.DryRun)
	if err != nil {
		return nil, err
	}
	return &Result{Revision: done.Version, Manifest: done.Manifest, Notes: done.Info.Notes}, nil
}

// checkOnlyOne fails if there is another installation, because both installations would do the same work.
func (i *Installer) checkOnlyOne(ctx context.Context) error {
	found, err := Find(ctx, i.Client)
	if errors.Is(err, ErrNotInstalled) {
		return nil
	}
	if err == nil && (found.Name != i.Name || found.Namespace != i.Namespace) {
		err = fmt.Errorf("the cluster already has Refract, as release %s in namespace %s: upgrade it with --release=%s --namespace=%s", found.Name, found.Namespace, found.Name, found.Namespace)
	}
	return err
}

func (i *Installer) newConfiguration() (*action.Configuration, error) {
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := config.Init(i.Getter, i.Namespace, ""); err != nil {
		return nil, fmt.Errorf("connecting to the cluster, %w", err)
	}
	return config, nil
}

// isDeployed reports whether the release exists.
func isDeployed(config *action.Configuration, name string) (bool, error) {
	history, err := listRevisions(config, name)
	return len(history) > 0, err
}

// helmTimeout limits how long Helm may wait for the deletion of objects.
const helmTimeout = 2 * time.Minute

// init sets the field manager to "helm". By default, Helm's library uses the name of the program as the field manager.
// Then kubectl-refract could not upgrade an installation made with refractctl, and neither of them could upgrade an
// installation made with helm.
func init() { kube.ManagedFieldsManager = "helm" }

func (i *Installer) applyChart(ctx context.Context, chart *chartv2.Chart, values map[string]any, upgrade, dryRun bool) (*releasev1.Release, error) {
	config, err := i.newConfiguration() // a dry run modifies the configuration, so it gets its own
	if err != nil {
		return nil, err
	}
	strategy := action.DryRunNone
	if dryRun {
		strategy = action.DryRunClient // client-side, because the server does not have the CRDs yet
	}
	if upgrade {
		if err := i.takeOver(config, dryRun); err != nil {
			return nil, err
		}
		helm := action.NewUpgrade(config)
		helm.Namespace, helm.SkipCRDs, helm.ResetThenReuseValues, helm.MaxHistory = i.Namespace, true, true, mostRevisions
		helm.DryRunStrategy, helm.WaitStrategy, helm.Timeout = strategy, kube.HookOnlyStrategy, helmTimeout
		// The chart overrides fields that helm, an earlier refractctl or kubectl edit has written.
		helm.ServerSideApply, helm.ForceConflicts = "true", true
		done, err := helm.RunWithContext(ctx, i.Name, chart, values)
		if err != nil {
			return nil, fmt.Errorf("upgrading release %s/%s, %w", i.Namespace, i.Name, classifyError(err))
		}
		return typedRelease(done)
	}
	helm := action.NewInstall(config)
	helm.ReleaseName, helm.Namespace, helm.CreateNamespace, helm.SkipCRDs = i.Name, i.Namespace, true, true
	helm.DryRunStrategy, helm.WaitStrategy, helm.Timeout = strategy, kube.HookOnlyStrategy, helmTimeout
	if helm.KubeVersion, err = i.kubeVersion(); err != nil {
		return nil, err
	}
	done, err := helm.RunWithContext(ctx, chart, values)
	if err != nil {
		return nil, fmt.Errorf("installing release %s/%s, %w", i.Namespace, i.Name, classifyError(err))
	}
	return typedRelease(done)
}

// ValuesError means that the values do not match the schema of the chart. Nothing was changed.
type ValuesError struct{ error }

// classifyError returns a ValuesError if Helm has refused the values. Helm has no type for this error.
func classifyError(err error) error {
	if strings.Contains(err.Error(), "values don't meet the specifications of the schema") {
		return &ValuesError{err}
	}
	return err
}

func typedRelease(release ri.Releaser) (*releasev1.Release, error) {
	result, ok := release.(*releasev1.Release)
	if !ok {
		return nil, fmt.Errorf("helm returned a release of type %T", release)
	}
	return result, nil
}

// kubeVersion returns the version of the cluster. Helm's library would not request it in a dry run.
func (i *Installer) kubeVersion() (*common.KubeVersion, error) {
	discovery, err := i.Getter.ToDiscoveryClient()
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster, %w", err)
	}
	version, err := discovery.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking for the version of the cluster, %w", err)
	}
	return common.ParseKubeVersion(version.GitVersion)
}

// mostRevisions is how many revisions of the release are kept. It is the same number as in Helm.
const mostRevisions = 10

// Await waits until the Deployments of the release are available and the virtual kubelets run with its settings. It
// reports what it is waiting for.
func (i *Installer) Await(ctx context.Context) error { return progress.Ended(ctx, i.awaitAll(ctx)) }

func (i *Installer) awaitAll(ctx context.Context) error {
	all := &appsv1.DeploymentList{}
	if err := i.Client.List(ctx, all, client.InNamespace(i.Namespace), client.MatchingLabels{InstanceLabel: i.Name}); err != nil {
		return fmt.Errorf("listing Deployments, %w", err)
	}
	for _, deployment := range all.Items {
		key := client.ObjectKeyFromObject(&deployment)
		if err := i.Progress.Await(ctx, "Deployment "+key.String(), func(ctx context.Context) (string, error) { return Unavailable(ctx, i.Client, key) }); err != nil {
			return err
		}
	}
	return i.awaitKubelets(ctx)
}

// awaitKubelets waits until the virtual kubelets run with the settings of the release.
func (i *Installer) awaitKubelets(ctx context.Context) error {
	kubelets := &appsv1.DeploymentList{}
	if err := i.Client.List(ctx, kubelets, client.MatchingLabels{wire.ComponentLabel: wire.VirtualKubeletComponent}); err != nil {
		return fmt.Errorf("listing Deployments, %w", err)
	}
	for _, deployment := range kubelets.Items {
		key := client.ObjectKeyFromObject(&deployment)
		err := i.Progress.Await(ctx, "Deployment "+key.String(), func(ctx context.Context) (string, error) { return i.describeKubelet(ctx, key) })
		if err != nil {
			return err
		}
	}
	return nil
}

// describeKubelet returns why a virtual kubelet does not run with the settings of its template yet. It returns "" if
// the virtual kubelet runs with these settings, or if waiting cannot help because the Deployment was deleted or the
// ServiceAccount is missing.
func (i *Installer) describeKubelet(ctx context.Context, key client.ObjectKey) (string, error) {
	deployment := &appsv1.Deployment{}
	if err := i.Client.Get(ctx, key, deployment); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("getting Deployment %s, %w", key, err)
	}
	if found, err := i.hasAccount(ctx, deployment); err != nil {
		return "", err
	} else if !found {
		i.Progress.Report("Deployment %s: warning: it has no pods, because its ServiceAccount %s does not exist: run refractctl doctor, which shows how to create it", key, deployment.Spec.Template.Spec.ServiceAccountName)
		return "", nil
	}
	if outdated, err := i.describeOutdated(ctx, deployment); outdated != "" || err != nil {
		return outdated, err
	}
	missing, err := Unavailable(ctx, i.Client, key)
	return missing, client.IgnoreNotFound(err)
}

// hasAccount reports whether the ServiceAccount of a virtual kubelet exists. Without the ServiceAccount, no pods of the
// Deployment are created. If the user may not read ServiceAccounts, it returns true, so that the command waits for the
// pods.
func (i *Installer) hasAccount(ctx context.Context, deployment *appsv1.Deployment) (bool, error) {
	key := client.ObjectKey{Namespace: deployment.Namespace, Name: deployment.Spec.Template.Spec.ServiceAccountName}
	if key.Name == "" { // the pods have the default ServiceAccount of the namespace
		return true, nil
	}
	switch err := i.Client.Get(ctx, key, &corev1.ServiceAccount{}); {
	case err == nil || apierrors.IsForbidden(err):
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("getting ServiceAccount %s, %w", key, err)
	}
}

// describeOutdated returns a message if a virtual kubelet does not have the settings of its template yet.
func (i *Installer) describeOutdated(ctx context.Context, deployment *appsv1.Deployment) (string, error) {
	name, generation, _ := strings.Cut(deployment.Annotations[wire.TemplateAnnotation], "@")
	namespace, name, ours := strings.Cut(name, "/")
	if !ours {
		return "", nil // another implementation has created the Deployment
	}
	template := &offloading.VkOptionsTemplate{}
	err := i.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, template)
	if apierrors.IsNotFound(err) {
		return "", nil // the Deployment is not updated; the conditions of its VirtualNode contain the reason
	}
	if err != nil {
		return "", fmt.Errorf("getting VkOptionsTemplate %s/%s, %w", namespace, name, err)
	}
	if generation != strconv.FormatInt(template.Generation, 10) {
		return "the controller manager has not applied the new settings yet", nil
	}
	return "", nil
}

// Unavailable returns why some replicas of a Deployment are not available yet, including the reason of one of their
// pods if there is one. It returns "" if all replicas are available.
func Unavailable(ctx context.Context, c client.Client, key client.ObjectKey) (missing string, err error) {
	deployment := &appsv1.Deployment{}
	if err := c.Get(ctx, key, deployment); err != nil {
		return "", fmt.Errorf("getting Deployment %s, %w", key, err)
	}
	status, want := &deployment.Status, int32(1)
	if deployment.Spec.Replicas != nil {
		want = *deployment.Spec.Replicas
	}
	if status.ObservedGeneration == deployment.Generation && status.UpdatedReplicas == want && status.AvailableReplicas == want && status.Replicas == want {
		return "", nil
	}
	missing = fmt.Sprintf("%d of %d replicas are up to date and available", min(status.UpdatedReplicas, status.AvailableReplicas), want)
	if deployment.Spec.Selector == nil { // an API server would reject this, but a proxy or an aggregated API server may return it
		return "", fmt.Errorf("the spec of Deployment %s has no selector: check that the server of the kubeconfig is an API server of Kubernetes", key)
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return "", fmt.Errorf("reading spec.selector of Deployment %s, %w", key, err)
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return missing, nil //nolint:nilerr // the reason is optional
	}
	for p := range pods.Items {
		if reason := troubleOf(&pods.Items[p]); reason != "" {
			return missing + ", pod " + pods.Items[p].Name + ": " + reason, nil
		}
	}
	return missing, nil
}

// troubleOf returns the reason why a pod does not run, or an empty string if the pod runs or is starting.
func troubleOf(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "ContainerCreating" {
			return waiting.Reason + ", " + waiting.Message
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Reason + ", " + condition.Message
		}
	}
	return ""
}
