// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

const tenant = "liqo-tenant-milan"

// Each identity has the permissions that it needs, and no others. The permissions are checked with access reviews of
// a real API server.
func TestIdentitiesMayWhatTheyNeedAndNoMore(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{NoScheduler: true})[0]
	client, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	for _, name := range []string{tenant, "liqo-tenant-rome", "liqo", "shop-rome", "extended", "kube-node-lease"} {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	kubelet := rbac.Kubelet{NodeName: "milan", TenantNamespace: tenant, KubeconfigSecret: "kubeconfig-milan", Subject: rbac.ServiceAccount(tenant, "milan")}
	consumer := rbac.Peer("", "rome")
	manager := rbac.Manager{Namespace: "liqo", Subject: rbac.ServiceAccount("liqo", "manager")}
	objects := append(kubelet.Objects(), kubelet.ExtendedNamespace("extended"))
	objects = append(objects, consumer.Objects()...)
	objects = append(objects, consumer.RemoteNamespace("shop-rome"), consumer.TenantNamespace("liqo-tenant-rome"), consumer.Renewal("liqo-tenant-rome"))
	authentication := manager.Authentication()
	objects = append(objects, authentication[len(authentication)-1]) // the role of the binding
	objects = append(objects, manager.Objects()...)
	objects = append(objects, manager.Provider(tenant, "kubeconfig-milan")...)
	gateways := rbac.Gateways{}
	objects = append(objects, gateways.Roles()...)
	objects = append(objects, gateways.Bindings(tenant, rbac.ServiceAccount(tenant, "gateway"))...)
	objects = append(objects, rbac.GatewayAgents{Subject: rbac.ServiceAccount("liqo", "agents")}.Objects()...)
	objects = append(objects, rbac.GatewayAgents{Prefix: "home", Subject: rbac.ServiceAccount("liqo", "home-agents"),
		Addresses: true}.Objects()...)
	for range 2 { // in the second pass, all objects already exist
		require.NoError(t, rbac.Install(t.Context(), client, objects...))
	}

	for who, cases := range map[string]string{
		"user system:serviceaccount:" + tenant + ":milan": kubeletCases,
		"group rome": consumerCases + certificateCases,
		"user system:serviceaccount:liqo-tenant-rome:refract-consumer": consumerCases + tokenCases,
		"user system:serviceaccount:liqo:manager":                      managerCases,
		"user system:serviceaccount:" + tenant + ":gateway":            gatewayCases,
		"user system:serviceaccount:liqo:agents":                       agentCases + plainAgentCases,
		"user system:serviceaccount:liqo:home-agents":                  agentCases + homeAgentCases,
		"user nobody": nobodyCases,
	} {
		for line := range strings.Lines(strings.TrimSpace(strings.ReplaceAll(cases, "\n\n", "\n"))) {
			t.Run(who+": "+strings.TrimSpace(line), func(t *testing.T) { check(t, client, who, line) })
		}
	}
}

