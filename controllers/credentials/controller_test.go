// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package credentials_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/credentials"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var (
	options  = testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}
	consumer = controllertest.Cluster{ID: "rome", Options: options}
	provider = controllertest.Cluster{ID: "milan", Options: options}
)

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer, &provider)) }

// life is the lifetime of the tokens. API servers do not allow a shorter one.
const life = 10 * time.Minute

// later is a clock that is ahead of the system clock.
type later struct {
	clock.WithTicker
	by time.Duration
}

func (l later) Now() time.Time                  { return l.WithTicker.Now().Add(l.by) }
func (l later) Since(t time.Time) time.Duration { return l.Now().Sub(t) }

// after starts the consumer's controllers with a clock that is ahead of the system clock by the given age.
func after(t *testing.T, age time.Duration) *controllertest.Manager {
	t.Helper()
	return consumer.StartManager(t, func(o *controllers.Options) { o.Clock = later{clock.RealClock{}, age} })
}

// peering is a peering of rome with milan. Each test uses its own ID for milan.
type peering struct {
	*testing.T
	id            string // ID of milan in this test
	tenant        string // tenant namespace on milan
	client        kubernetes.Interface
	here, account string
}

const secretName = "kubeconfig"

func join(t *testing.T, id string) *peering {
	t.Helper()
	client, err := kubernetes.NewForConfig(provider.Config())
	require.NoError(t, err)
	p := &peering{T: t, id: id, client: client, tenant: provider.Namespace(t), here: consumer.Namespace(t), account: wire.ConsumerServiceAccount}
	access := rbac.Peer("", "rome")
	access.Account = ptr.To(rbac.ServiceAccount(p.tenant, p.account))
	access.Prefix = p.tenant
	require.NoError(t, provider.Grant(t.Context(), append(access.Objects(), access.TenantNamespace(p.tenant))...))
	_, err = client.CoreV1().ServiceAccounts(p.tenant).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: p.account}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, consumer.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.Provider(p.here, secretName)...))
	consumer.Create(t, &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: id},
		Spec: offloading.VirtualNodeSpec{ClusterID: core.ClusterID(id), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: secretName}}})
	return p
}

// store stores a kubeconfig that contains the user.
func (p *peering) store(user *clientcmdapi.AuthInfo) []byte {
	p.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["milan"] = &clientcmdapi.Cluster{Server: provider.Config().Host, CertificateAuthorityData: provider.Config().CAData}
	config.AuthInfos["rome"] = user
	config.Contexts["milan"] = &clientcmdapi.Context{Cluster: "milan", AuthInfo: "rome"}
	config.CurrentContext = "milan"
	kubeconfig, err := clientcmd.Write(*config)
	require.NoError(p, err)
	consumer.Create(p.T, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: secretName, Annotations: map[string]string{wire.RemoteTenantNamespaceAnnotation: p.tenant}},
		Data: map[string][]byte{wire.KubeconfigSecretKey: kubeconfig}})
	return kubeconfig
}

func (p *peering) token() *clientcmdapi.AuthInfo {
	p.Helper()
	answer, err := p.client.CoreV1().ServiceAccounts(p.tenant).CreateToken(p.Context(), p.account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(life.Seconds()))}}, metav1.CreateOptions{})
	require.NoError(p, err)
	return &clientcmdapi.AuthInfo{Token: answer.Status.Token}
}

func (p *peering) stored() []byte {
	p.Helper()
	secret := &corev1.Secret{}
	consumer.Get(p.T, secret, p.here, secretName)
	return secret.Data[wire.KubeconfigSecretKey]
}

