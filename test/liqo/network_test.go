// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package liqo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/test/support/nodelab"
	"github.com/refract-project/refract/test/support/testenv"
)

// declareRanges declares the ranges of a cluster, as the documentation of the network describes.
const declareRanges = `kubectl --context=%s apply --filename=- <<'END'
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  {name: pod-cidr, namespace: liqo, labels: {ipam.liqo.io/network-type: pod-cidr, ipam.liqo.io/network-not-remapped: "true"}}
spec: {cidr: %s}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: external-cidr, namespace: liqo, labels: {ipam.liqo.io/network-type: external-cidr}}
spec: {cidr: 10.70.0.0/16, preAllocated: 1}
END`

// TestNetworkOfLiqoctl connects the pods of two clusters that run Refract with liqoctl alone. The clusters have the same ranges.
func TestNetworkOfLiqoctl(t *testing.T) {
	w := beginWith(t, nodelab.Options{Apart: true})
	defer w.explain()
	for _, cluster := range []*testenv.Cluster{w.lab.Rome, w.lab.Milan} {
		w.run("refractctl install --context=%[1]s --cluster-id=%[1]s --registry=registry.example.com/refract --network=gateway --skip-confirm", cluster.Name())
		w.run(declareRanges, cluster.Name(), cluster.PodCIDR())
	}
	const sides = "--context=rome --remote-context=milan --skip-confirm --timeout=2m"
	w.run("liqoctl network connect %s --gw-server-service-type=NodePort --wait", sides)
	for _, cluster := range []string{"rome", "milan"} {
		w.eventually("Connected", "kubectl --context=%s get connections.networking.liqo.io --all-namespaces --output=jsonpath='{.items[*].status.value}'", cluster)
		assert.Contains(t, w.run("refractctl network status --context=%s", cluster), "Connected")
		w.run("kubectl --context=%s create deployment web --image=registry.example.com/web:1", cluster)
		w.run("kubectl --context=%s rollout status deployment/web --timeout=2m", cluster)
	}
	for from, to := range map[string]string{"rome": "milan", "milan": "rome"} {
		seen := w.run("kubectl --context=%s --namespace=liqo-tenant-%[2]s get configurations.networking.liqo.io %[2]s --output=jsonpath='{.status.remote.cidr.pod[0]}'", from, to)
		own := w.run("kubectl --context=%s get pods --selector=app=web --output=jsonpath='{.items[0].status.podIP}'", to)
		address := strings.Join(strings.Split(seen, ".")[:2], ".") + "." + strings.Join(strings.Split(own, ".")[2:], ".")
		get := fmt.Sprintf("kubectl --context=%s exec deployment/web -- wget -qO- http://%s:8080", from, address)
		testenv.Eventually(t, func() error {
			_, err := w.try("%s", get)
			return err
		})
	}
	w.run("liqoctl network disconnect %s", sides)
	w.run("liqoctl network reset %s", sides)
	for _, cluster := range []string{"rome", "milan"} {
		w.eventually("", "kubectl --context=%s get gatewayservers,gatewayclients,connections,publickeies,configurations --all-namespaces --output=name", cluster)
		w.eventually("", "kubectl --context=%s --namespace=liqo get pods --selector=app.kubernetes.io/name=gateway --output=name", cluster)
	}
}
