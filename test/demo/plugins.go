// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/test/support/lab"
)

// vendor is the prefix of the annotations that the example plugin removes.
const vendor = "cloud.google.com/"

func (s *story) dropPlugin(ctx context.Context) error {
	before, err := s.vendorAnnotations(ctx)
	if err != nil {
		return err
	}
	if len(before) == 0 {
		return fmt.Errorf("the reflected Services carry no annotation below %s: there is nothing to show", vendor)
	}
	s.note("Services in the cloud carry %s", strings.Join(before, ", "))
	if s.plugin, err = s.lab.ReadModule("examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm"); err != nil {
		return err
	}
	pid := s.lab.Kubelet().Pid()
	s.shell("cp examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm <plugin-dir>/", "")
	err = s.during(fmt.Sprintf("a module of %d KiB is in force, Services are re-evaluated, the annotations are gone", len(s.plugin)>>10), func() error {
		if err := os.WriteFile(s.pluginPath(), s.plugin, 0o644); err != nil {
			return err
		}
		return s.awaitStripped(ctx)
	})
	if err != nil {
		return err
	}
	kept, err := s.annotation(ctx, "web", "shop.example/owner")
	if err != nil {
		return err
	}
	if kept == "" || s.lab.Kubelet().Pid() != pid || s.lab.Kubelet().Failure() != nil {
		return fmt.Errorf("more than the vendor's annotations changed: the owner annotation is %q", kept)
	}
	s.holds("the virtual kubelet is the same process (pid %d), other annotations are untouched", pid)
	return nil
}

func (s *story) breakPlugin(ctx context.Context) error {
	if err := os.WriteFile(s.pluginPath(), append(slices.Clone(s.plugin[:1000]), "rubbish"...), 0o644); err != nil {
		return err
	}
	var message string
	err := s.during("the virtual kubelet reports the broken file as an Event of its VirtualNode", func() error {
		return s.lab.Wait(ctx, "the Event", func(ctx context.Context) (missing string, err error) {
			message, err = s.pluginEvent(ctx)
			if message == "" {
				missing = "there is no Warning about a plugin yet"
			}
			return missing, err
		})
	})
	if err != nil {
		return err
	}
	s.text(message)
	patch := []byte(`{"metadata":{"annotations":{"` + vendor + `new":"one","shop.example/edited":"yes"}}}`)
	if _, err := s.lab.Consumer.Client.CoreV1().Services(namespace).Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	return s.during("a Service that changes now is still mutated by the last good module", func() error {
		return s.lab.Wait(ctx, "the change to arrive", func(ctx context.Context) (string, error) {
			edited, err := s.annotation(ctx, "web", "shop.example/edited")
			if err != nil || edited == "" {
				return "the change is not in the cloud yet", err
			}
			left, err := s.vendorAnnotations(ctx)
			if len(left) > 0 {
				return "", fmt.Errorf("the cloud has %s", strings.Join(left, ", "))
			}
			return "", err
		})
	})
}

func (s *story) pluginPath() string {
	return filepath.Join(s.lab.PluginDir, "strip-vendor-labels.wasm")
}

func (s *story) awaitStripped(ctx context.Context) error {
	return s.lab.Wait(ctx, "the vendor's annotations to go", func(ctx context.Context) (string, error) {
		left, err := s.vendorAnnotations(ctx)
		if len(left) > 0 {
			return "still there: " + strings.Join(left, ", "), err
		}
		return "", err
	})
}

// vendorAnnotations lists the annotations of reflected Services that have the vendor's prefix, as "SERVICE: ANNOTATION".
func (s *story) vendorAnnotations(ctx context.Context) ([]string, error) {
	services, err := s.lab.Provider.Client.CoreV1().Services(remoteNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, service := range services.Items {
		for key := range service.Annotations {
			if strings.HasPrefix(key, vendor) {
				found = append(found, service.Name+": "+key)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

func (s *story) annotation(ctx context.Context, service, key string) (string, error) {
	found, err := s.lab.Provider.Client.CoreV1().Services(remoteNamespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return found.Annotations[key], nil
}

// pluginEvent returns the message of the Warning Event about a plugin on the VirtualNode. It returns "" if there is no
// such Event.
func (s *story) pluginEvent(ctx context.Context) (string, error) {
	events, err := s.lab.Consumer.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=VirtualNode,involvedObject.name=" + lab.NodeName})
	if err != nil {
		return "", err
	}
	for _, event := range events.Items {
		if event.Type == corev1.EventTypeWarning && strings.Contains(event.Message, "strip-vendor-labels") {
			return fmt.Sprintf("%s  %s  %s", event.Type, event.Reason, event.Message), nil
		}
	}
	return "", nil
}

// settle waits until Refract's processes have written nothing for the duration quiet, so that later writes can be
// counted separately.
func (s *story) settle(ctx context.Context, quiet time.Duration) error {
	since := time.Now()
	return s.lab.Wait(ctx, "our processes to have nothing more to do", func(context.Context) (string, error) {
		news, err := s.collect()
		if err != nil {
			return "", err
		}
		if news > 0 {
			since = time.Now()
		}
		if time.Since(since) < quiet {
			return "they still write", nil
		}
		return "", nil
	})
}
