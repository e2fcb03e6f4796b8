// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/permissions"
)

// unwritten contains the permissions that the tests of this package do not use, or do not use in every run.
var unwritten = slices.Concat(unwrittenByKubelets, unwrittenByConsumers, unwrittenByManagers, unwrittenByGateways)

const (
	ownerReferences = "checked only where OwnerReferencesPermissionEnforcement is enabled; no request is sent to the subresource"
	repeated        = "an Event is patched only if it is repeated within a few minutes"
	runsLiqo        = "for consumers that run Liqo: test/liqo"
)

var unwrittenByKubelets = []permissions.Exception{
	{
		Role: "virtual-kubelet-local",
		Reason: "vk/reflection TestBoundClaimsGrow uses it with the roles, " +
			"charts TestATakenOverKubeletStaysInItsPlace under the policies",
		Permissions: []string{"create persistentvolumes", "patch persistentvolumes"},
	},
	{
		Role: "virtual-kubelet-local",
		Reason: "vk/reflection TestDeletedClaimsGoWithTheirVolumes uses it with the roles, " +
			"charts TestATakenOverKubeletStaysInItsPlace under the policies",
		Permissions: []string{"delete persistentvolumes"},
	},
	{Role: "virtual-kubelet-local", Permissions: []string{"patch events"}, Reason: repeated, Timing: true},
	{
		Role: "virtual-kubelet-local", Reason: "no policy applies to reviews; vk/kubeletapi TestServer calls the kubelet API with tokens",
		Permissions: []string{"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"},
	},
	{
		Role: "virtual-kubelet-local", Tests: []string{"vk/app TestProcess"},
		Permissions: []string{"patch reflectedresources.plugins.refract.io/status"},
	},
	{
		Role: "virtual-kubelet-plugins", Tests: []string{"vk/app TestDeclaredPlugins"},
		Permissions: []string{"patch pluginrevisions.plugins.refract.io/status"},
	},
	{
		Role: "virtual-kubelet-extended",
		Reason: "no policy matches claims in its own cluster; " +
			"vk/reflection TestWithoutStorageTheClaimIsSentAway uses it with the roles",
		Permissions: []string{"patch persistentvolumeclaims"},
	},
	{
		Role:        "virtual-kubelet-extended",
		Reason:      "no policy matches claims in its own cluster; vk/reflection TestBoundClaimsGrow uses it with the roles",
		Permissions: []string{"patch persistentvolumeclaims/status"},
	},
	{
		Role: "virtual-kubelet-extended",
		Reason: "only Events that somebody deletes on the provider before they expire are deleted; " +
			"vk/reflection TestEventsExpireByThemselves uses it with the roles",
		Timing:      true, // They are also used when a remote namespace is deleted.
		Permissions: []string{"delete events"},
	},
	{
		Role: "virtual-kubelet-node", Permissions: []string{"patch nodes $(NODE_NAME)"}, Tests: []string{"vk/app TestProcess"},
		Timing: true, // The Node is only patched if the VirtualNode changes after the Node was created.
	},
}

