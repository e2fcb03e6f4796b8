// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/invitation"
	"github.com/refract-project/refract/internal/refractctl/peeringtest"
	"github.com/refract-project/refract/test/support/apistub"
)

// The tests in this package that call testenv.ForTest need control planes. These are the tests of a provider that runs
// Liqo, and of the deletion of namespaces. All other tests use stubs of API servers.

// stubs contains two clusters with stubs of API servers. There is an installation in each of them.
type stubs struct {
	*testing.T
	rome, milan *peeringtest.Side
	lines       []string
}

func newStubs(t *testing.T) *stubs {
	t.Helper()
	return &stubs{T: t, rome: peeringtest.New(t, "rome").Install(t, "10.1.0.0/16").Play(t), milan: peeringtest.New(t, "milan").Install(t, "10.2.0.0/16").Play(t)}
}

func access(side *peeringtest.Side) *cluster.Cluster {
	return &cluster.Cluster{Name: side.ID, Config: side.Config, Client: side.Client, Clientset: side.Clientset}
}

// options returns the settings for joining rome, as a consumer, with milan.
func (s *stubs) options() *Options {
	return &Options{Consumer: access(s.rome), Provider: access(s.milan), APIServerURL: s.milan.Config.Host, Progress: s.record,
		Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
}

func (s *stubs) record(line string) { s.lines = append(s.lines, line) }

// said reports whether a line of the progress contains the text.
func (s *stubs) said(text string) bool {
	return slices.ContainsFunc(s.lines, func(line string) bool { return strings.Contains(line, text) })
}

func (s *stubs) inventory() []string { return append(s.rome.Inventory(), s.milan.Inventory()...) }

func (s *stubs) writes() int { return s.rome.Writes() + s.milan.Writes() }

// within runs a function with a time limit, because the function waits for API servers that are unavailable.
func (s *stubs) within(run func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	return run(ctx)
}

func (s *stubs) peer(o *Options) error {
	return s.within(func(ctx context.Context) error { _, err := o.Peer(ctx); return err })
}

func (s *stubs) unpeer(o *Options) error {
	return s.within(func(ctx context.Context) error { _, err := o.Unpeer(ctx); return err })
}

// TestPeerAndUnpeer checks that a second run changes nothing, except for steps that the first run may not have
// completed, and that no objects are left after the end of the peering.
func TestPeerAndUnpeer(t *testing.T) {
	t.Parallel()
	for _, kind := range []identity.Kind{identity.Tokens, identity.Certificates} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := newStubs(t)
			if kind == identity.Certificates {
				s.milan.PutRole(t, rbac.RemoteRenewal())
			}
			apart := s.inventory()
			o := s.options()
			o.Credentials = kind
			joined, err := o.Peer(t.Context())
			require.NoError(t, err)
			assert.Equal(t, &Joined{Consumer: "rome", Provider: "milan", VirtualNode: "milan"}, joined)
			assert.True(t, s.said("the controller manager renews it before"))
			together := s.inventory()
			s.lines = nil
			require.NoError(t, s.peer(s.options()), "the kind of the credentials is kept")
			assert.Equal(t, together, s.inventory())
			assert.False(t, s.said("gave a "), "the credentials are valid")

			dry := s.options()
			dry.DryRun = true
			writes := s.writes()
			removal, err := dry.Unpeer(t.Context())
			require.NoError(t, err)
			assert.Equal(t, writes, s.writes(), "a dry run writes nothing")
			assert.Equal(t, together, s.inventory())
			assert.True(t, s.said("would be removed"))
			assert.Contains(t, removal.Removed, Object{"rome", "VirtualNode", "liqo-tenant-milan", "milan"})

			removal, err = s.options().Unpeer(t.Context())
			require.NoError(t, err)
			assert.False(t, removal.IsReverse)
			assert.Equal(t, apart, s.inventory())
			removal, err = s.options().Unpeer(t.Context())
			require.NoError(t, err)
			assert.Empty(t, removal.Removed)
		})
	}
}

// TestDryRunOfPeer checks that a dry run makes the same checks as a real run, but writes nothing.
func TestDryRunOfPeer(t *testing.T) {
	t.Parallel()
	s := newStubs(t)
	var dry, real []apistub.Request
	logTo := func(log *[]apistub.Request) {
		for _, side := range []*peeringtest.Side{s.rome, s.milan} {
			side.OnRequest(func(r apistub.Request) *apistub.Failure {
				r.Header = nil
				*log = append(*log, r)
				return nil
			})
		}
	}
	o := s.options()
	o.DryRun = true
	logTo(&dry)
	require.NoError(t, s.peer(o))
	assert.Zero(t, s.writes())
	logTo(&real)
	require.NoError(t, s.peer(s.options()))
	assert.ElementsMatch(t, dry, real[:len(dry)])
}