// Each case has the form: may|not VERB RESOURCE[/SUBRESOURCE][.GROUP] [in NAMESPACE] [named NAME].
const (
	kubeletCases = `
may watch pods
not patch pods in shop
may delete pods in shop
may patch pods/status in shop
not create pods in shop
not create pods/exec in shop
not create pods/eviction in shop
not watch services
may watch services in extended
not patch services in extended
may patch services/status in extended
may watch endpointslices.discovery.k8s.io in extended
may watch configmaps in extended
may watch secrets in extended
not create secrets in extended
may patch persistentvolumeclaims in extended
may patch persistentvolumeclaims/status in extended
not create persistentvolumeclaims in extended
not delete persistentvolumeclaims in extended
not watch persistentvolumeclaims
may create persistentvolumes
may delete persistentvolumes named pvc-1
not update persistentvolumes named pvc-1
not patch persistentvolumes/status named pvc-1
may watch storageclasses.storage.k8s.io
not patch storageclasses.storage.k8s.io
may patch ingresses.networking.k8s.io/status in extended
not patch ingresses.networking.k8s.io in extended
may watch networkpolicies.networking.k8s.io in extended
not patch networkpolicies.networking.k8s.io in extended
not watch networkpolicies.networking.k8s.io in shop
may watch poddisruptionbudgets.policy in extended
not patch poddisruptionbudgets.policy in extended
may create nodes
may patch nodes named milan
may patch nodes/status named milan
not patch nodes named worker-1
not patch nodes/status named worker-1
not delete nodes named milan
may update leases.coordination.k8s.io in kube-node-lease named milan
not update leases.coordination.k8s.io in kube-node-lease named worker-1
may update leases.coordination.k8s.io in liqo-tenant-milan named virtual-kubelet-leader-election
not update leases.coordination.k8s.io in kube-system named kube-scheduler
may get secrets in liqo-tenant-milan named kubeconfig-milan
may watch secrets in liqo-tenant-milan named kubeconfig-milan
not list secrets in liqo-tenant-milan
not get secrets in liqo-tenant-milan named other
not get secrets in shop named password
not create serviceaccounts/token in shop
may create serviceaccounts/token in extended
may watch namespacemaps.offloading.liqo.io in liqo-tenant-milan
not watch namespacemaps.offloading.liqo.io in liqo-tenant-turin
may watch virtualnodes.offloading.liqo.io in liqo-tenant-milan
may list virtualnodes.offloading.liqo.io
not create virtualnodes.offloading.liqo.io in liqo-tenant-milan
not patch virtualnodes.offloading.liqo.io in liqo-tenant-milan named milan
not watch virtualnodes.offloading.liqo.io
may watch foreignclusters.core.liqo.io
not patch foreignclusters.core.liqo.io/status
may watch reflectedresources.plugins.refract.io
not patch reflectedresources.plugins.refract.io
may patch reflectedresources.plugins.refract.io/status
may watch customresourcedefinitions.apiextensions.k8s.io
not create customresourcedefinitions.apiextensions.k8s.io
may create tokenreviews.authentication.k8s.io
may create subjectaccessreviews.authorization.k8s.io
may create events in shop
may patch events in shop
not list events in shop
may list events in extended
may delete events in extended
may watch configmaps in kube-system named extension-apiserver-authentication
not list configmaps in kube-system
`
	consumerCases = `
may create shadowpods.offloading.liqo.io in shop-rome
may update shadowendpointslices.offloading.liqo.io in shop-rome
not patch shadowendpointslices.offloading.liqo.io in shop-rome
may delete services in shop-rome
may watch pods in shop-rome
not create pods in shop-rome
may delete pods in shop-rome
not patch shadowpods.offloading.liqo.io/status in shop-rome
may get pods/log in shop-rome
may create pods/exec in shop-rome
may get pods/exec in shop-rome
may create pods/portforward in shop-rome
may watch events in shop-rome
not create events in shop-rome
not watch events in shop
may list pods.metrics.k8s.io in shop-rome
not update services in shop-rome
may patch secrets in shop-rome named password
may update secrets in shop-rome named password
may patch ingresses.networking.k8s.io in shop-rome
may patch networkpolicies.networking.k8s.io in shop-rome
may delete networkpolicies.networking.k8s.io in shop-rome
not patch networkpolicies.networking.k8s.io in shop
may patch poddisruptionbudgets.policy in shop-rome
not update poddisruptionbudgets.policy/status in shop-rome
not patch poddisruptionbudgets.policy in shop
not create pods/eviction in shop-rome
may patch persistentvolumeclaims in shop-rome
may delete persistentvolumeclaims in shop-rome
not patch persistentvolumeclaims/status in shop-rome
not list persistentvolumes
not list storageclasses.storage.k8s.io
not get secrets in liqo named password
not create endpointslices.discovery.k8s.io in shop-rome
not create shadowpods.offloading.liqo.io in shop
not watch pods in shop
not watch pods
not list namespaces
not list nodes
not get customresourcedefinitions.apiextensions.k8s.io
not create customresourcedefinitions.apiextensions.k8s.io
may get /livez
not get /metrics
may patch leases.coordination.k8s.io in liqo-tenant-rome named refract-heartbeat
not patch leases.coordination.k8s.io in liqo-tenant-rome named virtual-kubelet-leader-election
not get leases.coordination.k8s.io in liqo-tenant-rome named virtual-kubelet-leader-election
may create namespacemaps.offloading.liqo.io in liqo-tenant-rome
not patch namespacemaps.offloading.liqo.io/status in liqo-tenant-rome
not watch namespacemaps.offloading.liqo.io in liqo-tenant-paris
not get secrets in liqo-tenant-rome named any
may create serviceaccounts/token in liqo-tenant-rome named refract-consumer
not create serviceaccounts/token in liqo-tenant-rome named other
not create serviceaccounts/token in shop-rome named refract-consumer
may list quotas.offloading.liqo.io in liqo-tenant-rome
not patch quotas.offloading.liqo.io in liqo-tenant-rome
may watch resourceslices.authentication.liqo.io in liqo-tenant-rome
not create resourceslices.authentication.liqo.io in liqo-tenant-rome
not patch resourceslices.authentication.liqo.io in liqo-tenant-rome named milan
not patch resourceslices.authentication.liqo.io/status in liqo-tenant-rome named milan
not delete resourceslices.authentication.liqo.io in liqo-tenant-rome named milan
not watch resourceslices.authentication.liqo.io in liqo-tenant-paris
not watch resourceslices.authentication.liqo.io
not create virtualnodes.offloading.liqo.io in liqo-tenant-rome
not patch virtualnodes.offloading.liqo.io in liqo-tenant-rome named rome
`
	certificateCases = `
may create renews.authentication.liqo.io in liqo-tenant-rome
may get renews.authentication.liqo.io in liqo-tenant-rome named refract-consumer
may delete renews.authentication.liqo.io in liqo-tenant-rome named refract-consumer
not get renews.authentication.liqo.io in liqo-tenant-rome named other
not list renews.authentication.liqo.io in liqo-tenant-rome
not update renews.authentication.liqo.io in liqo-tenant-rome named refract-consumer
not patch renews.authentication.liqo.io/status in liqo-tenant-rome named refract-consumer
not create renews.authentication.liqo.io in liqo-tenant-paris
not create resourceslices.authentication.liqo.io in liqo-tenant-rome
not patch namespaces named liqo-tenant-rome
not patch rolebindings.rbac.authorization.k8s.io in liqo-tenant-rome
`
	tokenCases = `
not create renews.authentication.liqo.io in liqo-tenant-rome
`
	managerCases = `
may watch shadowpods.offloading.liqo.io
may patch shadowpods.offloading.liqo.io/status in shop-rome
not create shadowpods.offloading.liqo.io in shop-rome
not delete shadowpods.offloading.liqo.io in shop-rome
may create pods in shop-rome
may patch pods in shop-rome
not create pods/exec in shop-rome
may create endpointslices.discovery.k8s.io in shop-rome
may watch foreignclusters.core.liqo.io
may watch connections.networking.liqo.io
not patch connections.networking.liqo.io/status in liqo-tenant-rome named rome
may watch peernetworks.plugins.refract.io
not patch peernetworks.plugins.refract.io in liqo-tenant-rome named rome
may watch namespaces
may update leases.coordination.k8s.io in liqo named 66cf253f.ctrlmgr.liqo.io
not update leases.coordination.k8s.io in liqo named other
may create namespaces
may delete namespaces named shop-rome
may create rolebindings.rbac.authorization.k8s.io in shop-rome
not delete rolebindings.rbac.authorization.k8s.io in shop-rome
not delete rolebindings.rbac.authorization.k8s.io in shop named liqo-virtual-kubelet-remote
may delete rolebindings.rbac.authorization.k8s.io in shop named liqo-virtual-kubelet-extended
may bind clusterroles.rbac.authorization.k8s.io named liqo-virtual-kubelet-remote
not bind clusterroles.rbac.authorization.k8s.io named cluster-admin
may patch namespaceoffloadings.offloading.liqo.io/status in shop
may patch namespacemaps.offloading.liqo.io in liqo-tenant-milan
may watch virtualnodes.offloading.liqo.io
may watch nodes
not patch nodes named milan
may get secrets in liqo-tenant-milan named kubeconfig-milan
may update secrets in liqo-tenant-milan named kubeconfig-milan
may list secrets in liqo-tenant-milan named kubeconfig-milan
not create serviceaccounts in liqo-tenant-milan
not create clusterroles.rbac.authorization.k8s.io
not bind clusterroles.rbac.authorization.k8s.io named liqo-virtual-kubelet-local
not update secrets in liqo-tenant-milan named other
not list secrets in liqo-tenant-milan
not list secrets
may watch secrets in liqo named refract-webhook
may update secrets in liqo named refract-webhook
not list secrets in liqo
not create secrets in liqo
may patch mutatingwebhookconfigurations.admissionregistration.k8s.io named refract-webhook
may watch mutatingwebhookconfigurations.admissionregistration.k8s.io named refract-webhook
not patch mutatingwebhookconfigurations.admissionregistration.k8s.io named other
not create mutatingwebhookconfigurations.admissionregistration.k8s.io
`
	gatewayCases = `
may watch configurations.networking.liqo.io in liqo-tenant-milan
not watch configurations.networking.liqo.io in liqo-tenant-rome
not watch configurations.networking.liqo.io
may watch publickeies.networking.liqo.io in liqo-tenant-milan
may patch publickeies.networking.liqo.io in liqo-tenant-milan named milan
not patch publickeies.networking.liqo.io in liqo-tenant-rome named rome
not create publickeies.networking.liqo.io in liqo-tenant-milan
not delete publickeies.networking.liqo.io in liqo-tenant-milan named milan
may watch gatewayservers.networking.liqo.io in liqo-tenant-milan
not watch gatewayservers.networking.liqo.io in liqo-tenant-rome
not patch gatewayservers.networking.liqo.io in liqo-tenant-milan named milan
may patch gatewayservers.networking.liqo.io/status in liqo-tenant-milan named milan
may patch gatewayclients.networking.liqo.io/status in liqo-tenant-milan named milan
not patch gatewayclients.networking.liqo.io/status in liqo-tenant-rome named rome
not update gatewayservers.networking.liqo.io/status in liqo-tenant-milan named milan
may create leases.coordination.k8s.io in liqo-tenant-milan
may watch leases.coordination.k8s.io in liqo-tenant-milan named gateway
may update leases.coordination.k8s.io in liqo-tenant-milan named gateway
not update leases.coordination.k8s.io in liqo-tenant-milan named virtual-kubelet-leader-election
not delete leases.coordination.k8s.io in liqo-tenant-milan named gateway
not create leases.coordination.k8s.io in liqo
not get secrets in liqo-tenant-milan named gw-milan
may watch endpointslices.discovery.k8s.io in liqo-tenant-milan named gateway
may patch endpointslices.discovery.k8s.io in liqo-tenant-milan named gateway
not patch endpointslices.discovery.k8s.io in liqo-tenant-milan named web-1
not patch endpointslices.discovery.k8s.io in liqo-tenant-rome named gateway
not create endpointslices.discovery.k8s.io in liqo-tenant-milan
not list secrets in liqo-tenant-milan
not get secrets in liqo-tenant-milan named kubeconfig-milan
not patch secrets in liqo-tenant-milan named gw-milan
may create connections.networking.liqo.io in liqo-tenant-milan
not create connections.networking.liqo.io in liqo-tenant-rome
may watch connections.networking.liqo.io in liqo-tenant-milan named gw-milan
not watch connections.networking.liqo.io in liqo-tenant-rome
may patch connections.networking.liqo.io/status in liqo-tenant-milan named gw-milan
not patch connections.networking.liqo.io/status in liqo-tenant-rome named gw-rome
not patch connections.networking.liqo.io in liqo-tenant-milan named gw-milan
not delete connections.networking.liqo.io in liqo-tenant-milan named gw-milan
not patch peernetworks.plugins.refract.io/status in liqo-tenant-milan named milan
may watch nodes
not patch nodes named worker-1
not watch pods in liqo-tenant-milan
may watch ips.ipam.liqo.io
not create ips.ipam.liqo.io in liqo
not patch ips.ipam.liqo.io/status in liqo
may create events in liqo-tenant-milan
not create events in liqo
`
	plainAgentCases = `
not watch pods
not watch services
not watch endpointslices.discovery.k8s.io
not watch namespaces
`
	homeAgentCases = `
may watch pods
may watch services
may watch endpointslices.discovery.k8s.io
may watch namespaces
not patch services in shop-rome
not patch pods in shop-rome
not create pods/exec in shop-rome
`
	agentCases = `
may watch configurations.networking.liqo.io
may watch gatewayservers.networking.liqo.io
may watch gatewayclients.networking.liqo.io
may watch nodes
may watch ips.ipam.liqo.io
not create ips.ipam.liqo.io in liqo
not watch publickeies.networking.liqo.io in liqo-tenant-milan
not get secrets in liqo-tenant-milan named gw-milan
not create events in liqo
not create connections.networking.liqo.io in liqo-tenant-milan
not patch connections.networking.liqo.io/status in liqo-tenant-milan named gw-milan
not patch nodes named worker-1
`
	nobodyCases = `
not watch pods
not watch shadowpods.offloading.liqo.io
`
)

