// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// namespace is the offloaded namespace. Its name on the provider is remoteNamespace.
const namespace, remoteNamespace = "shop", "shop-" + lab.ConsumerID

func (s *story) bringUp(ctx context.Context) error {
	err := s.during("build the commands, start both clusters, install CRDs and roles", func() (err error) {
		s.lab, err = lab.Up(ctx, lab.Options{ConsumerNodes: 1, ProviderNodes: 2, APIServerSupport: true, DeclaredPlugins: true})
		return err
	})
	if err != nil {
		return err
	}
	for _, side := range []*lab.Side{s.lab.Consumer, s.lab.Provider} {
		version, err := side.Client.Discovery().ServerVersion()
		if err != nil {
			return err
		}
		memory, err := side.Memory()
		if err != nil {
			return err
		}
		s.note("%-5s %s at %s, %d MiB in %d processes", side.ID, version.GitVersion, side.Config().Host, memory>>20, len(side.Processes()))
	}
	return nil
}

func (s *story) join(ctx context.Context) error {
	if err := s.during("start the controller managers and the virtual kubelet, each with its own roles", func() error { return s.lab.StartAll(ctx) }); err != nil {
		return err
	}
	if err := s.during("the virtual node is Ready", func() error { return s.lab.AwaitNodeReady(ctx) }); err != nil {
		return err
	}
	return s.kubectl(ctx, "--context=home", "get", "nodes", "-L", wire.TypeLabel)
}

func (s *story) extend(ctx context.Context) error {
	_, err := s.lab.Consumer.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	var out string
	err = s.during("refractctl offload namespace "+namespace, func() (err error) {
		out, err = s.lab.Refractctl(ctx, "offload", "namespace", namespace, "--context", lab.ConsumerID)
		return err
	})
	if err != nil {
		return err
	}
	s.text(out)
	return s.kubectl(ctx, "--context=cloud", "get", "namespaces", "-l", wire.RemoteClusterIDLabel+"="+lab.ConsumerID, "-L", wire.RemoteClusterIDLabel)
}

func (s *story) offload(ctx context.Context) error {
	if err := s.apply(ctx, lab.ConsumerID, "shop.yaml"); err != nil {
		return err
	}
	if err := s.during("all five pods are Ready in the home cluster, two of them run in the cloud", func() error { return s.awaitPods(ctx) }); err != nil {
		return err
	}
	return s.kubectl(ctx, "--context=home", "get", "pods", "-n", namespace, "-o", "wide")
}

// awaitPods waits until the application is ready and its pods exist in both clusters.
func (s *story) awaitPods(ctx context.Context) error {
	return s.lab.Wait(ctx, "the application's pods", func(ctx context.Context) (string, error) {
		local, err := s.pods(ctx, s.lab.Consumer, namespace, "")
		if err != nil {
			return "", err
		}
		remote, err := s.pods(ctx, s.lab.Provider, remoteNamespace, "")
		if err != nil {
			return "", err
		}
		ready, offloaded := 0, 0
		for i := range local {
			if isReady(&local[i]) {
				ready++
			}
			if local[i].Spec.NodeName == lab.NodeName {
				offloaded++
			}
		}
		if ready == 5 && offloaded == 2 && len(remote) == 2 {
			return "", nil
		}
		return fmt.Sprintf("%d of 5 pods are Ready, %d of 2 are on the virtual node, %d of 2 run in the cloud", ready, offloaded, len(remote)), nil
	})
}

func (s *story) pods(ctx context.Context, side *lab.Side, namespace, node string) ([]corev1.Pod, error) {
	options := metav1.ListOptions{}
	if node != "" {
		options.FieldSelector = "spec.nodeName=" + node
	}
	list, err := side.Client.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// customColumns matches an argument that is omitted from the displayed command, because it is long and repeats the
// heading of the table.
var customColumns = regexp.MustCompile(`-o=custom-columns=\S+`)

// kubectl runs kubectl and shows the command and its output.
func (s *story) kubectl(ctx context.Context, args ...string) error {
	out, err := s.lab.Kubectl(ctx, args...)
	if err != nil {
		return err
	}
	s.shell("kubectl "+customColumns.ReplaceAllString(strings.Join(args, " "), "-o=custom-columns=…"), out)
	return nil
}
