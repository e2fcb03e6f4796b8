// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// defaultEgress is the NetworkPolicy that the controller manager creates in consumers' namespaces.
const defaultEgress = `
podSelector: {}
policyTypes: [Egress]
egress:
  - ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
  - to:
      - namespaceSelector: {matchLabels: {liqo.io/remote-cluster-id: rome}, matchExpressions: [{key: liqo.io/tenant-namespace, operator: DoesNotExist}]}
      - ipBlock: {cidr: 0.0.0.0/0, except: [10.96.0.0/12, 10.244.0.0/16, 169.254.0.0/16]}
      - ipBlock: {cidr: "::/0", except: ["fd00:10::/32", "fe80::/10"]}
      - ipBlock: {cidr: 10.244.7.0/24}`

// TestEgressOfConsumers checks that if egress is limited, a NetworkPolicy of a consumer cannot allow more egress than
// the default policy. It may always allow less. By default, egress is not limited.
func TestEgressOfConsumers(t *testing.T) {
	h := hold(t)
	rome := h.as("rome-kubelet", "rome")
	policy := func(namespace, egress string) *networkingv1.NetworkPolicy {
		created := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
		h.must(yaml.Unmarshal([]byte("{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: ["+egress+"]}"), &created.Spec))
		return created
	}
	create := func(egress string) error {
		return rome.Create(t.Context(), policy(remoteNamespace, egress), client.DryRunAll)
	}
	wider := map[string][]string{
		"a rule without peers": {
			"{}", "{ports: [{port: 443}]}", "{to: []}", "{ports: []}", "{ports: [{port: 53, endPort: 60}]}", "{ports: [{port: dns}]}", "{ports: [{protocol: SCTP, port: 53}]}", "{ports: [{protocol: UDP}]}",
			"{ports: [{port: 53}, {port: 80}]}",
		},
		"a namespaceSelector": {
			"{to: [{namespaceSelector: {}}]}", "{to: [{namespaceSelector: {matchLabels: {liqo.io/remote-cluster-id: turin}}}]}",
			"{to: [{podSelector: {}}, {podSelector: {}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]}",
			"{to: [{namespaceSelector: {matchLabels: {liqo.io/remote-cluster-id: rome}}}]}",
			"{to: [{namespaceSelector: {matchLabels: {liqo.io/remote-cluster-id: turin}, matchExpressions: [{key: liqo.io/tenant-namespace, operator: DoesNotExist}]}}]}",
			"{to: [{namespaceSelector: {matchExpressions: [{key: liqo.io/remote-cluster-id, operator: Exists}]}}]}",
		},
		"an ipBlock": {
			"{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}", "{to: [{ipBlock: {cidr: 169.254.169.254/32}}]}", `{to: [{ipBlock: {cidr: "::/0"}}]}`, `{to: [{ipBlock: {cidr: "fe80::/64"}}]}`,
			"{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.96.0.0/12]}}]}", "{to: [{ipBlock: {cidr: 10.244.6.0/23}}]}", "{to: [{ipBlock: {cidr: 10.244.7.0/24}}, {ipBlock: {cidr: 10.96.0.1/32}}]}",
			"{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.96.0.0/12, 10.244.0.0/17, 169.254.0.0/16]}}]}", "{ports: [{port: 443}], to: [{ipBlock: {cidr: 10.97.0.0/16}}]}",
		},
	}
	// If there is no default policy, the limit has no effect. If there is no limit, no policy is denied.
	open := "{}"
	h.annotate(remoteNamespace, map[string]string{"wider-egress": "false"})
	h.must(create(open))
	defaults := policy(remoteNamespace, "")
	defaults.Name = "refract-egress"
	h.must(yaml.Unmarshal([]byte(defaultEgress), &defaults.Spec))
	h.must(h.admin.Create(t.Context(), defaults))
	for says, rules := range wider {
		for _, egress := range rules {
			h.attempt(egress, says, func() error { return create(egress) })
			h.attempt("in addition: "+egress, says, func() error { return create("{to: [{podSelector: {}}]}, " + egress) })
		}
	}
	for _, egress := range []string{
		"", "{to: [{podSelector: {}}]}", "{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 5432}]}", "{ports: [{protocol: UDP, port: 53}, {port: 53}]}",
		"{ports: [{protocol: UDP, port: 53}], to: [{podSelector: {matchLabels: {k8s-app: kube-dns}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]}",
		"{to: [{namespaceSelector: {matchLabels: {liqo.io/remote-cluster-id: rome}, matchExpressions: [{key: liqo.io/tenant-namespace, operator: DoesNotExist}]}}]}",
		"{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 169.254.0.0/16]}}]}", "{to: [{ipBlock: {cidr: 203.0.113.7/32}}], ports: [{port: 443}]}", `{to: [{ipBlock: {cidr: "2001:db8::/32"}}]}`,
		"{to: [{ipBlock: {cidr: 10.244.7.128/25}}]}", "{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.96.0.0/12, 10.244.0.0/16, 169.254.0.0/16]}}]}",
	} {
		h.attempt("allowed: "+egress, "", func() error { return create(egress) })
	}

	// A policy that existed before the limit stays. Its labels may be changed, but it must not allow more egress than
	// before.
	existing := policy(remoteNamespace, open)
	h.must(h.admin.Create(t.Context(), existing))
	patch := func(text string) error {
		return rome.Patch(t.Context(), existing.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
	}
	h.must(patch(`{"metadata":{"labels":{"tier":"gold"}}}`))
	h.attempt("selecting other pods", "a rule without peers", func() error { return patch(`{"spec":{"podSelector":{"matchLabels":{"app":"db"}}}}`) })

	h.annotate(remoteNamespace, map[string]string{"wider-egress": "true"})
	h.attempt("all egress", "", func() error {
		existing.ResourceVersion = ""
		return patch(`{"spec":{"podSelector":{"matchLabels":{"app":"db"}}}}`)
	})
}