var unwrittenByConsumers = []permissions.Exception{
	{
		Role: "virtual-kubelet-remote",
		Reason: "vk/reflection TestBoundClaimsGrow uses it with the roles, " +
			"charts TestObjectsOfConsumers and charts TestChangesOfObjectsOfConsumers under the policies",
		Permissions: []string{"create persistentvolumeclaims", "patch persistentvolumeclaims"},
	},
	{
		Role: "virtual-kubelet-remote",
		Reason: "no policy matches the deletion of claims; " +
			"vk/reflection TestDeletedClaimsGoWithTheirVolumes uses it with the roles",
		Permissions: []string{"delete persistentvolumeclaims"},
	},
	{
		Role:        "virtual-kubelet-remote",
		Reason:      "tokens are renewed after hours; vk/reflection TestTokensAreRenewed renews them with the roles",
		Permissions: []string{"update secrets"},
	},
	{
		Role:        "virtual-kubelet-remote",
		Reason:      "vk/reflection TestGracePeriodsCross uses it with the roles, charts TestGracePeriodsOfDeletions under the policies",
		Permissions: []string{"delete pods"},
	},
	{Role: "virtual-kubelet-remote", Permissions: []string{"create pods/exec"}, Tests: []string{"vk/app TestProcess"}},
	{
		Role:        "virtual-kubelet-remote",
		Reason:      "nodes are simulated; vk/kubeletapi TestServer uses it with the roles, and test/nodes under the policies",
		Permissions: []string{"create pods/attach", "create pods/portforward"},
	},
	{
		Role: "remote-controlplane", Tests: []string{"controllers/credentials TestATokenIsRenewedWhenAThirdOfItsLifeIsOver"},
		Permissions: []string{"create serviceaccounts/token refract-consumer"},
	},
	{
		Role: "remote-tenant", Tests: []string{"controllers/credentials TestATokenIsRenewedWhenAThirdOfItsLifeIsOver"},
		Permissions: []string{"create serviceaccounts/token refract-consumer"},
	},
	{Role: "remote-tenant", Permissions: []string{"update namespacemaps.offloading.liqo.io"}, Reason: runsLiqo},
	{
		Role: "remote-tenant", Tests: []string{"controllers/resourceshare TestAShareComesBackAfterADrain"},
		Permissions: []string{"create resourceslices.authentication.liqo.io"},
	},
	{
		Role: "remote-tenant", Reason: runsLiqo,
		Permissions: []string{
			"update resourceslices.authentication.liqo.io", "patch resourceslices.authentication.liqo.io", "delete resourceslices.authentication.liqo.io",
			"update renews.authentication.liqo.io", "patch renews.authentication.liqo.io",
		},
	},
}

