// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/scheme"
	"github.com/refract-project/refract/test/support/testenv"
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, &cluster, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true}))
}

// installer is the Installer of a release together with its progress lines. Each installer has its own client, as each
// process would, because the set of installed CRDs changes.
type installer struct {
	*Installer
	said []string
}

func newInstaller(t *testing.T, namespace, name string) *installer {
	t.Helper()
	kinds, err := scheme.New()
	require.NoError(t, err)
	c, err := client.New(cluster.Config(), client.Options{Scheme: kinds})
	require.NoError(t, err)
	flags := genericclioptions.NewConfigFlags(false)
	kubeconfig := cluster.Kubeconfig()
	flags.KubeConfig = &kubeconfig
	i := &installer{}
	i.Installer = &Installer{Getter: flags, Client: c, Name: name, Namespace: namespace, Progress: func(line string) { i.said = append(i.said, line) }}
	return i
}

// texts returns all progress lines.
func (i *installer) texts() string { return strings.Join(i.said, "\n") }

// valuesFor returns the values that every installation requires.
func valuesFor(id string) map[string]any {
	image := func(name string) map[string]any {
		return map[string]any{"image": map[string]any{"name": "registry.example.com/refract/" + name}}
	}
	return map[string]any{
		"discovery":         map[string]any{"config": map[string]any{"clusterID": id}},
		"controllerManager": image("controller-manager"), "virtualKubelet": image("virtual-kubelet"),
	}
}

// install installs a release, and removes it at the end of the test.
func install(t *testing.T, namespace, name, id string) {
	t.Helper()
	_, err := newInstaller(t, namespace, name).Install(t.Context(), valuesFor(id))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, newInstaller(t, namespace, name).Uninstall(context.WithoutCancel(t.Context()), false, true))
	})
}

// create creates objects, and deletes them at the end of the test.
func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	c := newInstaller(t, "", "").Client
	for _, object := range objects {
		require.NoError(t, c.Create(t.Context(), object))
		t.Cleanup(func() { assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), object)) })
	}
}

// tenant returns the tenant namespace of a peer. Each test uses its own peers, because the deletion of a namespace
// takes a while.
func tenant(peer string, labels ...string) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.TenantNamespace(peer), Labels: map[string]string{
		wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: peer}}}
	for i := 0; i < len(labels); i += 2 {
		namespace.Labels[labels[i]] = labels[i+1]
	}
	return namespace
}
