// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies installs the ValidatingAdmissionPolicies of the chart in the control plane of a test.
//
// Controllers and virtual kubelets are tested with these policies, because a policy could deny a necessary write of a
// controller. Separate tests of the policies and of the controllers would not detect this.
package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// ReleaseName is the name of the release whose policies are installed.
const ReleaseName = "refract"

// ManagerAccount is the name of the controller manager's ServiceAccount in the namespace of the release.
const ManagerAccount = ReleaseName + "-controller-manager"

// ManagerUser returns the user name of the controller manager whose release is in the given namespace.
func ManagerUser(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + ManagerAccount
}

// inForceTimeout limits how long the API server may take to enforce new policies. It needs some seconds to compile
// them.
const inForceTimeout = time.Minute

// Options configure the policies.
type Options struct {
	// Namespace is the namespace of the release.
	Namespace string
	// ClusterID is the ID of the cluster.
	ClusterID string
	// ExemptAdministrators exempts the group system:masters, so that the administrator in a test can create objects
	// that the policies would deny.
	ExemptAdministrators bool
}

// Install creates every ValidatingAdmissionPolicy of the chart, with all optional parts enabled, and waits until the API
// server enforces them.
func Install(ctx context.Context, config *rest.Config, options Options) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	policies, bindings, err := render(options)
	if err != nil {
		return err
	}
	// The API server compiles all policies that it knows together, so when it enforces the last one, it enforces all
	// of them.
	policies, bindings = append(policies, sentinel()), append(bindings, bindingOf(sentinelName))
	for _, policy := range policies {
		if _, err := clients.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating policy %s, %w", policy.Name, err)
		}
	}
	for _, binding := range bindings {
		if _, err := clients.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the binding of policy %s, %w", binding.Name, err)
		}
	}
	return awaitSentinel(ctx, clients)
}

func render(options Options) (policies []*admissionv1.ValidatingAdmissionPolicy, bindings []*admissionv1.ValidatingAdmissionPolicyBinding, err error) {
	objects, err := release.Render(ReleaseName, options.Namespace, allEnabled(options.ClusterID))
	if err != nil {
		return nil, nil, err
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "ValidatingAdmissionPolicy":
			policy := &admissionv1.ValidatingAdmissionPolicy{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, policy, true)
			if options.ExemptAdministrators {
				policy.Spec.MatchConditions = append(policy.Spec.MatchConditions, admissionv1.MatchCondition{
					Name: "not-the-administrator-of-the-test", Expression: "!('system:masters' in request.userInfo.groups)",
				})
			}
			policies = append(policies, policy)
		case "ValidatingAdmissionPolicyBinding":
			binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, binding, true)
			bindings = append(bindings, binding)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("decoding %s %s, %w", object.GetKind(), object.GetName(), err)
		}
	}
	if len(policies) == 0 {
		return nil, nil, errors.New("the chart has no policies")
	}
	return policies, bindings, nil
}

// allEnabled returns values of the chart that enable every policy.
func allEnabled(clusterID string) map[string]any {
	return map[string]any{
		"discovery":      map[string]any{"config": map[string]any{"clusterID": clusterID}},
		"authentication": map[string]any{"enabled": true, "joinProviders": true},
		"tenants":        map[string]any{"unlimitedResources": true},
		"plugins":        map[string]any{"enabled": true},
		"offloading":     map[string]any{"createServiceAccounts": true},
		"networking": map[string]any{
			"addresses": map[string]any{"enabled": true},
			"gateways":  map[string]any{"enabled": true, "image": map[string]any{"name": "gateway"}},
		},
		"virtualKubelet":    map[string]any{"image": map[string]any{"name": "virtual-kubelet"}},
		"controllerManager": map[string]any{"image": map[string]any{"name": "controller-manager"}, "config": map[string]any{"enableNodeFailureController": true}},
	}
}

const sentinelName = "zz-policies-are-in-force"

// sentinel returns a policy that denies the creation of one ConfigMap. When the creation is denied, the policies are
// enforced.
func sentinel() *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: sentinelName},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{sentinelName},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false"}},
		},
	}
}

func bindingOf(policy string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
}

func awaitSentinel(ctx context.Context, clients kubernetes.Interface) error {
	ctx, cancel := context.WithTimeoutCause(ctx, inForceTimeout, errors.New("the API server does not enforce the policies"))
	defer cancel()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: sentinelName}}
	for {
		_, err := clients.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case admission.DenyingPolicy(err) == sentinelName:
			return nil
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("waiting for the policies, %w", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