// TestGatewaysOfAnotherNetwork checks that joining without a network, or with another one, warns about gateways that
// keep running, and does not remove them.
func TestGatewaysOfAnotherNetwork(t *testing.T) {
	t.Parallel()
	for _, mode := range []plugins.NetworkMode{plugins.NoNetwork, plugins.ReachableNetwork} {
		s := newStubs(t)
		o := s.options()
		o.Network.Mode = mode
		require.NoError(t, s.peer(o))
		assert.False(t, s.said("keep running"), s.lines)
		gateway := &networking.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("milan"), Name: "milan",
			Labels: map[string]string{wire.RemoteClusterIDLabel: "milan"}}}
		require.NoError(t, s.rome.Client.Create(t.Context(), gateway))
		require.NoError(t, s.peer(o))
		assert.True(t, s.said("GatewayClient milan and the gateway of milan keep running: remove them with refractctl network disconnect milan"), s.lines)
		require.NoError(t, s.rome.Client.Get(t.Context(), client.ObjectKeyFromObject(gateway), gateway))
	}
}

// TestSettingsAreKept checks that settings do not change if their flags are not set. It tests the settings of the
// virtual node, the accepted labels, the resources, the address and the mode of the network.
func TestSettingsAreKept(t *testing.T) {
	t.Parallel()
	s := newStubs(t)
	o := s.options()
	o.VirtualNode = "milan-gpu"
	o.Node = NodeOptions{Labels: map[string]string{"tier": "gold"}, NodeSelector: map[string]string{"gpu": "true"}, RuntimeClass: "kata",
		StorageClasses: []offloading.StorageType{{StorageClassName: "fast", Default: true}}, IngressClasses: []offloading.IngressType{{IngressClassName: "nginx"}},
		LoadBalancerClasses: []offloading.LoadBalancerType{{LoadBalancerClassName: "metal"}}}
	o.AcceptedLabels = []string{"team"}
	o.Network.Mode = "None"
	require.NoError(t, s.peer(o))
	before := s.inventory()
	again := s.options()
	again.Resources, again.APIServerURL = nil, ""
	require.NoError(t, s.peer(again))
	assert.Equal(t, before, s.inventory())
	assert.True(t, s.said("keeping the address "+s.milan.Config.Host))
	changed := s.options()
	changed.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	require.NoError(t, s.peer(changed))
	assert.NotEqual(t, before, s.inventory())
}

// TestDirectionsAreIndependent checks that the clusters can be joined in both directions at the same time, and that
// each peering can be ended without the other one.
func TestDirectionsAreIndependent(t *testing.T) {
	t.Parallel()
	s := newStubs(t)
	require.NoError(t, s.peer(s.options()))
	oneWay := s.inventory()
	reverse := s.options()
	reverse.Consumer, reverse.Provider, reverse.APIServerURL = access(s.milan), access(s.rome), s.rome.Config.Host
	require.NoError(t, s.peer(reverse))
	removal, err := reverse.Unpeer(t.Context())
	require.NoError(t, err)
	assert.True(t, removal.IsReverse)
	assert.Equal(t, oneWay, s.inventory())
	removal, err = reverse.Unpeer(t.Context())
	require.NoError(t, err)
	assert.Empty(t, removal.Removed)
	assert.True(t, removal.IsReverse)
}

// interrupt makes the write with the given number, counted from 1, and all later writes to the cluster fail.
func interrupt(side *peeringtest.Side, number int, failure *apistub.Failure) (isReached func() bool) {
	count := 0
	side.OnRequest(func(r apistub.Request) *apistub.Failure {
		if !r.IsWrite() {
			return nil
		}
		if count++; count < number {
			return nil
		}
		return failure
	})
	return func() bool { return count >= number }
}

// TestPeerFailsAtAnyWrite checks for each write of peer that, if it fails, the error contains the cause or the way to
// continue, and a second run has the same result as a run without a failure.
func TestPeerFailsAtAnyWrite(t *testing.T) {
	t.Parallel()
	complete := newStubs(t)
	require.NoError(t, complete.peer(complete.options()))
	want := withoutServers(complete)
	// fail makes the write with the given number fail. It reports whether the run has so many writes.
	fail := func(t *testing.T, at, number int, failure *apistub.Failure, message string) bool {
		s := newStubs(t)
		side := []*peeringtest.Side{s.rome, s.milan}[at]
		isReached := interrupt(side, number, failure)
		err := s.peer(s.options())
		if !isReached() {
			require.NoError(t, err)
			assert.Greater(t, number, 5, "writes to "+side.ID)
			return false
		}
		what := fmt.Sprintf("write %d to %s", number, side.ID)
		require.ErrorContains(t, err, message, what)
		side.OnRequest(nil)
		require.NoError(t, s.peer(s.options()), what)
		assert.Equal(t, want, withoutServers(s), what)
		return true
	}
	for at, id := range []string{"rome", "milan"} {
		t.Run("lost by "+id, func(t *testing.T) {
			t.Parallel()
			for number := 1; fail(t, at, number, apistub.Lost, ""); number++ {
			}
		})
	}
	for name, test := range map[string]struct {
		failure *apistub.Failure
		want    string
	}{
		"refused":     {apistub.Forbidden, "Forbidden"},
		"invalid":     {apistub.Invalid, "Invalid"},
		"broken":      {apistub.Broken, "again to continue"},
		"unavailable": {apistub.Unavailable, "again to continue"},
		"answer lost": {apistub.LostAfterwards, "again to continue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, number := range []int{1, 3, 7} {
				fail(t, 0, number, test.failure, test.want)
				fail(t, 1, number, test.failure, test.want)
			}
		})
	}
}

