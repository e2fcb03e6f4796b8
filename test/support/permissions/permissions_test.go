// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/refract-project/refract/internal/rbac"
)

const (
	ofManager  = `"userAgent":"refract-controller-manager/dev","user":{"username":"system:serviceaccount:liqo:refract-controller-manager"}`
	ofKubelet  = `"userAgent":"refract-virtual-kubelet/dev","user":{"username":"system:serviceaccount:liqo-tenant-milan:milan"}`
	ofConsumer = `"userAgent":"refract-virtual-kubelet/dev","user":{"username":"system:serviceaccount:liqo-tenant-rome:refract-consumer"}`
	ofCert     = `"userAgent":"refract-controller-manager/dev","user":{"username":"rome"}`
	ofCommand  = `"userAgent":"refractctl/dev","user":{"username":"rome"}`
)

// entry returns an entry of an audit log.
func entry(who, verb, ref, code, more string) string {
	return `{` + who + `,"verb":"` + verb + `","objectRef":` + ref + `,"responseStatus":{"code":` + code + `}` + more + "}\n"
}

func TestRecord(t *testing.T) {
	const (
		pod     = `{"resource":"pods","namespace":"shop","name":"web","subresource":"status"}`
		service = `{"resource":"services","namespace":"shop-rome","name":"web"}`
		binding = `{"apiGroup":"rbac.authorization.k8s.io","resource":"rolebindings","namespace":"shop","name":"any"}`
		request = `{"apiGroup":"certificates.k8s.io","resource":"certificatesigningrequests","name":"csr-1","subresource":"approval"}`
		roleRef = `,"requestObject":{"roleRef":{"kind":"ClusterRole","name":"liqo-virtual-kubelet-extended"}}`
		signer  = `,"requestObject":{"spec":{"signerName":"kubernetes.io/kubelet-serving"}}`
	)
	status := Write{Kubelet, "patch", "", "pods/status", "shop", "web"}
	bound := Write{Manager, "create", rbacv1.GroupName, "rolebindings", "shop", "any"}
	for _, c := range []struct {
		name, log string
		want      []Write
	}{
		{"the virtual kubelet in its own cluster", entry(ofKubelet, "patch", pod, "200", ""), []Write{status}},
		{"the same twice", strings.Repeat(entry(ofKubelet, "patch", pod, "200", ""), 2), []Write{status}},
		{"a read", entry(ofKubelet, "get", pod, "200", ""), nil},
		{"a failure", entry(ofKubelet, "patch", pod, "403", ""), nil},
		{"a command with the identity of a consumer", entry(ofCommand, "patch", service, "200", ""), nil},
		{"an entry that is still written", strings.TrimSpace(entry(ofKubelet, "patch", pod, "200", "")), nil},
		{"a consumer with a certificate", entry(ofCert, "delete", service, "200", ""),
			[]Write{{Consumer, "delete", "", "services", "shop-rome", "web"}}},
		{"an object that apply creates", entry(ofConsumer, "patch", service, "201", ""),
			[]Write{{Consumer, "patch", "", "services", "shop-rome", "web"}, {Consumer, "create", "", "services", "shop-rome", "web"}}},
		{"a role that is bound", entry(ofManager, "create", binding, "201", roleRef),
			[]Write{bound, {Manager, "bind", rbacv1.GroupName, "clusterroles", "", "liqo-virtual-kubelet-extended"}}},
		{"a change of subjects only", entry(ofManager, "create", binding, "201", `,"requestObject":{"subjects":[]}`), []Write{bound}},
		{"a certificate that is approved", entry(ofManager, "update", request, "200", signer), []Write{
			{Manager, "update", "certificates.k8s.io", "certificatesigningrequests/approval", "", "csr-1"},
			{Manager, "approve", "certificates.k8s.io", "signers", "", "kubernetes.io/kubelet-serving"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var record Record
			require.NoError(t, record.Add(strings.NewReader(c.log)))
			want := map[Write]bool{}
			for _, write := range c.want {
				want[write] = true
			}
			assert.Equal(t, want, record.writes)
		})
	}
	var record Record
	require.Error(t, record.Add(strings.NewReader("not JSON\n")))
	require.Error(t, record.AddFile(t.TempDir()+"/missing"))
}

func TestCompare(t *testing.T) {
	grant := func(group, resource string, verbs []string, names ...string) rbac.Rule {
		return rbac.Rule{Reason: "to work", PolicyRule: rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs, ResourceNames: names,
		}}
	}
	role := func(name string, rules ...rbac.Rule) rbac.Role {
		return rbac.Role{Name: name, Scope: rbac.ClusterScope, Rules: rules}
	}
	pods := role("controller-manager", grant("", "pods", []string{"get", "list", "watch", "patch"}))
	excepted := func(role string, permissions ...string) []Exception {
		return []Exception{{Role: role, Permissions: permissions, Reason: "for a test"}}
	}
	bind := role("controller-manager", grant(rbacv1.GroupName, "clusterroles", []string{"bind"}, rbac.ExtendedRolePlaceholder))
	lease := rbac.VirtualKubeletLease()
	lease.Rules = lease.Rules[:1]
	for _, c := range []struct {
		name       string
		role       rbac.Role
		writes     []Write
		exceptions []Exception
		problem    string // part of the only problem, or empty if there is none
	}{
		{"a write that is used", pods, []Write{{Manager, "patch", "", "pods", "shop", "web"}}, nil, ""},
		{"a write that is not used", pods, nil, nil, `role controller-manager: no test uses "patch pods", which is granted to work`},
		{"another identity", pods, []Write{{Kubelet, "patch", "", "pods", "shop", "web"}}, nil, `no test uses "patch pods"`},
		{"another verb", pods, []Write{{Manager, "delete", "", "pods", "shop", "web"}}, nil, `no test uses "patch pods"`},
		{"another group", pods, []Write{{Manager, "patch", "metrics.k8s.io", "pods", "shop", "web"}}, nil, `no test uses "patch pods"`},
		{"a subresource", pods, []Write{{Manager, "patch", "", "pods/status", "shop", "web"}}, nil, `no test uses "patch pods"`},
		{"an exception", pods, nil, excepted("controller-manager", "patch pods"), ""},
		{"an exception that is used", pods,
			[]Write{{Manager, "patch", "", "pods", "shop", "web"}}, excepted("controller-manager", "patch pods"),
			`"patch pods" was used. Remove the exception`},
		{"an exception that depends on the timing", pods, []Write{{Manager, "patch", "", "pods", "shop", "web"}},
			[]Exception{{Role: "controller-manager", Permissions: []string{"patch pods"}, Reason: "for a test", Timing: true}}, ""},
		{"an exception that no role grants", role("controller-manager"), nil,
			excepted("controller-manager", "patch pods"), `does not grant "patch pods"`},
		{"an exception of a read", role("controller-manager", grant("", "pods", []string{"get"})), nil,
			excepted("controller-manager", "get pods"), `does not grant "get pods"`},
		{"an exception twice", pods, nil, excepted("controller-manager", "patch pods", "patch pods"), "has two exceptions"},
		{"an exception without a reason", pods, nil,
			[]Exception{{Role: "controller-manager", Permissions: []string{"patch pods"}}}, "either tests or a reason"},
		{"the role that is bound", bind,
			[]Write{{Manager, "bind", rbacv1.GroupName, "clusterroles", "", "liqo-virtual-kubelet-extended"}}, nil, ""},
		{"another role that is bound", bind, []Write{{Manager, "bind", rbacv1.GroupName, "clusterroles", "", "liqo-remote-tenant"}}, nil,
			`no test uses "bind clusterroles.rbac.authorization.k8s.io $(EXTENDED_ROLE)"`},
		{"the namespace of a role", lease,
			[]Write{{Kubelet, "create", "coordination.k8s.io", "leases", "kube-node-lease", "milan"}}, nil, ""},
		{"another namespace than that of a role", lease,
			[]Write{{Kubelet, "create", "coordination.k8s.io", "leases", "liqo-tenant-milan", "milan"}}, nil,
			`no test uses "create leases.coordination.k8s.io"`},
		{"a subresource of a group", role("virtual-kubelet-local", grant("offloading.liqo.io", "shadowpods/status", []string{"patch"})),
			nil, nil, `"patch shadowpods.offloading.liqo.io/status"`},
		{"the marker, which no API server serves",
			role("virtual-kubelet-local", grant(rbac.MarkerGroup, rbac.MarkerResource, []string{"run"})),
			nil, nil, ""},
		{"a role of users", role("peering-user-x", grant("", "pods", []string{"patch"})), nil, nil, ""},
		{"a role of an unknown identity", role("x", grant("", "pods", []string{"patch"})), nil, nil, "Add the role to holderOf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			record := &Record{writes: map[Write]bool{}}
			for _, write := range c.writes {
				record.writes[write] = true
			}
			problems := Compare([]rbac.Role{c.role}, record, c.exceptions)
			if c.problem == "" {
				assert.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			assert.Contains(t, problems[0], c.problem)
		})
	}
}

// TestEveryRoleHasAHolder checks that this package knows the identity that holds each role.
func TestEveryRoleHasAHolder(t *testing.T) {
	for _, role := range rbac.Roles() {
		_, err := permissionsOf(role)
		require.NoError(t, err)
	}
}
