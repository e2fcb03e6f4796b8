// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/hack"
	"github.com/refract-project/refract/test/support/nodelab"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// Names of the consumer's nodes. The control plane runs on the plain node, too.
const (
	plainNode   = "rome-node-1"
	virtualNode = "milan"
)

// installCommand installs Refract, with gateways between the clusters.
const installCommand = "refractctl install --registry=registry.example.com/refract --network=gateway"

// runLabel is a label that the suite sets on each namespace that it creates.
const runLabel = "e2e-run"

// untaintPolicy is an admission policy that removes the taint from virtual nodes even if a virtual kubelet writes it
// again. The suite needs a node without taints.
//
//go:embed untaint.yaml
var untaintPolicy []byte

// lab consists of two joined clusters. The consumer has a plain node and a virtual node.
type lab struct {
	*nodelab.Lab
	client client.WithWatch
	// suite and kubectl are the paths of binaries. kubeconfig is the path of the consumer's kubeconfig.
	suite, kubectl, kubeconfig string
}

// command returns a command that runs in the administrator's network. It does not use a shell, so that signals reach
// the program directly.
func (l *lab) command(path string, args ...string) *exec.Cmd {
	return l.Rome.Machines()[0].NetworkCommand(path, args...)
}

// startLab starts two clusters with the same address ranges, pushes the images of the suite, installs Refract in both clusters, and
// joins them. Offloaded pods use the names and cluster IPs of the consumer. The caller must stop the lab.
func startLab(ctx context.Context, logf func(string, ...any)) (_ *lab, err error) {
	programs, err := hack.ToolDir("kubernetes")
	if err != nil {
		return nil, err
	}
	kubectl, err := tools.Kubectl()
	if err != nil {
		return nil, err
	}
	l := &lab{suite: filepath.Join(programs, "e2e.test"), kubectl: kubectl}
	if err := checkImages(ctx, l.suite); err != nil {
		return nil, err
	}
	if l.Lab, err = nodelab.Start(ctx, nodelab.Options{Log: logf, Apart: true}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = l.Stop()
		}
	}()
	if err := pushImages(ctx, l.Registry, programs); err != nil {
		return nil, err
	}
	l.kubeconfig = l.Path("consumer.conf")
	// On the plain node, tests may run privileged containers and tolerate any taint. The virtual node must allow the same.
	installMilan := installCommand + " --context=milan --cluster-id=milan --set=tenants.podSecurity=privileged --set=tenants.externalNames=true" +
		" --set='tenants.tolerations={*}'"
	for _, line := range []string{
		"kubectl --context=rome config view --raw --minify --flatten > " + l.kubeconfig,
		installCommand + " --context=rome --cluster-id=rome",
		installMilan,
		"refractctl peer --context=rome --remote-context=milan --cpu=2 --memory=8Gi --gw-server-service-type=NodePort" +
			" --pod-cidrs=10.244.0.0/16 --remote-pod-cidrs=10.244.0.0/16",
		// Resolvers need the tenant namespace of the consumer.
		installMilan + " --set=homeNames.addresses=true --set='homeNames.consumers[0].clusterID=rome'",
	} {
		logf("$ %s", line)
		if _, err := l.Run(line); err != nil {
			return nil, err
		}
	}
	return l, l.connect()
}

// connect creates the client of the consumer.
func (l *lab) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", l.Rome.Kubeconfig())
	if err != nil {
		return err
	}
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		return err
	}
	if err := offloading.AddToScheme(kinds); err != nil {
		return err
	}
	l.client, err = client.NewWithWatch(config, client.Options{Scheme: kinds})
	return err
}

// steer makes the virtual node the only node where the suite's pods can run. Otherwise they would run on the plain
// node, because the virtual node has a taint.
func (l *lab) steer(ctx context.Context) error {
	if err := os.WriteFile(l.Path("untaint.yaml"), untaintPolicy, 0o600); err != nil {
		return err
	}
	for _, line := range []string{
		"kubectl apply --filename=" + l.Path("untaint.yaml"),
		"kubectl taint node " + plainNode + " conformance=other:NoSchedule",
	} {
		if _, err := l.Run(line); err != nil {
			return err
		}
	}
	return l.awaitUntainted(ctx)
}

// awaitUntainted updates the virtual node until the policy has removed its taint.
func (l *lab) awaitUntainted(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the policy that removes the taint of the virtual node has no effect"))
	defer cancel()
	for i := 0; ; i++ {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: virtualNode}}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"conformance":"%d"}}}`, i)
		err := l.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(patch)))
		if err == nil && len(node.Spec.Taints) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// offloadNamespaces offloads each namespace that the suite creates, until ctx is done.
func (l *lab) offloadNamespaces(ctx context.Context, logf func(string, ...any)) {
	for ctx.Err() == nil {
		if err := l.watchNamespaces(ctx); err != nil && ctx.Err() == nil {
			logf("offloading the namespaces of the suite: %v", err)
			time.Sleep(100 * time.Millisecond) // delay before the watch is restarted
		}
	}
}

// watchNamespaces offloads new namespaces until the watch ends.
func (l *lab) watchNamespaces(ctx context.Context) error {
	watcher, err := l.client.Watch(ctx, &corev1.NamespaceList{}, client.HasLabels{runLabel})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		namespace, ok := event.Object.(*corev1.Namespace)
		if !ok || namespace.DeletionTimestamp != nil || event.Type == "DELETED" {
			continue
		}
		err := l.client.Create(ctx, &offloading.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: offloading.NamespaceOffloadingName},
			Spec: offloading.NamespaceOffloadingSpec{
				NamespaceMappingStrategy: offloading.EnforceSameNameMappingStrategyType, PodOffloadingStrategy: offloading.RemotePodOffloadingStrategyType,
			},
		})
		// If the namespace is being deleted, the request is forbidden.
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
			return err
		}
	}
	return nil
}