// withoutServers returns the inventory of both clusters without the addresses of the API servers.
func withoutServers(s *stubs) (lines []string) {
	for _, line := range s.inventory() {
		lines = append(lines, strings.ReplaceAll(line, s.milan.Config.Host, "https://milan"))
	}
	slices.Sort(lines)
	return lines
}

// TestPeerTakesBack checks that a failed run removes the objects that it has created, if the clusters permit this.
func TestPeerTakesBack(t *testing.T) {
	t.Parallel()
	for number := 1; number <= 6; number++ {
		s := newStubs(t)
		before := s.inventory()
		count := 0
		s.rome.OnRequest(func(r apistub.Request) *apistub.Failure {
			if r.Verb != "patch" {
				return nil
			}
			if count++; count < number {
				return nil
			}
			return apistub.Forbidden
		})
		require.ErrorContains(t, s.peer(s.options()), "Forbidden")
		s.rome.OnRequest(nil)
		assert.Equal(t, before, s.inventory(), "write %d", number)
	}
}

// TestPeerFailsAtAnyRead checks for each read of a dry run that, if it fails, the error contains the name of the
// cluster, and nothing is written.
func TestPeerFailsAtAnyRead(t *testing.T) {
	t.Parallel()
	for at, id := range []string{"rome", "milan"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			for failed := map[string]bool{}; ; { // each iteration makes another read fail
				s := newStubs(t)
				o, read := s.options(), ""
				o.DryRun = true
				side := []*peeringtest.Side{s.rome, s.milan}[at]
				side.OnRequest(func(r apistub.Request) *apistub.Failure {
					what := r.Verb + " " + r.Resource + " " + r.Name
					if r.Resource == "clusterroles" { // all reads of ClusterRoles count as a single read
						what = r.Resource
					}
					if failed[what] || read != "" && read != what {
						return nil
					}
					read, failed[what] = what, true
					return apistub.Broken
				})
				err := s.peer(o)
				if read == "" {
					require.NoError(t, err)
					assert.Greater(t, len(failed), 6, failed)
					return
				}
				assert.ErrorContains(t, err, "cluster "+id, read)
				assert.Zero(t, s.writes(), read)
			}
		})
	}
}

// TestPeerRefuses checks that all problems that prevent clusters from being joined are reported together, before
// anything is changed.
func TestPeerRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(s *stubs, o *Options)
		want   []string
	}{
		"the same cluster": {func(s *stubs, o *Options) { o.Provider = o.Consumer }, []string{"are the same cluster"}},
		"the same ID":      {func(s *stubs, o *Options) { s.milan.ID = "rome"; s.milan.Install(s.T, "10.2.0.0/16") }, []string{`both clusters have the id "rome"`}},
		"missing rights": {func(s *stubs, o *Options) {
			s.milan.RefuseRights(func(a authorizationv1.ResourceAttributes) bool { return a.Resource == "quotas" })
		}, []string{"cluster milan: you may not create/delete/get/patch quotas"}},
		"a missing role": {func(s *stubs, o *Options) {
			s.rome.Remove(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "", rbac.VirtualKubeletLocal().Named("liqo"))
		}, []string{"cluster rome: there is no ClusterRole " + rbac.VirtualKubeletLocal().Named("liqo")}},
		"overlapping ranges":   {func(s *stubs, o *Options) { s.milan.Install(s.T, "10.1.0.0/16") }, []string{"the pod ranges overlap"}},
		"a limit without name": {func(s *stubs, o *Options) { o.TenantLimits = map[string]*string{"nonsense": nil} }, []string{"--tenant-limit"}},
		"a node of that name":  {func(s *stubs, o *Options) { o.VirtualNode = "worker" }, []string{"there is a node worker"}},
		"a reserved name":      {func(s *stubs, o *Options) { o.VirtualNode = wire.ConsumerServiceAccount }, []string{"the virtual node cannot be called"}},
		"no https":             {func(s *stubs, o *Options) { o.APIServerURL = "http://milan" }, []string{"must be an https URL"}},
		"two problems":         {func(s *stubs, o *Options) { o.APIServerURL = "http://milan"; o.VirtualNode = "worker" }, []string{"must be an https URL", "there is a node worker"}},
		"not installed": {func(s *stubs, o *Options) {
			s.milan.Remove(appsv1.SchemeGroupVersion.WithKind("Deployment"), "liqo", "refract-controller-manager")
		}, []string{"cluster milan: found no installation of Refract"}},
		"an unlabelled tenant": {func(s *stubs, o *Options) { s.milan.Put(s.T, namespace("liqo-tenant-rome", nil)) }, []string{"is not the tenant namespace"}},
		"tenant of another one": {func(s *stubs, o *Options) {
			s.milan.Put(s.T, namespace("liqo-tenant-rome", map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "rome"}, wire.ClusterUIDAnnotation, "another"))
		}, []string{"is the tenant namespace of a different cluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStubs(t)
			o := s.options()
			test.change(s, o)
			before := s.inventory()
			err := s.peer(o)
			for _, want := range test.want {
				assert.ErrorContains(t, err, want)
			}
			assert.Equal(t, before, s.inventory())
			assert.Zero(t, s.writes())
		})
	}
}

