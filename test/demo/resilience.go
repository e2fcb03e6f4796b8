// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/test/support/lab"
)

func (s *story) killKubelet(ctx context.Context) error {
	if err := s.remember(ctx); err != nil {
		return err
	}
	pid := s.lab.Kubelet().Pid()
	s.lab.KillKubelet()
	s.shell(fmt.Sprintf("kill -9 %d", pid), "")
	running, err := s.pods(ctx, s.lab.Provider, remoteNamespace, "")
	if err != nil {
		return err
	}
	if len(running) == 0 {
		return fmt.Errorf("no pod runs in %s", remoteNamespace)
	}
	victim := running[0]
	if err := s.kubectl(ctx, "--context=cloud", "delete", "pod", "-n", remoteNamespace, victim.Name, "--wait=false"); err != nil {
		return err
	}
	var again *corev1.Pod
	err = s.during("the pod is back in the cloud, without the home cluster", func() error {
		return s.lab.Wait(ctx, "the pod", func(ctx context.Context) (missing string, err error) {
			again, err = s.lab.Provider.Client.CoreV1().Pods(remoteNamespace).Get(ctx, victim.Name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return "it is gone", nil
			case err != nil:
				return "", err
			case again.UID == victim.UID:
				return "it is still the deleted one", nil
			case !isReady(again):
				return "it is back, but not Ready", nil
			}
			return "", nil
		})
	})
	if err != nil {
		return err
	}
	s.holds("pod %s was %s with uid %.8s…, is %s with uid %.8s…", victim.Name, victim.Status.Phase, victim.UID, again.Status.Phase, again.UID)
	return nil
}

func (s *story) returnKubelet(ctx context.Context) error {
	if _, err := s.collect(); err != nil {
		return err
	}
	from := len(s.writes.all)
	slicesBefore, err := s.sliceVersions(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := s.lab.StartKubelet(ctx); err != nil {
		return err
	}
	err = s.during("the virtual kubelet is back; home sees the pod's new restart count", func() error { return s.awaitRestartCount(ctx) })
	if err != nil {
		return err
	}
	if err := s.settle(ctx, 2*time.Second); err != nil {
		return err
	}
	slicesAfter, err := s.sliceVersions(ctx)
	if err != nil {
		return err
	}
	for _, write := range lab.Of(s.writes.all[from:], lab.RemoteUser) {
		if write.IsRoutine() {
			continue // this write is a heartbeat of the node
		}
		if write.Resource != "shadowendpointslices" || slicesBefore[write.Name] == slicesAfter[write.Name] {
			return fmt.Errorf("the restarted kubelet wrote to the provider although nothing had changed: %+v", write)
		}
		s.note("EndpointSlice %s of the home cluster changed with the pod's address, and so did its copy", write.Name)
	}
	s.holds("nothing else was written to the cloud in the %.0f s since its start", time.Since(begun).Seconds())
	return s.kubectl(ctx, "--context=home", "get", "pods", "-n", namespace, "-o", "wide", "--field-selector=spec.nodeName="+lab.NodeName)
}

// sliceVersions returns the resource versions of the EndpointSlices in the home cluster. If a new pod has another
// address, the EndpointSlice controller updates them. This does not count as a write of Refract.
func (s *story) sliceVersions(ctx context.Context) (map[string]string, error) {
	list, err := s.lab.Consumer.Client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, slice := range list.Items {
		versions[slice.Name] = slice.ResourceVersion
	}
	return versions, nil
}

func (s *story) awaitRestartCount(ctx context.Context) error {
	return s.lab.Wait(ctx, "the restart count", func(ctx context.Context) (string, error) {
		pods, err := s.pods(ctx, s.lab.Consumer, namespace, lab.NodeName)
		if err != nil {
			return "", err
		}
		for i := range pods {
			if statuses := pods[i].Status.ContainerStatuses; len(statuses) > 0 && statuses[0].RestartCount == 1 && isReady(&pods[i]) {
				return "", nil
			}
		}
		return "no pod on the virtual node has restarted once", nil
	})
}