var unwrittenByManagers = []permissions.Exception{
	{
		Role: "controller-manager", Tests: []string{"controllers/shadowendpointslice TestAnEndpointSliceIsDeletedWithItsShadow"},
		Permissions: []string{"delete endpointslices.discovery.k8s.io"},
		Timing:      true, // The garbage collector may delete it first.
	},
	{
		Role: "controller-manager", Tests: []string{"controllers/objectquota TestObjectsOfAConsumer"},
		Permissions: []string{"patch resourcequotas refract-quota", "delete resourcequotas refract-quota"},
	},
	{
		Role: "controller-manager", Tests: []string{"controllers/shadowpod TestAPodThatRunsCostsTwoWrites"}, Timing: true,
		Permissions: []string{"patch shadowpods.offloading.liqo.io/status"},
	},
	{
		Role: "controller-manager", Reason: ownerReferences,
		Permissions: []string{
			"update shadowpods.offloading.liqo.io/finalizers", "update shadowendpointslices.offloading.liqo.io/finalizers",
		},
	},
	{
		Role: "controller-manager", Tests: []string{"controllers/shadowpod TestRunningPodsAreResizedAndDebugged"},
		Permissions: []string{"patch pods/resize", "patch pods/ephemeralcontainers"},
	},
	{
		Role: "controller-manager", Tests: []string{"controllers/namespacemap TestLimitRange"},
		Permissions: []string{"create limitranges", "patch limitranges refract-limits", "delete limitranges refract-limits"},
	},
	{
		Role: "controller-manager", Tests: []string{"controllers/namespacemap TestObjectsOfAConsumerAreCounted"},
		Permissions: []string{"patch resourcequotas refract-objects"},
	},
	{
		Role: "controller-manager", Tests: []string{"controllers/namespacemap TestDefaultEgressAddsNothingToOtherPolicies"},
		Permissions: []string{
			"patch networkpolicies.networking.k8s.io refract-egress-isolation …",
			"delete networkpolicies.networking.k8s.io refract-egress-isolation …",
		},
	},
	{Role: "controller-manager", Permissions: []string{"patch events.events.k8s.io"}, Reason: repeated, Timing: true},
	{Role: "controller-manager-leader-election", Permissions: []string{"patch events"}, Reason: repeated, Timing: true},
	{
		Role: "controller-manager-tenant", Tests: []string{"controllers/virtualnode TestAVirtualNodeIsDrainedBeforeItGoes"},
		Permissions: []string{"delete secrets $(KUBECONFIG_SECRET)"},
	},
	{
		Role: "controller-manager-virtual-nodes", Tests: []string{"controllers/virtualnode TestAVirtualNodeIsDrainedBeforeItGoes"},
		Permissions: []string{"create pods/eviction"},
		Timing:      true, // A pod may still exist when its virtual node is drained.
	},
	{
		Role: "controller-manager-kubelet-accounts", Tests: []string{"controllers/virtualnode TestAVirtualNodeOfAnotherToolGetsItsAccount"},
		Permissions: []string{
			"create clusterroles.rbac.authorization.k8s.io", "create roles.rbac.authorization.k8s.io", "bind clusterroles.rbac.authorization.k8s.io $(LOCAL_ROLE)",
		},
	},
	{
		Role: "controller-manager-kubelet-accounts",
		Reason: "only granted to virtual kubelets, by controllers/virtualnode TestAVirtualNodeOfAnotherToolGetsItsAccount; " +
			"controllers/virtualnode TestPoliciesForAccounts shows that the policies deny its use",
		Permissions: []string{"patch nodes/status"},
	},
	{
		Role: "controller-manager-serving-certificates", Tests: []string{"controllers/servingcertificate TestServingCertificates"},
		Permissions: []string{"approve signers.certificates.k8s.io kubernetes.io/kubelet-serving"},
	},
	{
		Role: "controller-manager-resource-slices", Reason: ownerReferences,
		Permissions: []string{"update resourceslices.authentication.liqo.io/finalizers"},
	},
	{
		Role: "controller-manager-resource-slices", Tests: []string{"controllers/resourceslice TestQuotasOfResourceSlices"},
		Permissions: []string{
			"create quotas.offloading.liqo.io", "patch quotas.offloading.liqo.io", "delete quotas.offloading.liqo.io",
			"patch resourceslices.authentication.liqo.io",
		},
	},
	{
		Role: "controller-manager-tenant-access", Tests: []string{"controllers/tenantaccess TestTenantsAreObeyed"},
		Permissions: []string{"patch quotas.offloading.liqo.io", "bind clusterroles.rbac.authorization.k8s.io $(CONTROL_PLANE_ROLE) …"},
	},
	{
		Role: "controller-manager-authentication", Tests: []string{"controllers/authentication TestTheConditionOutlivesTheTenant"},
		Permissions: []string{"patch tenants.authentication.liqo.io"},
	},
	{
		Role: "controller-manager-authentication", Tests: []string{"controllers/authentication TestJoin"},
		Permissions: []string{
			"patch resourceslices.authentication.liqo.io", "delete resourceslices.authentication.liqo.io",
			"bind clusterroles.rbac.authorization.k8s.io $(TENANT_ROLE)",
			"delete rolebindings.rbac.authorization.k8s.io $(TENANT_ROLE)",
		},
	},
	{
		Role: "controller-manager-authentication", Reason: ownerReferences,
		Permissions: []string{"update tenants.authentication.liqo.io/finalizers"},
	},
	{
		Role: "controller-manager-authentication", Tests: []string{"controllers/authentication TestNonces"},
		Permissions: []string{"patch secrets liqo-nonce"},
	},
	{
		Role: "controller-manager-identities", Tests: []string{"controllers/identity TestJoiningAProvider"},
		Permissions: []string{
			"create identities.authentication.liqo.io", "patch identities.authentication.liqo.io",
			"patch identities.authentication.liqo.io/status", "patch resourceslices.authentication.liqo.io",
			"create virtualnodes.offloading.liqo.io", "delete virtualnodes.offloading.liqo.io",
			"bind clusterroles.rbac.authorization.k8s.io $(CREDENTIALS_ROLE)",
		},
	},
	{
		Role: "controller-manager-identities", Reason: ownerReferences,
		Permissions: []string{
			"update identities.authentication.liqo.io/finalizers", "update resourceslices.authentication.liqo.io/finalizers",
		},
	},
	{
		Role: "controller-manager-identities", Tests: []string{"controllers/identity TestNoncesAreTheOnlyTextsThatAreSigned"},
		Permissions: []string{"patch secrets liqo-signed-nonce"},
	},
	{
		Role: "controller-manager-cluster-key", Tests: []string{"controllers/identity TestJoiningAProvider"},
		Permissions: []string{"update secrets authentication-keys"},
	},
	{
		Role:        "controller-manager-addresses",
		Tests:       []string{"controllers/network TestPeersWithOurRanges", "controllers/network TestAdoptedFromLiqo"},
		Permissions: []string{"patch networks.ipam.liqo.io", "patch ips.ipam.liqo.io"},
	},
	{
		Role: "controller-manager-addresses", Reason: ownerReferences,
		Permissions: []string{"update configurations.networking.liqo.io/finalizers"},
	},
	{
		Role: "controller-manager-plugins", Tests: []string{"controllers/plugin TestAModuleIsStoredAndFollowed"},
		Permissions: []string{
			"patch reflectionplugins.plugins.refract.io/status", "create pluginrevisions.plugins.refract.io",
			"create pluginmodules.plugins.refract.io",
		},
	},
	{
		Role: "controller-manager-plugins", Tests: []string{"controllers/plugin TestHistoryAndPause"},
		Permissions: []string{"delete pluginrevisions.plugins.refract.io", "delete pluginmodules.plugins.refract.io"},
	},
	{
		Role: "controller-manager-plugins", Tests: []string{"controllers/plugin TestEntriesOfGoneNodesAreRemoved"},
		Permissions: []string{"patch pluginrevisions.plugins.refract.io/status"},
	},
}

