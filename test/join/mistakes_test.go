// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/liqo"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestMistakes checks that mistakes in joining clusters are found before anything is changed, or that the created
// objects are removed. It also checks that the output of the commands matches the objects in the clusters. This test
// runs no containers.
func TestMistakes(t *testing.T) {
	t.Parallel()
	w := begin(t)
	for _, name := range []string{"rome", "milan"} {
		w.must("install", "--context="+name, "--cluster-id="+name, "--registry=registry.example.com/refract", replicas)
	}
	w.registerNodes("milan", "milan-b")
	w.wrongAddress()
	w.overlappingServices()
	w.notInvited()
	w.guest()
	w.again()
	w.mistaken()
	w.dryRun()
}

// reported is an object in the result of a command.
type reported struct{ Cluster, Kind, Namespace, Name string }

// result is the output of a command with -o, as a script would parse it.
type result struct {
	APIVersion, Kind, Command, Error, CredentialsExpire, Kubeconfig string
	Succeeded                                                       bool
	ExitCode                                                        int
	Steps, Warnings                                                 []string
	Objects, Removed, Left                                          []reported
}

// result runs a command that must succeed, and returns its parsed output.
func (w *world) result(args ...string) *result {
	w.Helper()
	printed, r := w.printed(args...), &result{}
	require.NoError(w, yaml.UnmarshalStrict([]byte(printed), r), "%s", printed)
	assert.Equal(w, "cli.refract.io/v1alpha1 Result", r.APIVersion+" "+r.Kind)
	assert.True(w, r.Succeeded && r.ExitCode == 0 && r.Error == "", "%s", printed)
	return r
}

// join returns the arguments of the command that joins rome with milan, without options for a network.
func (w *world) join(more ...string) []string {
	return append([]string{"peer", "--network=none", "--remote-context=milan", "--remote-api-server-url=" + w.milan.Config().Host}, more...)
}

// invite creates an invitation for rome. It returns the file of the invitation, and the flag that refers to it.
func (w *world) invite() (flag, file string) {
	w.Helper()
	r := w.result("generate", "peering-user", "rome", "--context=milan", "--cpu=2", "--memory=4Gi", "--api-server-url="+w.milan.Config().Host, "-o", "json")
	expires, err := time.Parse(time.RFC3339, r.CredentialsExpire)
	require.NoError(w, err)
	assert.WithinDuration(w, time.Now().Add(24*time.Hour), expires, 10*time.Minute)
	file = filepath.Join(w.TempDir(), "milan-for-rome")
	require.NoError(w, os.WriteFile(file, []byte(r.Kubeconfig), 0o600))
	return "--remote-kubeconfig=" + file, file
}

// wrongAddress checks that the commands peer and generate peering-user reject an address of milan at which rome would
// reach no server or the wrong server, and that the error contains the cause and the remedy.
func (w *world) wrongAddress() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	listen := func() (net.Listener, string) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w, err)
		return listener, "https://" + listener.Addr().String()
	}
	closed, nobody := listen()
	require.NoError(w, closed.Close())
	filtered, silent := listen() // the second listener accepts connections but never responds
	defer filtered.Close()
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	defer stranger.Close()
	for server, words := range map[string][]string{
		nobody:                 {"the API server of milan does not answer there", "connection refused", "open the firewall", "--skip-url-check"},
		silent:                 {"the API server of milan does not answer there", "open the firewall", "--skip-url-check"},
		w.rome.Config().Host:   {"another server than milan answers there", "set the address of milan"},
		stranger.URL:           {"another server than milan answers there", "certificate authority in the kubeconfig"},
		"http://milan.example": {"it must be an https URL"},
	} {
		flag := "--remote-api-server-url=" + server
		w.refused([]string{"peer", "--remote-context=milan", flag}, words...)
		w.refused([]string{"generate", "peering-user", "rome", "--context=milan", "--api-server-url=" + server}, words...)
	}
	w.must("peer", "--remote-context=milan", "--network=none", "--remote-api-server-url="+nobody, "--skip-url-check", "--dry-run")
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, milan)

	// The impostor's certificate is from the same CA, but the impostor rejects the credentials.
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/version" {
			out.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = out.Write([]byte(`{"gitVersion":"v1.36.3"}`))
	}))
	defer impostor.Close()
	for _, credentials := range []identity.Kind{identity.Tokens, identity.Certificates} {
		o := w.pair(w.milan.Config().Host, nil, func(string) {})
		o.Provider.Config.CAData = append(bytes.Clone(o.Provider.Config.CAData), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: impostor.Certificate().Raw})...)
		o.APIServerURL, o.Credentials = impostor.URL, credentials
		assert.ErrorContains(w, peer(w.Context(), o), "another cluster answers there")
		w.unchanged(w.rome, rome)
		w.unchanged(w.milan, milan)
	}
}

