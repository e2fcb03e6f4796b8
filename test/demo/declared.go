// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/test/support/lab"
)

// The names of the declared plugin, of the namespace whose ConfigMaps are used for its rehearsal, and of the label that
// the plugin removes.
const (
	declaredPlugin = "no-internal-labels"
	warehouse      = "warehouse"
	internalLabel  = "internal.shop.example/shelf"
	// shelves is the number of ConfigMaps. It is larger than 20, because a revision can be rolled back only after 20
	// evaluations.
	shelves = 25
)

var reflectionPlugins = plugins.GroupVersion.WithResource("reflectionplugins")

// declarePlugin declares a plugin that changes all ConfigMaps in a namespace. This exceeds the limits of its rollout,
// so the plugin must be approved.
func (s *story) declarePlugin(ctx context.Context) error {
	if err := s.fillWarehouse(ctx); err != nil {
		return err
	}
	module := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: declaredPlugin}, BinaryData: map[string][]byte{"plugin.wasm": s.plugin}}
	if _, err := s.lab.Consumer.Client.CoreV1().ConfigMaps(lab.SystemNamespace).Create(ctx, module, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := s.apply(ctx, lab.ConsumerID, "plugin.yaml"); err != nil {
		return err
	}
	if err := s.during("it is fetched, accepted and rehearsed, and waits for an approval", func() error { return s.awaitRehearsed(ctx, "WaitingForApproval") }); err != nil {
		return err
	}
	if err := s.refractctl(ctx, "plugin", "status", declaredPlugin); err != nil {
		return err
	}
	labelled, err := s.labelledShelves(ctx)
	if err != nil {
		return err
	}
	if labelled < shelves {
		return fmt.Errorf("the rehearsal has changed the cloud: %d of %d ConfigMaps have the label", labelled, shelves)
	}
	s.holds("nothing has changed in the cloud yet")
	if err := s.refractctl(ctx, "plugin", "approve", declaredPlugin); err != nil {
		return err
	}
	return s.during(fmt.Sprintf("all %d ConfigMaps in the cloud are without the label", shelves), func() error { return s.awaitShelves(ctx) })
}

// rollBackPlugin approves a revision of the plugin that fails for every object, and waits until it is rolled back.
func (s *story) rollBackPlugin(ctx context.Context) error {
	good, err := s.declaredStatus(ctx, "activeRevision")
	if err != nil {
		return err
	}
	s.shell("kubectl patch reflectionplugin "+declaredPlugin+` --type=merge -p '{"spec":{"limits":{"handles":1}}}'`, "")
	patch := []byte(`{"spec":{"limits":{"handles":1}}}`)
	if _, err := s.lab.Consumer.Dynamic.Resource(reflectionPlugins).Patch(ctx, declaredPlugin, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	err = s.during("the rehearsal finds the failures", func() error {
		return s.lab.Wait(ctx, "the rehearsal of the next revision", func(ctx context.Context) (string, error) {
			candidate, err := s.declaredStatus(ctx, "candidateRevision")
			if err != nil || candidate == "" || candidate == good {
				return "there is no candidate yet", err
			}
			return s.missingRehearsal(ctx, "WaitingForApproval")
		})
	})
	if err != nil {
		return err
	}
	if err := s.refractctl(ctx, "plugin", "approve", declaredPlugin); err != nil {
		return err
	}
	err = s.during("approved nevertheless, it fails on objects and is rolled back", func() error {
		return s.lab.Wait(ctx, "the previous revision to be active again", func(ctx context.Context) (string, error) {
			active, err := s.declaredStatus(ctx, "activeRevision")
			if err != nil {
				return "", err
			}
			rejected, err := s.declaredStatus(ctx, "rejectedRevision")
			if err == nil && (rejected == "" || active != good) {
				return fmt.Sprintf("active is %s, rejected %q", active, rejected), nil
			}
			return "", err
		})
	})
	if err != nil {
		return err
	}
	if err := s.kubectl(ctx, "--context=home", "get", "reflectionplugins"); err != nil {
		return err
	}
	if _, err := s.lab.Consumer.Client.CoreV1().ConfigMaps(warehouse).Create(ctx, shelf(shelves+1), metav1.CreateOptions{}); err != nil {
		return err
	}
	return s.during("nothing is lost, and a new ConfigMap arrives without the label", func() error { return s.awaitShelves(ctx) })
}

// fillWarehouse offloads a namespace with ConfigMaps, and waits until their copies are in the cloud cluster.
func (s *story) fillWarehouse(ctx context.Context) error {
	_, err := s.lab.Consumer.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: warehouse}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := s.lab.Refractctl(ctx, "offload", "namespace", warehouse, "--context", lab.ConsumerID); err != nil {
		return err
	}
	for n := range shelves {
		if _, err := s.lab.Consumer.Client.CoreV1().ConfigMaps(warehouse).Create(ctx, shelf(n+1), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return s.during(fmt.Sprintf("the namespace %s has %d ConfigMaps with the label %s, in the cloud, too", warehouse, shelves, internalLabel), func() error {
		return s.lab.Wait(ctx, "the ConfigMaps", func(ctx context.Context) (string, error) {
			labelled, err := s.labelledShelves(ctx)
			if err == nil && labelled < shelves {
				return fmt.Sprintf("%d of %d are there", labelled, shelves), nil
			}
			return "", err
		})
	})
}

func shelf(n int) *corev1.ConfigMap {
	name := fmt.Sprintf("shelf-%02d", n)
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{internalLabel: name, "app": warehouse}}}
}

