// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile tests attacks by a peer, which acts either as the administrator of its own cluster or with its
// identity in the other cluster. The control planes are real. Refract is installed and the clusters are joined with
// refractctl, with all policies of the chart. Refract's Deployments run as processes on this machine.
package hostile

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/test/deployments"
	"github.com/refract-project/refract/test/support/testenv"
)

// side is one of the clusters, accessed by its administrator.
type side struct {
	*deployments.Cluster
	id    string
	admin client.WithWatch
}

// clusters contains clusters that run Refract.
type clusters struct {
	*testing.T
	scheme     *runtime.Scheme
	kubeconfig string
	sides      map[string]*side
}

// begin starts clusters with the given IDs, and installs Refract in each of them. install contains additional arguments
// for the installation, by cluster ID.
func begin(t *testing.T, install map[string][]string, ids ...string) *clusters {
	t.Helper()
	log.SetLogger(logr.Discard())
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	l := &clusters{T: t, scheme: scheme, kubeconfig: filepath.Join(t.TempDir(), "config"), sides: map[string]*side{}}
	bin := filepath.Join(t.TempDir(), "bin")
	testenv.NeedControlPlane(t)
	require.NoError(t, testenv.BuildCommands(t.Context(), bin, "controller-manager", "virtual-kubelet"))
	var options []testenv.Options
	for _, id := range ids {
		options = append(options, testenv.Options{Name: id, KwokNodes: 1})
	}
	merged := clientcmdapi.NewConfig()
	for i, cluster := range testenv.ForTest(t, options...) {
		own, err := clientcmd.LoadFromFile(cluster.Kubeconfig())
		require.NoError(t, err)
		context := own.Contexts[own.CurrentContext]
		merged.Clusters[ids[i]], merged.AuthInfos[ids[i]] = own.Clusters[context.Cluster], own.AuthInfos[context.AuthInfo]
		merged.Contexts[ids[i]] = &clientcmdapi.Context{Cluster: ids[i], AuthInfo: ids[i]}
		clients, err := kubernetes.NewForConfig(cluster.Config())
		require.NoError(t, err)
		l.sides[ids[i]] = &side{Cluster: &deployments.Cluster{Cluster: cluster, Client: clients}, id: ids[i], admin: l.client(cluster.Config())}
	}
	require.NoError(t, clientcmd.WriteToFile(*merged, l.kubeconfig))
	for _, id := range ids {
		l.refractctl(append([]string{"install", "--context=" + id, "--cluster-id=" + id, "--registry=registry.example.com/refract", "--set=controllerManager.replicas=1,virtualKubelet.replicas=1"}, install[id]...)...)
		l.sides[id].RedirectWebhooks(t)
		t.Cleanup(l.sides[id].Run(t, bin))
	}
	return l
}

func (l *clusters) client(config *rest.Config) client.WithWatch {
	l.Helper()
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: l.scheme})
	require.NoError(l, err)
	return c
}

// refractctl runs a command line. If it fails, the test ends.
func (l *clusters) refractctl(args ...string) {
	l.Helper()
	var out bytes.Buffer
	command := cli.NewCommand("refractctl")
	command.SetArgs(append(args, "--kubeconfig="+l.kubeconfig))
	command.SetOut(&out)
	command.SetErr(&out)
	err := command.ExecuteContext(l.Context())
	l.Logf("refractctl %s\n%s", strings.Join(args, " "), out.String())
	require.NoError(l, err)
}

// peer joins the consumer with the provider, so that the provider becomes a virtual node of the consumer.
func (l *clusters) peer(consumer, provider string) {
	l.Helper()
	l.refractctl("peer", "--context="+consumer, "--remote-context="+provider, "--remote-api-server-url="+l.sides[provider].Config().Host, "--network=none")
}

// identity returns a client for the provider with the credentials of the consumer.
func (l *clusters) identity(consumer, provider string) client.WithWatch {
	l.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(provider), Name: "kubeconfig-controlplane-" + provider}
	require.NoError(l, l.sides[consumer].admin.Get(l.Context(), key, secret))
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[wire.KubeconfigSecretKey])
	require.NoError(l, err)
	return l.client(config)
}

// kubelet returns a client for the consumer with the credentials of its virtual kubelet for the provider.
func (l *clusters) kubelet(consumer, provider string) client.WithWatch {
	l.Helper()
	config, err := l.sides[consumer].ServiceAccountConfig(l.Context(), wire.TenantNamespace(provider), provider)
	require.NoError(l, err)
	return l.client(config)
}

// create creates an object. If this fails, the test ends.
func (l *clusters) create(s *side, object client.Object) {
	l.Helper()
	require.NoErrorf(l, s.admin.Create(l.Context(), object), "creating %T %s in %s", object, client.ObjectKeyFromObject(object), s.id)
}

// patch applies a merge patch to an object or, if status is true, to its status.
func (l *clusters) patch(s *side, object client.Object, patch string, status bool) {
	l.Helper()
	merge := client.RawPatch(types.MergePatchType, []byte(patch))
	var err error
	if status {
		err = s.admin.Status().Patch(l.Context(), object, merge)
	} else {
		err = s.admin.Patch(l.Context(), object, merge)
	}
	require.NoErrorf(l, err, "patching %T %s in %s", object, client.ObjectKeyFromObject(object), s.id)
}

// await waits until holds returns nil.
func (l *clusters) await(what string, holds func() error) {
	l.Helper()
	var last error
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if last = holds(); last == nil {
			return
		}
	}
	l.Fatalf("waiting for %s: %v", what, last)
}

// refused checks that the API server refuses a request, and that the response contains the words.
func (l *clusters) refused(what, words string, do func() error) {
	l.Helper()
	if err := do(); err == nil || !strings.Contains(err.Error(), words) {
		l.Errorf("%s: %v, want a refusal with %q", what, err, words)
	}
}

// arrives waits until a Secret exists.
func (l *clusters) arrives(s *side, namespace, name string) {
	l.Helper()
	l.await(fmt.Sprintf("Secret %s/%s to arrive in %s", namespace, name, s.id), func() error {
		return s.admin.Get(l.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Secret{})
	})
}