// overlappingServices checks that peer refuses pod ranges that overlap with cluster IPs of the other cluster, unless
// there is no network between the pods or overlapping ranges are permitted.
func (w *world) overlappingServices() {
	w.Helper()
	peer := []string{"peer", "--remote-context=milan", "--remote-api-server-url=" + w.milan.Config().Host, "--dry-run"}
	for _, ranges := range []struct{ pods, remotePods, says string }{
		{"10.1.0.0/16", w.rome.ServiceCIDR(), "the pod range " + w.rome.ServiceCIDR() + " of milan overlaps with the Service range " + w.rome.ServiceCIDR() + " of rome"},
		{w.milan.ServiceCIDR(), "10.1.0.0/16", "the pod range " + w.milan.ServiceCIDR() + " of rome overlaps with the Service range " + w.milan.ServiceCIDR() + " of milan"},
	} {
		overlap := append(slices.Clone(peer), "--pod-cidrs="+ranges.pods, "--remote-pod-cidrs="+ranges.remotePods)
		w.refused(overlap, ranges.says, "--network=none", "--overlapping-ranges")
		w.must(append(overlap, "--overlapping-ranges")...)
		w.must(append(overlap, "--network=none")...)
	}
}

// again runs peer for clusters that are already joined. Settings without a flag must stay unchanged.
func (w *world) again() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	at := strings.Replace(w.milan.Config().Host, "127.0.0.1", "localhost", 1) // the kubeconfig contains 127.0.0.1
	server := "--remote-api-server-url=" + at
	w.refused([]string{"peer", "--remote-context=milan", server, "--pod-cidrs=10.7.0.0/16", "--remote-pod-cidrs=10.7.0.0/16"}, "the pod ranges overlap")
	w.must("peer", "--remote-context=milan", server, "--virtual-node=milan-b", "--cpu=3", "--resource=example.com/gpu=2", "--credentials=certificate",
		"--network=reachable", "--pod-cidrs=10.7.0.0/16", "--remote-pod-cidrs=10.7.0.0/16", "--overlapping-ranges")
	joined := map[*side]string{w.rome: w.inventory(w.rome), w.milan: w.inventory(w.milan)}
	secret := w.secret()
	assert.Contains(w, w.must("peer", "--remote-context=milan"), "keeping the address "+at+" of milan")
	for s, inventory := range joined {
		w.unchanged(s, inventory)
	}
	assert.Equal(w, secret.Data, w.secret().Data)

	// An earlier version did not record that ranges may overlap, or did not compare all of them. Clusters that are
	// already joined must remain joined.
	typed := w.typed(w.rome.Config())
	network := &plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("milan"), Name: "milan"}}
	require.NoError(w, typed.Patch(w.Context(), network, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, wire.OverlappingRangesAnnotation))))
	assert.Contains(w, w.must("peer", "--remote-context=milan"), "warning: the pod ranges overlap")
	w.refused([]string{"peer", "--remote-context=milan", "--network=reachable"}, "the pod ranges overlap")

	lost := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan", Annotations: map[string]string{wire.PermanentlyUnreachableAnnotation: "true"}}, Spec: core.ForeignClusterSpec{ClusterID: "milan"}}
	require.NoError(w, typed.Create(w.Context(), lost))
	w.must("peer", "--remote-context=milan", "--cpu=5")
	require.NoError(w, typed.Get(w.Context(), client.ObjectKeyFromObject(lost), lost))
	assert.NotContains(w, lost.Annotations, wire.PermanentlyUnreachableAnnotation, "its controllers wait for milan again")
	vn := &offloading.VirtualNode{}
	require.NoError(w, typed.Get(w.Context(), client.ObjectKey{Namespace: wire.TenantNamespace("milan"), Name: "milan-b"}, vn))
	assert.Equal(w, "cpu=5,example.com/gpu=2,memory=8Gi,pods=110", vn.Annotations[wire.RequestedResourcesAnnotation])
	assert.Equal(w, "10.7.0.0/16", vn.Annotations[wire.RangesAnnotation])
	// A user who edits the VirtualNode on the consumer does not get more resources.
	require.NoError(w, typed.Patch(w.Context(), vn, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"cpu=1000"}}}`, wire.RequestedResourcesAnnotation))))
	w.must("peer", "--remote-context=milan")
	quota := &offloading.Quota{}
	require.NoError(w, w.typed(w.milan.Config()).Get(w.Context(), client.ObjectKey{Namespace: wire.TenantNamespace("rome"), Name: "rome"}, quota))
	assert.Equal(w, int64(5), quota.Spec.Resources.Cpu().Value())
	assert.Equal(w, "8Gi", quota.Spec.Resources.Memory().String())

	w.must("create", "virtualnode", "milan", "--provider=milan", "--cpu=1", "--node-selector=gpu=true", "--label=tier=fast")
	require.NoError(w, typed.Get(w.Context(), client.ObjectKey{Namespace: wire.TenantNamespace("milan"), Name: "milan"}, vn))
	assert.Equal(w, "10.7.0.0/16", vn.Annotations[wire.RangesAnnotation], "as declared for the peering")
	node := w.inventory(w.rome)
	w.must("create", "virtualnode", "milan", "--provider=milan")
	w.unchanged(w.rome, node)
	w.adoptsAllOrNone(typed)
	w.must("unpeer", "--remote-context=milan")
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, milan)
}

// adoptsAllOrNone tests adopting several virtual nodes, one of which cannot be adopted. The command must notice this
// before it changes any other virtual node, and must revoke the permissions.
func (w *world) adoptsAllOrNone(typed client.WithWatch) {
	w.Helper()
	template := []byte(`{"spec":{"template":{"spec":{"template":{"spec":{"containers":[{"name":"virtual-kubelet","image":"registry.example.com/liqo"}]}}}}}}`)
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("milan"), Name: "milan"}}
	require.NoError(w, typed.Patch(w.Context(), vn, client.RawPatch(types.MergePatchType, template)))
	before := w.inventory(w.rome)
	w.refused([]string{"liqo", "adopt", "--image=registry.example.com/refract"}, "milan-b has no spec.template")
	w.unchanged(w.rome, before)

	refusal := errors.New("a policy forbids it")
	o := &liqo.Options{Nodes: []string{"milan"}, Image: "registry.example.com/refract", Clientset: w.rome.client, Progress: func(string) {}, Client: interceptor.NewClient(typed, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refusal
		},
	})}
	assert.ErrorIs(w, o.Adopt(w.Context()), refusal)
	w.unchanged(w.rome, before)
}

// mistaken checks that commands refuse a cluster that differs from the joined cluster, a peer that does not exist, and
// ranges of another peer.
func (w *world) mistaken() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	w.refused([]string{"unpeer", "turin", "--force"}, "there is no peering with turin", "none")
	typed := w.typed(w.rome.Config())
	turin := &plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "turin"},
		Spec: plugins.PeerNetworkSpec{ClusterID: "turin", Mode: plugins.ReachableNetwork, Remote: plugins.NetworkSide{PodCIDRs: []plugins.CIDR{"10.7.0.0/16"}}}}
	require.NoError(w, typed.Create(w.Context(), turin))
	peer := []string{"peer", "--remote-context=milan", "--remote-api-server-url=" + w.milan.Config().Host, "--remote-pod-cidrs=10.7.8.0/24", "--dry-run"}
	w.refused(peer, "the pod range 10.7.8.0/24 of milan overlaps with 10.7.0.0/16 of its peer turin")
	w.must(append(peer, "--network=none")...)
	require.NoError(w, typed.Delete(w.Context(), turin))

	w.must(w.join()...)
	joined := map[*side]string{w.rome: w.inventory(w.rome), w.milan: w.inventory(w.milan)}
	for _, s := range []*side{w.rome, w.milan} {
		tenant := wire.TenantNamespace(map[*side]string{w.rome: "milan", w.milan: "rome"}[s])
		uid := func(value string) {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, wire.ClusterUIDAnnotation, value)
			_, err := s.client.CoreV1().Namespaces().Patch(w.Context(), tenant, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			require.NoError(w, err)
		}
		uid(`"another"`)
		w.refused([]string{"unpeer", "--remote-context=milan"}, "namespace "+tenant+" is the tenant namespace of a different cluster")
		uid("null")
		w.must(w.join()...) // the command peer records the UID again
		w.unchanged(s, joined[s])
	}
	w.must("unpeer", "--remote-context=milan")
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, milan)
}

// notInvited checks that a failed invitation leaves no objects, and that an expired or withdrawn invitation is refused
// and changes nothing.
func (w *world) notInvited() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	o := w.pair(w.milan.Config().Host, func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if kind, ok := object.(interface{ GetKind() string }); ok && kind.GetKind() == "RoleBinding" {
				return errors.New("a policy forbids it")
			}
			return c.Apply(ctx, object, options...)
		}})
	}, func(string) {})
	var err error
	o.Consumer, err = cluster.Absent("rome")
	require.NoError(w, err)
	_, _, err = o.Invite(w.Context(), time.Hour)
	assert.ErrorContains(w, err, "a policy forbids it")
	w.unchanged(w.milan, milan)

	flag, file := w.invite()
	// The range overlaps with milan's Service range, which the invitation contains.
	w.refused([]string{"peer", flag, "--pod-cidrs=" + w.milan.ServiceCIDR()}, "overlaps with the Service range "+w.milan.ServiceCIDR()+" of milan")
	invited := w.inventory(w.milan)
	expired := w.expired(file)
	for _, command := range []string{"peer", "unpeer"} {
		w.refused([]string{command, "--remote-kubeconfig=" + expired}, "the invitation expired at "+time.Now().Add(-24*time.Hour).UTC().Format("2006-01-02T"), "refractctl generate peering-user rome again")
	}
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, invited)

	deleted := w.result("delete", "peering-user", "rome", "--context=milan", "-o", "yaml")
	assert.Contains(w, deleted.Removed, reported{"milan", "Namespace", "", "liqo-tenant-rome"})
	assert.Contains(w, deleted.Removed, reported{"milan", "ServiceAccount", "liqo-tenant-rome", wire.ConsumerServiceAccount})
	assert.Empty(w, deleted.Left)
	w.revoked(file)
	w.refused([]string{"peer", flag, "--remote-api-server-url=" + w.milan.Config().Host}, "the invitation was withdrawn")
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, milan)
}

// expired writes an invitation that was issued two days ago and has expired, and returns its file.
func (w *world) expired(invitation string) (file string) {
	w.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(invitation)
	require.NoError(w, err)
	kubeconfig.AuthInfos["rome"].Token = w.aged(kubeconfig.AuthInfos["rome"].Token, 48*time.Hour)
	file = filepath.Join(w.TempDir(), "expired")
	require.NoError(w, clientcmd.WriteToFile(*kubeconfig, file))
	return file
}

// revoked waits until milan rejects the token of an invitation. This takes some seconds, because its API server
// caches valid tokens.
func (w *world) revoked(invitation string) {
	w.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", invitation)
	require.NoError(w, err)
	guest, err := kubernetes.NewForConfig(config)
	require.NoError(w, err)
	testenv.Eventually(w.T, func() error {
		if _, err := guest.Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token of a ServiceAccount that is gone is still accepted: %w", err)
		}
		return nil
	})
}

// aged returns the token with its times moved into the past, signed as by milan's API server.
func (w *world) aged(token string, by time.Duration) string {
	w.Helper()
	parts := strings.Split(token, ".")
	require.Len(w, parts, 3)
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(w, err)
	claims := map[string]any{}
	require.NoError(w, json.Unmarshal(text, &claims))
	for _, name := range []string{"iat", "nbf", "exp"} {
		claims[name] = int64(claims[name].(float64)) - int64(by.Seconds())
	}
	text, err = json.Marshal(claims)
	require.NoError(w, err)
	file, err := os.ReadFile(filepath.Join(filepath.Dir(w.milan.Kubeconfig()), "pki", "service-account.key"))
	require.NoError(w, err)
	parsed, err := keyutil.ParsePrivateKeyPEM(file)
	require.NoError(w, err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, parsed.(*ecdsa.PrivateKey), digest[:])
	require.NoError(w, err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...) // see RFC 7518, section 3.4
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// guest tests the permissions of an invitation. They must be sufficient for peer and unpeer, and must not allow
// anything else.
func (w *world) guest() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	flag, file := w.invite()
	joined := w.result("peer", flag, "--remote-api-server-url="+w.milan.Config().Host, "--network=none", "-o", "json")
	assert.Equal(w, []reported{{"rome", "Node", "", "milan"}, {"rome", "VirtualNode", "liqo-tenant-milan", "milan"}, {"rome", "Secret", "liqo-tenant-milan", "kubeconfig-controlplane-milan"}}, joined.Objects)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(w, err)
	guest, err := kubernetes.NewForConfig(config)
	require.NoError(w, err)
	w.only(guest)
	w.forbidden(guest, w.typed(config))

	// The token in the file has expired, as it would after a day. The consumer has already renewed its token.
	parted := w.result("unpeer", "--remote-kubeconfig="+w.expired(file), "-o", "json")
	assert.Contains(w, parted.Removed, reported{"rome", "Namespace", "", "liqo-tenant-milan"})
	assert.Equal(w, []reported{{"milan", "Namespace", "", "liqo-tenant-rome"}}, parted.Left, "its administrator removes it")
	w.unchanged(w.rome, rome)
	w.must("delete", "peering-user", "rome", "--context=milan")
	w.unchanged(w.milan, milan)
}

// only checks, with reviews of the API server, that a consumer has exactly the permissions of its role in the tenant
// namespace, and none in other namespaces.
func (w *world) only(guest kubernetes.Interface) {
	w.Helper()
	config, err := w.milan.ServiceAccountConfig(w.Context(), metav1.NamespaceDefault, "default")
	require.NoError(w, err)
	anybody, err := kubernetes.NewForConfig(config)
	require.NoError(w, err)
	rights := func(who kubernetes.Interface, namespace string) (all []string) {
		review, err := who.AuthorizationV1().SelfSubjectRulesReviews().Create(w.Context(), &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		require.NoError(w, err)
		require.False(w, review.Status.Incomplete, review.Status.EvaluationError)
		var rules []rbacv1.PolicyRule
		for _, rule := range review.Status.ResourceRules {
			rules = append(rules, rbacv1.PolicyRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
		}
		for _, rule := range review.Status.NonResourceRules {
			for _, url := range rule.NonResourceURLs {
				for _, verb := range rule.Verbs {
					all = append(all, verb+" "+url)
				}
			}
		}
		return append(all, spelt(rules)...)
	}
	for _, namespace := range []string{wire.TenantNamespace("rome"), metav1.NamespaceDefault, metav1.NamespaceSystem, "liqo", "liqo-tenant-turin"} {
		want := rights(anybody, namespace)
		if namespace == wire.TenantNamespace("rome") {
			want = append(want, spelt(rbac.RemoteControlPlane().PolicyRules(strings.NewReplacer()))...)
		}
		for _, url := range []string{"/livez", "/readyz", "/version"} {
			want = append(want, "get "+url)
		}
		has := rights(guest, namespace)
		for _, list := range []*[]string{&want, &has} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
		assert.Equal(w, want, has, "rights in namespace %s", namespace)
	}
}

// spelt returns the requests that rules allow, with one text for each request.
func spelt(rules []rbacv1.PolicyRule) (all []string) {
	for _, a := range rbac.Attributes("", rules) {
		all = append(all, strings.Join([]string{a.Verb, a.Group, a.Resource, a.Subresource, a.Name}, " "))
	}
	return all
}

// forbidden checks that requests that a consumer may not send fail with the consumer's credentials.
func (w *world) forbidden(guest kubernetes.Interface, typed client.Client) {
	w.Helper()
	ctx, tenant := w.Context(), wire.TenantNamespace("rome")
	admin := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	me := []rbacv1.Subject{rbac.ServiceAccount(tenant, wire.ConsumerServiceAccount)}
	always := metav1.ObjectMeta{GenerateName: "forbidden-"}
	for what, try := range map[string]func() error{
		"read a Secret of the installation": func() error {
			_, err := guest.CoreV1().Secrets("liqo").List(ctx, metav1.ListOptions{})
			return err
		},
		"read Secrets of all namespaces": func() error {
			_, err := guest.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"read Secrets of its tenant namespace": func() error {
			_, err := guest.CoreV1().Secrets(tenant).List(ctx, metav1.ListOptions{})
			return err
		},
		"bind cluster-admin": func() error {
			_, err := guest.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: always, RoleRef: admin, Subjects: me}, metav1.CreateOptions{})
			return err
		},
		"bind cluster-admin in its tenant namespace": func() error {
			_, err := guest.RbacV1().RoleBindings(tenant).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: always, RoleRef: admin, Subjects: me}, metav1.CreateOptions{})
			return err
		},
		"create a namespace": func() error {
			_, err := guest.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: always}, metav1.CreateOptions{})
			return err
		},
		"delete its tenant namespace": func() error { return guest.CoreV1().Namespaces().Delete(ctx, tenant, metav1.DeleteOptions{}) },
		"claim to be another cluster": func() error {
			_, err := guest.CoreV1().Namespaces().Patch(ctx, tenant, types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/remote-cluster-id":"turin"}}}`), metav1.PatchOptions{})
			return err
		},
		"run a pod in its tenant namespace": func() error {
			_, err := guest.CoreV1().Pods(tenant).Create(ctx, &corev1.Pod{ObjectMeta: always, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}, metav1.CreateOptions{})
			return err
		},
		"get a token of another ServiceAccount": func() error {
			_, err := guest.CoreV1().ServiceAccounts(tenant).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		},
		"get a token of the controller manager": func() error {
			_, err := guest.CoreV1().ServiceAccounts("liqo").CreateToken(ctx, "refract-controller-manager", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		},
		"request a certificate": func() error {
			_, err := guest.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: always,
				Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: []byte("a"), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}}, metav1.CreateOptions{})
			return err
		},
		"read nodes": func() error {
			_, err := guest.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err
		},
		"grant itself more": func() error {
			quota := &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "rome"}}
			return typed.Patch(ctx, quota, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"resources":{"cpu":"100"}}}`)))
		},
		"run a pod beside the Quota": func() error {
			shadow := &offloading.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "forbidden-"}}
			return typed.Create(ctx, shadow)
		},
		"write the heartbeat of another": func() error {
			_, err := guest.CoordinationV1().Leases("liqo").Patch(ctx, "anything", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"rome"}}`), metav1.PatchOptions{})
			return err
		},
		"be somebody else": func() error {
			config, err := w.milan.ServiceAccountConfig(ctx, tenant, wire.ConsumerServiceAccount)
			require.NoError(w, err)
			config.Impersonate.UserName = "system:admin"
			other, err := kubernetes.NewForConfig(config)
			require.NoError(w, err)
			_, err = other.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			w.Errorf("a consumer may %s: %v", what, err)
		}
	}
}