// copiedShelves returns the copies of the ConfigMaps in the cloud cluster.
func (s *story) copiedShelves(ctx context.Context) ([]corev1.ConfigMap, error) {
	list, err := s.lab.Provider.Client.CoreV1().ConfigMaps(warehouse+"-"+lab.ConsumerID).List(ctx, metav1.ListOptions{LabelSelector: "app=" + warehouse})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// labelledShelves returns the number of copies that have the label.
func (s *story) labelledShelves(ctx context.Context) (labelled int, err error) {
	copied, err := s.copiedShelves(ctx)
	for i := range copied {
		if copied[i].Labels[internalLabel] != "" {
			labelled++
		}
	}
	return labelled, err
}

// awaitShelves waits until each ConfigMap has a copy without the label.
func (s *story) awaitShelves(ctx context.Context) error {
	local, err := s.lab.Consumer.Client.CoreV1().ConfigMaps(warehouse).List(ctx, metav1.ListOptions{LabelSelector: "app=" + warehouse})
	if err != nil {
		return err
	}
	return s.lab.Wait(ctx, "the label to go", func(ctx context.Context) (string, error) {
		copied, err := s.copiedShelves(ctx)
		if err != nil {
			return "", err
		}
		labelled, err := s.labelledShelves(ctx)
		if err == nil && (labelled > 0 || len(copied) != len(local.Items)) {
			return fmt.Sprintf("%d of %d have the label, of %d", labelled, len(copied), len(local.Items)), nil
		}
		return "", err
	})
}

// awaitRehearsed waits until the plugin's condition Rehearsed has the given reason.
func (s *story) awaitRehearsed(ctx context.Context, reason string) error {
	return s.lab.Wait(ctx, "the rehearsal", func(ctx context.Context) (string, error) { return s.missingRehearsal(ctx, reason) })
}

// missingRehearsal returns "" if the plugin's condition Rehearsed has the given reason, and otherwise a description of
// all its conditions.
func (s *story) missingRehearsal(ctx context.Context, reason string) (missing string, err error) {
	plugin, err := s.lab.Consumer.Dynamic.Resource(reflectionPlugins).Get(ctx, declaredPlugin, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	conditions, _, _ := unstructured.NestedSlice(plugin.Object, "status", "conditions")
	all := make([]string, 0, len(conditions))
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == plugins.RehearsedCondition && condition["reason"] == reason {
			return "", nil
		}
		all = append(all, fmt.Sprintf("%v: %v, %v", condition["type"], condition["reason"], condition["message"]))
	}
	return "its conditions are: " + strings.Join(all, "; "), nil
}

// declaredStatus returns a field in the status of the plugin.
func (s *story) declaredStatus(ctx context.Context, field string) (string, error) {
	plugin, err := s.lab.Consumer.Dynamic.Resource(reflectionPlugins).Get(ctx, declaredPlugin, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	value, _, _ := unstructured.NestedString(plugin.Object, "status", field)
	return value, nil
}

// refractctl runs refractctl for the consumer, and shows the command and its output.
func (s *story) refractctl(ctx context.Context, args ...string) error {
	out, err := s.lab.Refractctl(ctx, append(args, "--context", lab.ConsumerID)...)
	s.shell("refractctl "+strings.Join(args, " "), out)
	return err
}