func check(t *testing.T, client kubernetes.Interface, who, line string) {
	t.Helper()
	words := strings.Fields(line)
	spec := authorizationv1.SubjectAccessReviewSpec{}
	attributes := &authorizationv1.ResourceAttributes{Verb: words[1]}
	spec.ResourceAttributes = attributes
	if strings.HasPrefix(words[2], "/") {
		spec.ResourceAttributes, spec.NonResourceAttributes = nil, &authorizationv1.NonResourceAttributes{Verb: words[1], Path: words[2]}
	}
	resource, subresource, _ := strings.Cut(words[2], "/")
	resource, attributes.Group, _ = strings.Cut(resource, ".")
	attributes.Resource, attributes.Subresource = resource, subresource
	for i := 3; i+1 < len(words); i += 2 {
		switch words[i] {
		case "in":
			attributes.Namespace = words[i+1]
		case "named":
			attributes.Name = words[i+1]
		default:
			t.Fatalf("unknown word %q", words[i])
		}
	}
	if kind, name, _ := strings.Cut(who, " "); kind == "group" {
		spec.User, spec.Groups = "kubelet-of-"+name, []string{name, "system:authenticated"}
	} else {
		spec.User, spec.Groups = name, []string{"system:authenticated"}
	}
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	if want := words[0] == "may"; review.Status.Allowed != want {
		t.Errorf("allowed is %t, want %t (%s)", review.Status.Allowed, want, review.Status.Reason)
	}
}