// dryRun checks that the dry run of unpeer lists exactly the objects that unpeer removes, and that the results of peer
// and create virtualnode contain the data that scripts need.
func (w *world) dryRun() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	joined := w.result(w.join("--cpu=2", "-o", "yaml")...)
	assert.Equal(w, "peer", joined.Command)
	assert.Contains(w, joined.Steps, "virtual node milan is ready")
	assert.Contains(w, joined.Objects, reported{"rome", "VirtualNode", "liqo-tenant-milan", "milan"})
	expires, err := time.Parse(time.RFC3339, joined.CredentialsExpire)
	require.NoError(w, err)
	assert.Greater(w, time.Until(expires), 30*time.Minute)
	created := w.result("create", "virtualnode", "milan-b", "--provider=milan", "--cpu=1", "-o", "json")
	assert.Contains(w, created.Objects, reported{"rome", "Node", "", "milan-b"})
	assert.Equal(w, joined.CredentialsExpire, created.CredentialsExpire)
	// The RoleBinding is in a namespace that is kept, so unpeer must not remove it. The user's ConfigMap is in the
	// tenant namespace, and is deleted with it.
	_, err = w.rome.client.RbacV1().RoleBindings(metav1.NamespaceDefault).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "of-nobody", Labels: map[string]string{"team": "web"}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}, metav1.CreateOptions{})
	require.NoError(w, err)
	_, err = w.milan.client.CoreV1().ConfigMaps(wire.TenantNamespace("rome")).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "note"}}, metav1.CreateOptions{})
	require.NoError(w, err)

	before := map[*side]string{w.rome: w.inventory(w.rome), w.milan: w.inventory(w.milan)}
	objects := w.objects()
	said := w.must("unpeer", "--remote-context=milan", "--dry-run")
	for _, line := range []string{"rome: Node milan-b would be removed", "rome: Secret liqo-tenant-milan/kubeconfig-controlplane-milan would be removed", "milan: ConfigMap liqo-tenant-rome/note would be removed", "milan: Namespace liqo-tenant-rome would be removed"} {
		assert.Contains(w, said, line+"\n")
	}
	planned := w.result("unpeer", "--remote-context=milan", "--dry-run", "-o", "json")
	for s, inventory := range before {
		w.unchanged(s, inventory)
	}
	assert.Empty(w, planned.Left)

	done := w.result("unpeer", "--remote-context=milan", "-o", "json")
	testenv.Eventually(w, func() error {
		now := w.objects()
		var gone []reported
		for object := range objects {
			if !now[object] {
				gone = append(gone, object)
			}
		}
		for _, object := range gone {
			if !slices.Contains(planned.Removed, object) {
				return fmt.Errorf("the dry run has not listed %v, which is gone", object)
			}
		}
		for _, object := range planned.Removed {
			if !slices.Contains(gone, object) {
				return fmt.Errorf("the dry run has listed %v, which is still there, or never was", object)
			}
		}
		return nil
	})
	for _, object := range done.Removed {
		assert.Contains(w, planned.Removed, object)
	}
	assert.Contains(w, done.Removed, reported{"rome", "VirtualNode", "liqo-tenant-milan", "milan-b"})
	assert.Contains(w, done.Removed, reported{"milan", "Namespace", "", "liqo-tenant-rome"})
	require.NoError(w, w.rome.client.RbacV1().RoleBindings(metav1.NamespaceDefault).Delete(w.Context(), "of-nobody", metav1.DeleteOptions{}))
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, milan)
	w.abandoned()
}

// abandoned checks that the objects on a provider are kept when the consumer gives the provider up.
func (w *world) abandoned() {
	w.Helper()
	w.must(w.join()...)
	said := w.must("unpeer", "milan", "--force", "--dry-run")
	assert.Contains(w, said, "rome: Namespace liqo-tenant-milan would be removed\n")
	assert.Contains(w, said, "milan: Namespace liqo-tenant-rome would be left\n")
	w.must("unpeer", "--remote-context=milan")
}

// objects returns the persistent objects of both clusters.
func (w *world) objects() map[reported]bool {
	w.Helper()
	all := map[reported]bool{}
	for name, s := range map[string]*side{"rome": w.rome, "milan": w.milan} {
		w.each(s, func(_ string, object *unstructured.Unstructured) {
			if object.GetKind() != "Endpoints" {
				all[reported{name, object.GetKind(), object.GetNamespace(), object.GetName()}] = true
			}
		})
	}
	return all
}
