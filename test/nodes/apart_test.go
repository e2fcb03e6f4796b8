// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/page"
	"github.com/refract-project/refract/test/support/nodelab"
)

// TestRealNodesApart tests two clusters that use the same address ranges and have no network between their pods.
// Offloaded pods run, their logs can be read, and they reach the Services of their own cluster. The consumer pulls
// Refract's images from a private registry. The clusters are joined with an invitation, as in the documentation.
func TestRealNodesApart(t *testing.T) {
	w := begin(t, nodelab.Options{Apart: true})
	defer w.explain()
	w.run("kubectl create namespace liqo")
	w.run("kubectl --namespace=liqo create secret docker-registry registry " + privateRegistry)
	w.run("refractctl install --cluster-id=rome --registry=registry.example.com/private/refract --set=common.imagePullSecrets[0].name=registry")
	w.run("refractctl install --cluster-id=milan --registry=registry.example.com/refract --context=milan")
	w.lab.WorkDir = w.lab.Path("") // the documented commands write the invitation to a file in this folder
	variants, err := page.Variants("../../docs/joining.md")
	require.NoError(t, err)
	invited := slices.IndexFunc(variants, func(line string) bool { return strings.HasPrefix(line, "refractctl generate peering-user rome") })
	require.GreaterOrEqual(t, invited, 0)
	require.Greater(t, len(variants), invited+1)
	invite, join := variants[invited], variants[invited+1]
	require.Contains(t, join, "refractctl peer --context=rome --remote-kubeconfig=")
	w.run(invite)
	_, err = w.lab.Run(join)
	require.ErrorContains(t, err, "the pod ranges overlap")
	w.run(join + " --network=none")
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
	w.run(strings.Replace(join, "refractctl peer", "refractctl unpeer", 1))
	w.run("refractctl delete peering-user rome --context=milan")
	w.verify([]check{{"nothing of rome is left in milan", `kubectl --context=milan get namespaces --output=name`, `^(namespace/(default|kube-\S+|liqo)\n)+$`}})
}

// TestRealNodesByGateways joins two clusters that use the same address ranges through gateways. Pods of both reach each other by
// translated addresses, also after the keys were replaced. The images of rome come from a private registry.
func TestRealNodesByGateways(t *testing.T) {
	w := begin(t, nodelab.Options{Apart: true})
	defer w.explain()
	w.run("kubectl create namespace liqo")
	w.run("kubectl --namespace=liqo create secret docker-registry registry " + privateRegistry)
	begun := time.Now()
	const install = "refractctl install --network=gateway --set=networking.gateways.keyRotationInterval=1m --cluster-id="
	w.run(install + "rome --registry=registry.example.com/private/refract --set=common.imagePullSecrets[0].name=registry")
	w.run(install + "milan --registry=registry.example.com/refract --context=milan")
	const ranges = " --pod-cidrs=10.244.0.0/16 --remote-pod-cidrs=10.244.0.0/16"
	w.run("refractctl peer --remote-context=milan --cpu=2 --memory=4Gi --network=gateway --gw-server-service-type=NodePort --timeout=5m" + ranges)
	w.run("kubectl create namespace shop")
	w.run("refractctl offload namespace shop --pod-offloading-strategy=Remote")
	w.run("kubectl --namespace=shop create deployment web --image=registry.example.com/web --replicas=2")
	w.run("kubectl --namespace=shop expose deployment web --port=8080")
	w.run("kubectl --namespace=default run visitor --image=registry.example.com/web -- pause")
	w.run("kubectl --namespace=default wait pod visitor --for=condition=Ready --timeout=5m")
	w.run("kubectl --namespace=shop rollout status deployment/web --timeout=5m")
	page := check{"a page of a pod in milan, by a Service in rome", `kubectl --namespace=default exec visitor -- workload get http://web.shop.svc.cluster.local:8080/`, `pod=web-`}
	w.verify([]check{page})
	w.Logf("from two clusters with nothing installed to a page of a pod in the other one: %.0f s", time.Since(begun).Seconds())
	w.verify([]check{{"pods have translated addresses", `kubectl --namespace=shop get pods --output=jsonpath="{.items[*].spec.nodeName} {.items[*].status.podIP}."`,
		`^milan milan 10\.(\d|[1-9]\d|1\d\d|2[0-35-9]\d|24[0-35-9])\.\S+ 10\.\S+\.$`}})
	w.run("refractctl network status")
	image := strings.Replace(w.run("kubectl --namespace=liqo get deployment refract-controller-manager --output=jsonpath={..image}"), "private/", "", 1)
	require.NotContains(t, w.run("refractctl network test --image="+image), "Error")
	// The kubelets mount the next keys within a minute or two.
	const changed = `--all --timeout=8m --for=jsonpath="{.status.secretRef.name}"=gw-`
	w.run(`kubectl --namespace=liqo-tenant-milan wait gatewayclient ` + changed + `milan-alternate`)
	w.run(`kubectl --context=milan --namespace=liqo-tenant-rome wait gatewayserver ` + changed + `rome-alternate`)
	w.verify([]check{page, {"the replaced key is accepted for a while",
		`kubectl --namespace=liqo-tenant-milan get publickeies --output=yaml`,
		`plugins.refract.io/other-public-key: \S+,\S+`}})
	w.run("refractctl network rotate --remote-context=milan --timeout=5m")
	w.verify([]check{page})
	w.run("refractctl doctor")
	w.run("refractctl unoffload namespace shop")
	w.run("refractctl unpeer --remote-context=milan")
	w.verify([]check{{"no ranges are left", `kubectl get networks.ipam.liqo.io,configurations.networking.liqo.io --all-namespaces --output=name`, `^$`}})
}
