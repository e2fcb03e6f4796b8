// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// Installation describes an installation of Refract in a cluster.
type Installation struct {
	// Name and Namespace identify the Helm release.
	Name, Namespace string
	// ClusterID is the ID that peers use for the cluster.
	ClusterID string
	// Version is the version of the images. Image is the image of the controller manager.
	Version, Image string
	// RolePrefix is the prefix of the names of all roles.
	RolePrefix string
	// ServiceAccount is the ServiceAccount of the controller manager, in Namespace.
	ServiceAccount string
	// Scheduling contains the scheduling settings of the controller manager's pods: node selector, affinity and
	// priority class name.
	Scheduling corev1.PodSpec
	// Consumes is true if virtual nodes can be created in this cluster.
	Consumes bool
	// HoldsToQuotas is true if Quotas of consumers are enforced in this cluster. If it is false, there must be no
	// Quotas, because no webhook records which consumer created a pod.
	HoldsToQuotas bool
	// Isolates is true if network policies allow only the served ports of the installation's pods
	// (networkPolicies.enabled).
	Isolates bool
}

// The errors of Find.
var (
	ErrNotInstalled = errors.New("found no installation of Refract")
	ErrSeveral      = errors.New("there is more than one installation of Refract")
)

// InstanceLabel is the label with the name of the release. It is set on all objects of the release.
const InstanceLabel = "app.kubernetes.io/instance"

const (
	nameLabel      = "app.kubernetes.io/name"
	versionLabel   = "app.kubernetes.io/version"
	componentLabel = "app.kubernetes.io/component"
	chartLabel     = "helm.sh/chart"

	chartName         = "refract"
	controllerManager = "controller-manager"
	remoteRole        = "-virtual-kubelet-remote"
)

// The label and its value on objects that refractctl creates without Helm.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = wire.ManagedByRefractctl
)

// listManagers returns the Deployments of the controller managers of all installations. Their name label is
// "controller-manager", which Liqo's tools select, or "refract" in older versions and in installations beside Liqo.
func listManagers(ctx context.Context, c client.Client) ([]appsv1.Deployment, error) {
	named, err := labels.NewRequirement(nameLabel, selection.In, []string{chartName, controllerManager})
	if err != nil {
		return nil, fmt.Errorf("selecting Deployments, %w", err)
	}
	all := &appsv1.DeploymentList{}
	if err := c.List(ctx, all, client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*named)}); err != nil {
		return nil, fmt.Errorf("listing Deployments, %w", err)
	}
	return slices.DeleteFunc(all.Items, func(d appsv1.Deployment) bool {
		return d.Labels[nameLabel] != chartName && !strings.HasPrefix(d.Labels[chartLabel], chartName+"-") ||
			d.Spec.Template.Labels[componentLabel] != controllerManager || len(d.Spec.Template.Spec.Containers) == 0
	}), nil
}

// Find returns the installation of Refract. The error is ErrNotInstalled if there is no installation, and wraps
// ErrSeveral if there are several.
func Find(ctx context.Context, c client.Client) (*Installation, error) {
	managers, err := listManagers(ctx, c)
	if err != nil {
		return nil, err
	}
	switch len(managers) {
	case 0:
		return nil, ErrNotInstalled
	case 1:
		found := describeInstallation(&managers[0])
		policy := &networkingv1.NetworkPolicy{}
		// The network policy has the same name as the Deployment.
		err := c.Get(ctx, client.ObjectKeyFromObject(&managers[0]), policy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("getting NetworkPolicy %s, %w", client.ObjectKeyFromObject(&managers[0]), err)
		}
		found.Isolates = err == nil
		return found, nil
	}
	return nil, fmt.Errorf("%w, by the Deployments %s and %s: uninstall one with refractctl uninstall -n NAMESPACE --release RELEASE",
		ErrSeveral, client.ObjectKeyFromObject(&managers[0]), client.ObjectKeyFromObject(&managers[1]))
}

func describeInstallation(manager *appsv1.Deployment) *Installation {
	argument := func(name string) string {
		for _, given := range manager.Spec.Template.Spec.Containers[0].Args {
			if value, ok := strings.CutPrefix(given, "--"+name+"="); ok {
				return value
			}
		}
		return ""
	}
	pod := &manager.Spec.Template.Spec
	return &Installation{
		Scheduling: corev1.PodSpec{NodeSelector: pod.NodeSelector, Affinity: pod.Affinity, PriorityClassName: pod.PriorityClassName},
		Name:       manager.Labels[InstanceLabel], Namespace: manager.Namespace, ClusterID: argument("cluster-id"), Version: manager.Labels[versionLabel],
		Image:      pod.Containers[0].Image,
		RolePrefix: strings.TrimSuffix(argument("remote-cluster-role"), remoteRole), ServiceAccount: pod.ServiceAccountName,
		Consumes:      argument("vk-options-default-template") != "",
		HoldsToQuotas: argument("enable-resource-enforcement") == "true" && argument("enable-scheduling-webhook") == "true",
	}
}