var unwrittenByGateways = []permissions.Exception{
	{
		Role: "controller-manager-gateways", Tests: []string{"controllers/nodeaddresses TestNodes"},
		Permissions: []string{"delete ips.ipam.liqo.io"},
	},
	{
		Role: "controller-manager-gateways", Tests: []string{"controllers/gateways TestTemplateChanges"},
		Permissions: []string{"patch deployments.apps"},
	},
	{
		Role: "controller-manager-gateways", Tests: []string{"controllers/gateways TestLoadBalancer"},
		Permissions: []string{"patch services"},
	},
	{
		Role: "controller-manager-gateway-keys", Tests: []string{"controllers/gateways TestKeyRotation"},
		Permissions: []string{"delete secrets"},
	},
	{
		Role: "gateway", Reason: "needs root; test/network TestPodsByObjects uses it with the roles",
		Permissions: []string{
			"create connections.networking.liqo.io", "patch connections.networking.liqo.io/status", "create events",
		},
	},
	{
		Role: "gateway", Reason: "needs root; test/network TestTakeover uses it with the roles",
		Permissions: []string{
			"create leases.coordination.k8s.io", "update leases.coordination.k8s.io gateway",
			"patch gatewayservers.networking.liqo.io/status", "patch gatewayclients.networking.liqo.io/status",
			"patch endpointslices.discovery.k8s.io gateway",
		},
	},
	{
		Role: "gateway", Reason: "needs root; test/network TestKeyRotation uses it with the roles",
		Permissions: []string{"patch publickeies.networking.liqo.io"},
	},
	{Role: "gateway", Permissions: []string{"patch events"}, Reason: repeated, Timing: true},
}

// underPolicies matches the calls that start clusters where all policies of the chart are enforced.
var underPolicies = regexp.MustCompile(`\b(controllertest\.Main|lab\.Up)\(`)

// namedTest matches the names of tests in a reason.
var namedTest = regexp.MustCompile(`[a-z/]+ Test\w+`)

// TestExceptionsOfPermissions checks that the exceptions name existing permissions, and existing tests of packages
// whose clusters enforce the policies. Whether this package uses such a permission nevertheless is checked after all
// tests were run.
func TestExceptionsOfPermissions(t *testing.T) {
	assert.Empty(t, permissions.Stale(rbac.Roles(), unwritten))
	for _, exception := range unwritten {
		for _, test := range slices.Concat(exception.Tests, namedTest.FindAllString(exception.Reason, -1)) {
			folder, name, _ := strings.Cut(test, " ")
			text := readTests(t, folder)
			assert.Contains(t, text, "\nfunc "+name+"(t *testing.T) {\n", "%s of role %s", test, exception.Role)
			if !slices.Contains(exception.Tests, test) {
				continue // such tests may run without the policies
			}
			assert.Regexp(t, underPolicies, text, "%s of role %s runs without the policies", test, exception.Role)
		}
	}
}

// readTests returns the source of the tests in a folder of the repository.
func readTests(t *testing.T, folder string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
