// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodelab provides two or three clusters with real nodes (rome, milan and turin) and an administrator's
// machine. The machine has a shell with refractctl and kubectl, and a kubeconfig with a context for each cluster.
// Refract is not installed in the clusters, but its images are in the registry.
//
// The package requires root permissions, and `make node-tools`.
package nodelab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/machine"
	"github.com/refract-project/refract/test/support/testenv/registry"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// Options configures a Lab. The zero value connects the pods of two clusters and reports no progress.
type Options struct {
	// Apart leaves the pods of the two clusters without a network between them. Both clusters then use the same address
	// ranges.
	Apart bool
	// Turin adds a third cluster, turin. Unless Apart is set, its pods are connected to rome's pods.
	Turin bool
	// CertificateLife is the lifetime of the certificates that milan signs. By default, it is the requested lifetime,
	// limited to a year.
	CertificateLife time.Duration
	// Log is called with progress messages.
	Log func(format string, args ...any)
}

// Lab is a set of clusters with real nodes. Its methods are safe for concurrent use.
type Lab struct {
	Rome, Milan *testenv.Cluster
	// Turin is nil unless Options.Turin is set.
	Turin    *testenv.Cluster
	Network  *machine.Network
	Registry *registry.Registry
	// Kubeconfig is the path of a kubeconfig that contains a context for each cluster, named after the cluster. The
	// current context is rome.
	Kubeconfig string
	// WorkDir is the working directory of the shell. The default is the working directory of this process.
	WorkDir string

	dir    string
	remove func() error
}

// Start starts a lab. The caller must stop it.
func Start(ctx context.Context, o Options) (_ *Lab, err error) {
	if err := tools.NodesHere(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	l := &Lab{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Stop())
		}
	}()
	if l.dir, l.remove, err = testenv.TempDir("refract-nodelab-"); err != nil {
		return nil, err
	}
	if l.Network, err = machine.NewNetwork(); err != nil {
		return nil, err
	}
	if l.Registry, err = registry.New(ctx, l.Network); err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.startClusters(groupCtx, o) })
	group.Go(func() error { return l.pushImages(groupCtx) })
	group.Go(func() error { return l.buildCommands(groupCtx) })
	if err = group.Wait(); err != nil {
		return nil, err
	}
	for _, cluster := range l.Clusters()[1:] {
		if o.Apart {
			break
		}
		if err = testenv.Connect(l.Rome, cluster); err != nil {
			return nil, err
		}
	}
	return l, l.writeKubeconfig()
}

func (l *Lab) startClusters(ctx context.Context, o Options) error {
	options := testenv.Options{Network: l.Network, Registry: l.Registry, Log: o.Log, AuditLog: true}
	rome, milan := options, options
	rome.Name, rome.Nodes = "rome", 1
	milan.Name, milan.Nodes = "milan", 1
	if o.CertificateLife > 0 {
		milan.ExtraControllerManagerArgs = []string{"--cluster-signing-duration=" + o.CertificateLife.String()}
	}
	if o.Apart {
		rome.PodCIDR, rome.ServiceCIDR = "10.244.0.0/16", "10.96.0.0/16"
		milan.PodCIDR, milan.ServiceCIDR = rome.PodCIDR, rome.ServiceCIDR
	}
	all := []testenv.Options{rome, milan}
	if o.Turin {
		turin := options
		turin.Name, turin.Nodes = "turin", 1
		all = append(all, turin)
	}
	clusters, err := testenv.StartAll(ctx, all...)
	if err != nil {
		return err
	}
	l.Rome, l.Milan = clusters[0], clusters[1]
	if o.Turin {
		l.Turin = clusters[2]
	}
	return nil
}

// Clusters returns the clusters of the lab. The first one is rome.
func (l *Lab) Clusters() []*testenv.Cluster {
	return slices.DeleteFunc([]*testenv.Cluster{l.Rome, l.Milan, l.Turin}, func(c *testenv.Cluster) bool { return c == nil })
}

// pushImages builds Refract's images for the platform of this computer, in the same way as for a release, and pushes
// them.
func (l *Lab) pushImages(ctx context.Context) error {
	source, err := checkout(ctx)
	if err != nil {
		return err
	}
	return run(exec.CommandContext(ctx, "go", "run", "github.com/refract-project/refract/build/images", "--push="+l.Registry.Address()+"/refract", "--plain-http",
		"--platforms=linux/"+runtime.GOARCH, "--source="+source))
}

// checkout returns the root folder of the checkout that contains the working directory.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f={{.Dir}}", "github.com/refract-project/refract").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the sources, %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (l *Lab) buildCommands(ctx context.Context) error {
	bin := filepath.Join(l.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	kubectl, err := tools.Kubectl()
	if err != nil {
		return err
	}
	if err := os.Symlink(kubectl, filepath.Join(bin, "kubectl")); err != nil {
		return err
	}
	return testenv.BuildCommands(ctx, bin, "refractctl")
}

// run runs a command. When the command is canceled, run does not wait for child processes of the command.
func run(cmd *exec.Cmd) error {
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}

// writeKubeconfig writes the kubeconfig. Its addresses can be reached by the administrator and by pods of the other
// clusters.
func (l *Lab) writeKubeconfig() error {
	merged := clientcmdapi.NewConfig()
	for _, cluster := range l.Clusters() {
		own, err := clientcmd.LoadFromFile(cluster.Kubeconfig())
		if err != nil {
			return err
		}
		name := cluster.Name()
		used := own.Contexts[own.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = own.Clusters[used.Cluster], own.AuthInfos[used.AuthInfo]
		merged.Clusters[name].Server = cluster.Server()
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	merged.CurrentContext = l.Rome.Name()
	l.Kubeconfig = filepath.Join(l.dir, "kubeconfig")
	return clientcmd.WriteToFile(*merged, l.Kubeconfig)
}

// Path returns the path of a file in the lab's folder, which the shell can use.
func (l *Lab) Path(name string) string { return filepath.Join(l.dir, name) }

// Command returns a command that runs a command line in the administrator's shell. The administrator's machine is in
// the network of the clusters.
func (l *Lab) Command(line string) *exec.Cmd {
	cmd := l.Rome.Machines()[0].NetworkCommand("bash", "-c", line)
	cmd.Dir = l.WorkDir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig, "PATH="+filepath.Join(l.dir, "bin")+":"+os.Getenv("PATH"))
	return cmd
}

// Run runs a command line in the shell and returns its output. If the command fails, the error also contains the
// output.
func (l *Lab) Run(line string) (string, error) {
	var out bytes.Buffer
	cmd := l.Command(line)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", line, err, out.String())
	}
	return out.String(), err
}

// Stop stops all processes and removes all files of the lab.
func (l *Lab) Stop() error {
	var errs []error
	for _, cluster := range l.Clusters() {
		errs = append(errs, cluster.Stop())
	}
	if l.Registry != nil {
		errs = append(errs, l.Registry.Close())
	}
	if l.Network != nil {
		errs = append(errs, l.Network.Close())
	}
	if l.remove != nil {
		errs = append(errs, l.remove())
	}
	return errors.Join(errs...)
}
