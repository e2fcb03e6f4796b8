// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refract-project/refract/test/support/lab"
)

func (s *story) compare(ctx context.Context) error {
	offloaded, err := s.pods(ctx, s.lab.Consumer, namespace, lab.NodeName)
	if err != nil {
		return err
	}
	if len(offloaded) == 0 {
		return fmt.Errorf("no pod is on the virtual node")
	}
	local := &offloaded[0]
	remote, err := s.lab.Provider.Client.CoreV1().Pods(remoteNamespace).Get(ctx, local.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	table, err := differences(local, remote)
	if err != nil {
		return err
	}
	s.text(table)
	if local.Status.PodIP != remote.Status.PodIP {
		return fmt.Errorf("pod %s has the address %q in the home cluster and %q in the cloud", local.Name, local.Status.PodIP, remote.Status.PodIP)
	}
	s.holds("status came back: %s, address %s", local.Status.Phase, local.Status.PodIP)
	out, err := s.lab.Kubectl(ctx, "--context=home", "logs", "-n", namespace, local.Name, "--tail=1")
	if err != nil {
		return err
	}
	s.shell("kubectl --context=home logs -n "+namespace+" "+local.Name+" --tail=1", out)
	return nil
}

// differences returns a table of the fields in metadata and spec that differ between two pods.
func differences(local, remote *corev1.Pod) (string, error) {
	home, err := flatten(local)
	if err != nil {
		return "", err
	}
	cloud, err := flatten(remote)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "FIELD OF POD %s\tHOME\tCLOUD\n", local.Name)
	all := map[string]string{}
	maps.Copy(all, home)
	maps.Copy(all, cloud)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if home[path] != cloud[path] {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", path, shorten(home[path]), shorten(cloud[path]))
		}
	}
	err = w.Flush()
	return b.String(), err
}

// flatten returns a pod's labels, annotations and fields of the spec, by path.
func flatten(pod *corev1.Pod) (map[string]string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{"metadata.namespace": pod.Namespace}
	for key, value := range pod.Labels {
		fields["label "+key] = value
	}
	for key, value := range pod.Annotations {
		fields["annotation "+key] = value
	}
	spec, _ := content["spec"].(map[string]any)
	for key, value := range spec {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fields["spec."+key] = strings.Trim(string(text), `"`)
	}
	return fields, nil
}

func shorten(text string) string {
	const most = 34
	if text == "" {
		return "–"
	}
	if len(text) > most {
		return text[:most-1] + "…"
	}
	return text
}

func (s *story) endpoints(ctx context.Context) error {
	err := s.during("the Service web has four ready endpoints in both clusters", func() error {
		return s.lab.Wait(ctx, "endpoints", func(ctx context.Context) (string, error) {
			home, err := readyEndpoints(ctx, s.lab.Consumer, namespace)
			if err != nil {
				return "", err
			}
			cloud, err := readyEndpoints(ctx, s.lab.Provider, remoteNamespace)
			if err != nil {
				return "", err
			}
			if len(home) == 4 && slices.Equal(home, cloud) {
				return "", nil
			}
			return fmt.Sprintf("home has %v, the cloud has %v", home, cloud), nil
		})
	})
	if err != nil {
		return err
	}
	columns := "-o=custom-columns=NAME:.metadata.name,MANAGED-BY:.metadata.labels.endpointslice\\.kubernetes\\.io/managed-by,NODES:.endpoints[*].nodeName,ADDRESSES:.endpoints[*].addresses[0]"
	if err := s.kubectl(ctx, "--context=home", "get", "endpointslices", "-n", namespace, "-l", discoveryv1.LabelServiceName+"=web", columns); err != nil {
		return err
	}
	return s.kubectl(ctx, "--context=cloud", "get", "endpointslices", "-n", remoteNamespace, "-l", discoveryv1.LabelServiceName+"=web", columns)
}

// readyEndpoints returns the sorted addresses of the ready endpoints of the Service web.
func readyEndpoints(ctx context.Context, side *lab.Side, namespace string) ([]string, error) {
	slicesOfWeb, err := side.Client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, slice := range slicesOfWeb.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				addresses = append(addresses, endpoint.Addresses...)
			}
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}