// TestPeerWithoutCRDs checks that a cluster with an older version, which serves fewer resources, can be joined without
// these resources.
func TestPeerWithoutCRDs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		unserve func(s *stubs)
		want    string
	}{
		"ResourceSlices":  {func(s *stubs) { s.milan.Unserve("authentication.liqo.io", "resourceslices") }, "the cluster has no CRD for ResourceSlices, so it offers nothing"},
		"PeerNetworks":    {func(s *stubs) { s.milan.Unserve("plugins.refract.io", "peernetworks") }, "milan: the CRD PeerNetwork is missing"},
		"of the consumer": {func(s *stubs) { s.rome.Unserve("plugins.refract.io", "peernetworks") }, "rome: the CRD PeerNetwork is missing"},
		"Tenants":         {func(s *stubs) { s.milan.Unserve("authentication.liqo.io", "tenants") }, "virtual node milan is ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStubs(t)
			test.unserve(s)
			apart := s.inventory()
			require.NoError(t, s.peer(s.options()))
			assert.True(t, s.said(test.want), strings.Join(s.lines, "\n"))
			require.NoError(t, s.unpeer(s.options()))
			assert.Equal(t, apart, s.inventory())
		})
	}
}

// TestPeerWithAnInvitation checks that the consumer can be joined with an invitation, without access to the provider.
func TestPeerWithAnInvitation(t *testing.T) {
	t.Parallel()
	s := newStubs(t)
	apart := s.inventory()
	rome, err := cluster.Absent("rome")
	require.NoError(t, err)
	invite := s.options()
	invite.Consumer = rome
	invite.DryRun = true
	_, _, err = invite.Invite(t.Context(), time.Hour)
	require.NoError(t, err)
	assert.Zero(t, s.writes())
	invite.DryRun = false
	var kubeconfig []byte
	for range 2 {
		kubeconfig, _, err = invite.Invite(t.Context(), time.Hour)
		require.NoError(t, err)
	}
	raw, err := clientcmd.Load(kubeconfig)
	require.NoError(t, err)
	invited, err := invitation.Parse(raw, "")
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	provider := s.milan.As(t, config)
	guest := &cluster.Cluster{Name: "milan", Config: provider.Config, Client: provider.Client, Clientset: provider.Clientset, Invitation: invited}
	o := s.options()
	o.Provider = guest
	o.Resources = nil
	for range 2 {
		require.NoError(t, s.peer(o))
	}
	greedy := *o
	greedy.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
	require.ErrorContains(t, s.peer(&greedy), "--cpu is 64, but milan gives 2: request at most that")
	removal, err := o.Unpeer(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []Object{{"milan", "Namespace", "", "liqo-tenant-rome"}}, removal.Left)
	withdraw := s.options()
	withdraw.Consumer = rome
	_, err = withdraw.Withdraw(t.Context())
	require.NoError(t, err)
	assert.Equal(t, apart, s.inventory())
	_, err = withdraw.Withdraw(t.Context())
	require.ErrorContains(t, err, "there is no peering with rome")
	_, err = o.Peer(t.Context())
	var ended *invitation.EndedError
	require.True(t, errors.As(err, &ended), "%v", err)
}

// namespace returns a namespace with the given labels and, if it is given, an annotation.
func namespace(name string, labels map[string]string, annotation ...string) *corev1.Namespace {
	n := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if len(annotation) > 0 {
		n.Annotations = map[string]string{annotation[0]: annotation[1]}
	}
	return n
}
