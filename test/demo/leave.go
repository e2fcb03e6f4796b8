// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

func (s *story) leave(ctx context.Context) error {
	var out string
	err := s.during("refractctl delete virtualnode "+lab.NodeName, func() (err error) {
		out, err = s.lab.Refractctl(ctx, "delete", "virtualnode", lab.NodeName, "--context", lab.ConsumerID)
		return err
	})
	if err != nil {
		return err
	}
	s.text(out)
	err = s.during("all five pods are Ready in the home cluster, on nodes of its own", func() error {
		return s.lab.Wait(ctx, "the application's pods", func(ctx context.Context) (string, error) {
			pods, err := s.pods(ctx, s.lab.Consumer, namespace, "")
			if err != nil {
				return "", err
			}
			ready := 0
			for i := range pods {
				if isReady(&pods[i]) && pods[i].Spec.NodeName != lab.NodeName {
					ready++
				}
			}
			if ready != 5 || len(pods) != 5 {
				return fmt.Sprintf("%d of %d pods are", ready, len(pods)), nil
			}
			return "", nil
		})
	})
	if err != nil {
		return err
	}
	left, err := s.leftInTheCloud(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("left in the cloud: %q", left)
	}
	s.holds("the cloud has no namespace, ShadowPod or Secret of the home cluster any more")
	return s.kubectl(ctx, "--context=home", "get", "nodes")
}

// leftInTheCloud lists the consumer's objects that are still on the provider.
func (s *story) leftInTheCloud(ctx context.Context) (left []string, err error) {
	namespaces, err := s.lab.Provider.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{
		LabelSelector: wire.RemoteClusterIDLabel + "=" + lab.ConsumerID + "," + "!" + wire.TenantNamespaceLabel})
	if err != nil {
		return nil, err
	}
	for i := range namespaces.Items {
		left = append(left, "namespace "+namespaces.Items[i].Name)
	}
	reflected := metav1.ListOptions{LabelSelector: labels.Set{wire.OriginLabel: lab.ConsumerID}.String()}
	shadows, err := s.lab.Provider.Dynamic.Resource(offloading.GroupVersion.WithResource("shadowpods")).List(ctx, reflected)
	if err != nil {
		return nil, err
	}
	for i := range shadows.Items {
		left = append(left, "ShadowPod "+shadows.Items[i].GetName())
	}
	secrets, err := s.lab.Provider.Client.CoreV1().Secrets("").List(ctx, reflected)
	if err != nil {
		return nil, err
	}
	for i := range secrets.Items {
		left = append(left, "Secret "+secrets.Items[i].Name)
	}
	return left, nil
}
