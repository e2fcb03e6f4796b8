// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package liqo

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPeerOfLiqoctl joins two clusters that run Refract with liqoctl, requests a second virtual node with each of the two
// tools, and ends the peering. Pods run on every virtual node.
func TestPeerOfLiqoctl(t *testing.T) {
	w := begin(t)
	defer w.explain()
	w.run("refractctl install --context=rome --cluster-id=rome --registry=registry.example.com/refract --set=authentication.joinProviders=true")
	w.run("refractctl install --context=milan --cluster-id=milan --registry=registry.example.com/refract --set=authentication.enabled=true,tenants.unlimitedResources=true")
	w.run("liqoctl peer --context=rome --remote-context=milan --networking-disabled --skip-confirm --timeout=2m")
	w.open()
	w.works("joined by liqoctl")
	assert.Contains(t, w.run("refractctl doctor --context=rome"), "milan")
	for _, command := range []string{"peer", "unpeer"} {
		_, err := w.try("refractctl %s --context=rome --remote-context=milan", command)
		assert.ErrorContains(t, err, "by Liqo's protocol", "refractctl would leave the access, or fight with the controllers")
	}

	w.run("liqoctl create resourceslice milan-2 --context=rome --remote-cluster-id=milan --cpu=1 --memory=1Gi --pods=10")
	w.awaitNode("milan-2")
	w.run("refractctl create resourceslice milan-3 --context=rome --remote-cluster-id=milan --cpu=1 --memory=1Gi --pods=10")
	w.awaitNode("milan-3")
	w.eventually("1 1Gi 10", "kubectl --context=rome get node milan-3 --output=jsonpath='{.status.allocatable.cpu} {.status.allocatable.memory} {.status.allocatable.pods}'")
	w.run("kubectl --namespace=shop create deployment extra --image=registry.example.com/web:1")
	w.run(`kubectl --namespace=shop patch deployment extra --patch='{"spec":{"template":{"spec":{"nodeName":"milan-3"}}}}'`)
	w.run("kubectl --namespace=shop rollout status deployment/extra --timeout=2m")
	w.run("kubectl --namespace=shop delete deployment extra")
	w.run("refractctl delete resourceslice milan-3 --context=rome")
	w.eventually("", "kubectl --context=milan --namespace=liqo-tenant-rome get resourceslices.authentication.liqo.io milan-3 --ignore-not-found")
	w.run("kubectl --context=rome --namespace=liqo-tenant-milan delete resourceslices.authentication.liqo.io milan-2 --timeout=2m")
	w.works("after the other virtual nodes are gone")

	w.run("liqoctl unoffload namespace shop --skip-confirm")
	// It removes the network last, whose CRDs are not installed.
	_, err := w.try("liqoctl unpeer --context=rome --remote-context=milan --skip-confirm --timeout=2m")
	assert.ErrorContains(t, err, "GatewayClient")
	w.eventually("", "kubectl --context=rome get virtualnodes,resourceslices.authentication.liqo.io,identities.authentication.liqo.io --all-namespaces --output=name")
	w.eventually("", "kubectl --context=milan get tenants,quotas,resourceslices.authentication.liqo.io --all-namespaces --output=name")
}

// TestExchangedManifests joins two clusters that run Refract with the manifests that each of the two tools prints.
func TestExchangedManifests(t *testing.T) {
	w := begin(t)
	defer w.explain()
	w.run("refractctl install --context=rome --cluster-id=rome --registry=registry.example.com/refract --set=authentication.joinProviders=true")
	w.run("refractctl install --context=milan --cluster-id=milan --registry=registry.example.com/refract --set=authentication.enabled=true,tenants.unlimitedResources=true")
	for _, tool := range []string{"refractctl", "liqoctl"} {
		w.run("%s create nonce --context=milan --remote-cluster-id=rome", tool)
		nonce := w.run("%s get nonce --context=milan --remote-cluster-id=rome", tool)
		w.run("%s generate tenant --context=rome --remote-cluster-id=milan --nonce=%s --remote-tenant-namespace=liqo-tenant-rome >tenant.yaml", tool, nonce)
		w.run("kubectl apply --context=milan --filename=tenant.yaml")
		w.eventually("liqo-tenant-rome", "kubectl --context=milan --namespace=liqo-tenant-rome get tenants.authentication.liqo.io rome --output=jsonpath='{.status.tenantNamespace}'")
		w.run("%s generate identity --context=milan --remote-cluster-id=rome --remote-tenant-namespace=liqo-tenant-milan >identity.yaml", tool)
		w.run("kubectl apply --context=rome --filename=identity.yaml")
		w.run("%s create resourceslice milan --context=rome --remote-cluster-id=milan", tool)
		w.awaitNode("milan")
		w.run("refractctl delete resourceslice milan --context=rome")
		w.run("kubectl --context=rome --namespace=liqo-tenant-milan delete --filename=identity.yaml")
		w.run("kubectl --context=rome --namespace=liqo-tenant-milan delete secret liqo-signed-nonce")
		w.run("kubectl --context=milan --namespace=liqo-tenant-rome delete --filename=tenant.yaml")
		w.run("kubectl --context=milan --namespace=liqo-tenant-rome delete secret liqo-nonce")
	}
}

// awaitNode waits until a node of rome is ready. It may not exist yet.
func (w *world) awaitNode(name string) {
	w.Helper()
	w.eventually("True", `kubectl --context=rome get node %s --output=jsonpath='{.status.conditions[?(@.type=="Ready")].status}'`, name)
}