// awaitRenewal waits until the token in the Secret differs from first, and returns the user of the new token.
func (p *peering) awaitRenewal(first []byte) string {
	p.Helper()
	consumer.AwaitEvent(p.T, p.here, "VirtualNode", p.id, "CredentialsRenewed")
	now := p.stored()
	require.NotEqual(p, string(first), string(now))
	config, err := clientcmd.RESTConfigFromKubeConfig(now)
	require.NoError(p, err)
	opened, err := kubernetes.NewForConfig(config)
	require.NoError(p, err)
	review, err := opened.AuthenticationV1().SelfSubjectReviews().Create(p.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(p, err)
	return review.Status.UserInfo.Username
}

func TestATokenIsRenewedWhenAThirdOfItsLifeIsOver(t *testing.T) {
	p := join(t, "milan-a")
	first := p.store(p.token())
	young := credentials.NewController(consumer.Client, consumer.Client, events.NewFakeRecorder(1), credentials.Options{Clock: clock.RealClock{}})
	result, err := young.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: p.here, Name: p.id}})
	require.NoError(t, err)
	assert.InDelta(t, (life / 3).Seconds(), result.RequeueAfter.Seconds(), 30)
	assert.Equal(t, string(first), string(p.stored()), "a new token was renewed")
	after(t, life/2)
	assert.Equal(t, "system:serviceaccount:"+p.tenant+":"+wire.ConsumerServiceAccount, p.awaitRenewal(first))
}

func TestATokenThatCannotBeRenewedStays(t *testing.T) {
	p := join(t, "milan-b")
	first := p.store(p.token())
	require.NoError(t, p.client.CoreV1().ServiceAccounts(p.tenant).Delete(t.Context(), p.account, metav1.DeleteOptions{}))
	after(t, life/2)
	event := consumer.AwaitEvent(t, p.here, "VirtualNode", p.id, "CredentialsNotRenewed")
	for _, want := range []string{"Secret " + p.here + "/" + secretName, "cluster milan-b", "run refractctl peer again"} {
		assert.Contains(t, event.Note, want)
	}
	assert.Equal(t, string(first), string(p.stored()))
}

// TestAnotherClusterIsNotAsked checks that no token is sent to another cluster that has taken over the address of the
// provider.
func TestAnotherClusterIsNotAsked(t *testing.T) {
	p := join(t, "milan-c")
	first := p.store(p.token())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: wire.HeartbeatLease, Annotations: map[string]string{wire.ClusterIDAnnotation: "turin"}}}
	leases := p.client.CoordinationV1().Leases(p.tenant)
	lease, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	after(t, life/2)
	event := consumer.AwaitEvent(t, p.here, "VirtualNode", p.id, "CredentialsNotRenewed")
	assert.Contains(t, event.Note, `belongs to cluster "turin"`)
	assert.Equal(t, string(first), string(p.stored()))
	lease.Annotations[wire.ClusterIDAnnotation] = "milan-c"
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
	p.awaitRenewal(first)
}

// TestOtherCredentialsStay checks that these credentials are not renewed: a certificate that refractctl has not
// requested, a static token, and a token of another ServiceAccount.
func TestOtherCredentialsStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, provider.KubeconfigFor(path, "kubelet-of-rome", "rome"))
	certificate, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	for id, user := range map[string]*clientcmdapi.AuthInfo{
		"milan-d": certificate.AuthInfos[certificate.Contexts[certificate.CurrentContext].AuthInfo], "milan-e": {Token: "static"}, "milan-f": nil,
	} {
		p := join(t, id)
		if user == nil {
			_, err := p.client.CoreV1().ServiceAccounts(p.tenant).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
			require.NoError(t, err)
			p.account = "other"
			user = p.token()
		}
		defer func(first []byte) {
			assert.Equal(t, string(first), string(p.stored()), "%s", id)
			assert.Empty(t, consumer.Events(t, p.here, "VirtualNode", id), "%s", id)
		}(p.store(user))
	}
	last := join(t, "milan-g")
	first := last.store(last.token())
	after(t, life/2)
	last.awaitRenewal(first) // the Secrets of the other peerings have been processed before this one
	assert.False(t, strings.Contains(string(first), "certificate-data"))
}
