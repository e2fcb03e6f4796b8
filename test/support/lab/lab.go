// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/policies"
	"github.com/refract-project/refract/test/support/testenv/proxy"
)

// Names that are the same in each Lab. The cluster IDs are also the groups with which the clusters authenticate.
const (
	// ConsumerID and ProviderID are the cluster IDs.
	ConsumerID, ProviderID = "home", "cloud"
	// NodeName is the name of the virtual node for the provider.
	NodeName = "cloud"
	// TenantNamespace is the namespace on the consumer for all objects of the peering with the provider.
	// ProviderTenantNamespace is the consumer's tenant namespace on the provider.
	TenantNamespace, ProviderTenantNamespace = "liqo-tenant-cloud", "liqo-tenant-home"
	// SystemNamespace is the namespace of the controller managers.
	SystemNamespace = "refract-system"
)

// ServiceAccounts of the processes, as in the chart. The ServiceAccount of the virtual kubelet is named after its node,
// and is in the tenant namespace. The ServiceAccounts of the controller managers are in SystemNamespace.
const (
	kubeletAccount = NodeName
	managerAccount = policies.ManagerAccount
)

// User names of Refract's processes, as they appear in audit logs.
const (
	KubeletUser = "system:serviceaccount:" + TenantNamespace + ":" + kubeletAccount
	// ManagerUser is the user of the controller manager. It is the same in both clusters.
	ManagerUser = "system:serviceaccount:" + SystemNamespace + ":" + managerAccount
	// RemoteUser is the user of the consumer on the provider. It authenticates with a client certificate.
	RemoteUser = "refract:home"
)

// Users returns the user names of all processes.
func Users() []string { return []string{KubeletUser, ManagerUser, RemoteUser} }

// Options configures a Lab. With the zero value, each cluster has one simulated node, and progress is not reported.
type Options struct {
	// ConsumerNodes and ProviderNodes are the numbers of simulated nodes in the clusters. 0 means 1.
	ConsumerNodes, ProviderNodes int
	// Capacity is the capacity of the virtual node, by resource name. If it is nil, the capacity is sufficient for
	// 10,000 pods.
	Capacity map[string]string
	// PluginDir is the folder where the virtual kubelet looks for plugins. The default is a folder of the Lab.
	PluginDir string
	// KubeletArgs are additional flags of the virtual kubelet. SetKubeletArgs changes them.
	KubeletArgs []string
	// APIServerSupport lets offloaded pods access the consumer's API server. Their tokens cost two writes per pod.
	APIServerSupport bool
	// Quotas enables the webhook that records the creators of ShadowPods. It costs one call per ShadowPod.
	Quotas bool
	// DeclaredPlugins makes the consumer's controller manager fetch and store the modules of ReflectionPlugins.
	DeclaredPlugins bool
	// Elect enables leader election of the controller managers, as in the chart.
	Elect bool
	// Balanced puts a load balancer between Refract's processes and each API server.
	Balanced bool
	// Replicated makes the consumer's API server call the webhook through Lab.Webhook, so that there may be two
	// controller managers behind it.
	Replicated bool
	// Linked makes the consumer's processes connect to the provider through Lab.Link.
	Linked bool
	// Log is called with progress messages.
	Log func(format string, args ...any)
}

// Side is one of the two clusters, accessed with the permissions of an administrator. Tests use it to read objects, and
// to act as users.
type Side struct {
	*testenv.Cluster
	ID      string
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Journal reads the writes of all clients since the Lab was started.
	Journal *Journal
	// balancer is the load balancer in front of the API server. It is nil unless Options.Balanced is set.
	balancer *proxy.Balancer
}

// Lab consists of two joined clusters. It is not safe for concurrent use.
type Lab struct {
	Consumer, Provider *Side
	// PluginDir is the folder where the virtual kubelet looks for plugins.
	PluginDir string
	// Link connects the consumer to the provider's API server. It is nil unless Options.Linked is set.
	Link *proxy.Link
	// Webhook forwards calls to the webhooks of the consumer's controller managers. It is nil unless
	// Options.Replicated is set.
	Webhook *proxy.Balancer

	opts      Options
	dir, bin  string
	removeDir func() error
	ports     listenPorts
	running   map[string]*testenv.Command
}

