// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/internal/nodelab"
)

// Two clusters without a network between their pods, which even have the same addresses: pods run, with their logs, and find the Services
// of their own cluster. The consumer's images of Refract are private.
func TestRealNodesApart(t *testing.T) {
	w := begin(t, nodelab.Options{Apart: true})
	defer w.explain()
	w.run("kubectl create namespace liqo")
	w.run("kubectl --namespace=liqo create secret docker-registry registry " + privateRegistry)
	w.run("refractctl install --cluster-id=rome --registry=registry.example.com/private/refract --set=common.imagePullSecrets[0].name=registry")
	w.run("refractctl install --cluster-id=milan --registry=registry.example.com/refract --context=milan")
	_, err := w.lab.Run("refractctl peer --remote-context=milan")
	require.ErrorContains(t, err, "the pod ranges overlap")
	w.run("refractctl peer --remote-context=milan --network=none")
	image := strings.Replace(w.run("kubectl --namespace=liqo get deployment refract-controller-manager --output=jsonpath={..image}"), "private/", "", 1)
	require.NotContains(t, w.run("refractctl test --image="+image), "Error")
	w.run("kubectl create namespace shop")
	w.run("refractctl offload namespace shop --pod-offloading-strategy=Remote")
	w.run("kubectl --namespace=shop create deployment web --image=registry.example.com/web --replicas=2")
	w.run("kubectl --namespace=shop expose deployment web --port=8080")
	w.run("kubectl --namespace=shop rollout status deployment/web --timeout=5m")
	w.verify([]check{
		{"pods show no address, because it would lead elsewhere", `kubectl --namespace=shop get pods --output=jsonpath="{.items[*].spec.nodeName} {.items[*].status.podIP}."`, `^milan milan \.$`},
		{"logs", `kubectl --namespace=shop logs deployment/web`, `serving on :8080`},
		{"a Service of the pods there", `kubectl --namespace=shop exec deployment/web -- workload get http://web.shop-rome.svc.cluster.local:8080/`, `pod=web-`},
	})
	w.run("refractctl unoffload namespace shop")
	w.run("refractctl unpeer --remote-context=milan")
}