// Up starts the clusters and joins them. It does not start Refract's processes. The caller must call Down.
func Up(ctx context.Context, opts Options) (*Lab, error) {
	opts = opts.withDefaults()
	dir, remove, err := testenv.TempDir("refract-lab-")
	if err != nil {
		return nil, err
	}
	l := &Lab{opts: opts, dir: dir, removeDir: remove, bin: filepath.Join(dir, "bin"), PluginDir: opts.PluginDir, running: map[string]*testenv.Command{}}
	if err := l.up(ctx); err != nil {
		return nil, errors.Join(err, l.Down())
	}
	return l, nil
}

func (o Options) withDefaults() Options {
	o.ConsumerNodes, o.ProviderNodes = max(o.ConsumerNodes, 1), max(o.ProviderNodes, 1)
	if o.Capacity == nil {
		o.Capacity = map[string]string{"cpu": "10000", "memory": "100Ti", "pods": "10000", "ephemeral-storage": "100Ti"}
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return o
}

func (l *Lab) up(ctx context.Context) error {
	if l.PluginDir == "" {
		l.PluginDir = filepath.Join(l.dir, "plugins")
		if err := os.MkdirAll(l.PluginDir, 0o755); err != nil {
			return err
		}
	}
	// The programs are built while the control planes start, because neither of the two keeps all CPUs busy.
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return testenv.BuildCommands(groupCtx, l.bin, "virtual-kubelet", "controller-manager", "refractctl")
	})
	group.Go(func() error { return l.startClusters(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := l.balance(); err != nil {
		return err
	}
	var err error
	if l.opts.Linked {
		if l.Link, err = proxy.NewLink(l.Provider.address()); err != nil {
			return err
		}
	}
	if l.ports, err = pickPorts(); err != nil {
		return err
	}
	if l.opts.Replicated {
		if l.Webhook, err = proxy.Balance(l.WebhookAddresses()...); err != nil {
			return err
		}
	}
	if err := l.writeKubeconfig(); err != nil {
		return err
	}
	return l.join(ctx)
}

func (l *Lab) startClusters(ctx context.Context) error {
	clusters, err := testenv.StartAll(ctx,
		testenv.Options{Name: ConsumerID, KwokNodes: l.opts.ConsumerNodes, AuditLog: true, Log: l.opts.Log},
		testenv.Options{Name: ProviderID, KwokNodes: l.opts.ProviderNodes, AuditLog: true, Log: l.opts.Log})
	if err != nil {
		return err
	}
	if l.Consumer, err = newSide(clusters[0], ConsumerID); err != nil {
		return errors.Join(err, clusters[0].Stop(), clusters[1].Stop())
	}
	if l.Provider, err = newSide(clusters[1], ProviderID); err != nil {
		return errors.Join(err, clusters[0].Stop(), clusters[1].Stop())
	}
	return nil
}

func (l *Lab) balance() (err error) {
	if !l.opts.Balanced {
		return nil
	}
	for _, side := range []*Side{l.Consumer, l.Provider} {
		if side.balancer, err = proxy.Balance(side.address()); err != nil {
			return err
		}
	}
	return nil
}

// address returns the host and port of the API server.
func (s *Side) address() string { return strings.TrimPrefix(s.Config().Host, "https://") }

// direct replaces the server in the kubeconfig of one of Refract's processes with the load balancer. It does nothing if
// there is no load balancer.
func (s *Side) direct(path string) error {
	if s.balancer == nil {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, bytes.ReplaceAll(text, []byte(s.address()), []byte(s.balancer.Address())), 0o600)
}

// account writes a kubeconfig for the ServiceAccount of one of Refract's processes.
func (s *Side) account(ctx context.Context, path, namespace, name string) error {
	if err := s.ServiceAccountKubeconfig(ctx, path, namespace, name); err != nil {
		return err
	}
	return s.direct(path)
}

func newSide(cluster *testenv.Cluster, id string) (*Side, error) {
	config := cluster.Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	journal, err := NewJournal(cluster.AuditLogPath())
	if err != nil {
		return nil, err
	}
	return &Side{Cluster: cluster, ID: id, Client: client, Dynamic: dynamicClient, Journal: journal}, nil
}

// Down stops all processes and removes the files of the Lab.
func (l *Lab) Down() error {
	var err error
	defer l.ports.release()
	if l.Link != nil {
		l.Link.Close()
	}
	if l.Webhook != nil {
		l.Webhook.Close()
	}
	for _, side := range []*Side{l.Consumer, l.Provider} {
		if side == nil {
			continue
		}
		if side.balancer != nil {
			side.balancer.Close()
		}
		err = errors.Join(err, side.Stop())
	}
	if removeErr := l.removeDir(); removeErr != nil {
		err = errors.Join(err, fmt.Errorf("removing the lab's folder, %w", removeErr))
	}
	return err
}
