// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/refract-project/refract/test/support/testenv/internal/pki"
	"github.com/refract-project/refract/test/support/testenv/internal/ports"
	"github.com/refract-project/refract/test/support/testenv/internal/process"
	"github.com/refract-project/refract/test/support/testenv/machine"
	"github.com/refract-project/refract/test/support/testenv/proxy"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// startTimeout limits Start if its context has no deadline. It is many times the usual duration on a loaded machine
// with two CPUs.
const startTimeout = 3 * time.Minute

// Cluster is a running control plane. Its methods are safe for concurrent use.
type Cluster struct {
	opts  Options
	index int // index of the cluster in the call of StartAll
	tools tools.ControlPlane
	dir   string

	ca, frontProxyCA *pki.Authority
	admin            *rest.Config
	clients          kubernetes.Interface

	launcher *process.Launcher
	// port is the port of the API server on loopback. It is nil if the cluster has machines.
	port *ports.Reservation
	// machines are the machines of the real nodes. The control plane runs on the first machine. front connects this
	// process to the API server.
	machines  []*machine.Machine
	nodeTools tools.Node
	front     *proxy.Link

	// mu guards the records of the running processes.
	mu        sync.Mutex
	processes map[string]*process.Process
	kept      map[string]bool // components that are restarted when they end
	podCIDRs  map[*machine.Machine]string
	stopped   bool
	nodes     int
	// kwokMu ensures that only one caller at a time starts kwok.
	kwokMu sync.Mutex
}

// Start starts a cluster and returns when its API server accepts pods: the default service account exists, the CRDs are
// established, and all nodes are Ready. ctx limits only the start, not the lifetime of the cluster. The caller must
// call Stop.
func Start(ctx context.Context, opts Options) (*Cluster, error) { return start(ctx, opts, 0) }

// StartAll starts clusters concurrently and returns them in the order of their options. If one of them fails, all are
// stopped.
func StartAll(ctx context.Context, opts ...Options) ([]*Cluster, error) {
	clusters := make([]*Cluster, len(opts))
	group, ctx := errgroup.WithContext(ctx)
	for i, o := range opts {
		group.Go(func() (err error) {
			clusters[i], err = start(ctx, o, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for _, c := range clusters {
			if c != nil {
				err = errors.Join(err, c.Stop())
			}
		}
		return nil, err
	}
	return clusters, nil
}

func start(ctx context.Context, opts Options, index int) (*Cluster, error) {
	if IsShort() {
		return nil, errShort
	}
	opts, err := opts.withDefaults(index)
	if err != nil {
		return nil, err
	}
	programs, err := tools.FindControlPlane()
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, index: index, tools: programs, processes: map[string]*process.Process{}, kept: map[string]bool{}, podCIDRs: map[*machine.Machine]string{}}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.up(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting cluster %s, %w", opts.Name, err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) up(ctx context.Context) error {
	begun := time.Now()
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.run("etcd", c.tools.Etcd, c.etcdArgs()); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	c.opts.Log("cluster %s: the API server is ready after %.1f s", c.opts.Name, time.Since(begun).Seconds())
	if err := c.startControllers(); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(c.installCRDs)
	group.Go(func() error { return c.AddKwokNodes(groupCtx, c.opts.KwokNodes, nil) })
	group.Go(func() error { return c.startNodes(groupCtx) })
	group.Go(func() error { return c.awaitDefaults(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	c.opts.Log("cluster %s: takes pods after %.1f s", c.opts.Name, time.Since(begun).Seconds())
	return nil
}

// prepare prepares everything that the first process needs.
func (c *Cluster) prepare() (err error) {
	if c.dir, err = c.opts.makeDir(); err != nil {
		return err
	}
	if c.opts.Nodes > 0 {
		err = c.addMachines()
	} else {
		c.port, err = ports.Reserve()
	}
	if err != nil {
		return err
	}
	if c.ca, err = pki.NewAuthority(c.opts.Name + "-ca"); err != nil {
		return err
	}
	if c.frontProxyCA, err = pki.NewAuthority(c.opts.Name + "-front-proxy-ca"); err != nil {
		return err
	}
	if err = c.writeState(); err != nil {
		return err
	}
	if c.admin, err = c.ConfigFor("kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	if c.clients, err = kubernetes.NewForConfig(c.admin); err != nil {
		return err
	}
	c.launcher, err = process.NewLauncher(c.dir)
	return err
}

func (c *Cluster) startControllers() error {
	manager := c.tools.PromptControllerManager
	if len(c.machines) > 0 {
		manager = c.tools.ControllerManager
	}
	if err := c.run("kube-controller-manager", manager, c.controllerManagerArgs()); err != nil {
		return err
	}
	if c.opts.NoScheduler {
		return nil
	}
	return c.keep("kube-scheduler", c.tools.Scheduler, c.schedulerArgs())
}

// keptPause is the delay before a component that has ended is restarted.
const keptPause = time.Second

// keep runs a component and restarts it when it ends, as a kubelet does with a static pod. The scheduler, for
// example, exits when its cache contradicts its watch, which can happen after an outage of the API server.
func (c *Cluster) keep(name, path string, args []string) error {
	if err := c.run(name, path, args); err != nil {
		return err
	}
	c.mu.Lock()
	running := c.processes[name]
	c.kept[name] = true
	c.mu.Unlock()
	go func() {
		<-running.Ended
		time.Sleep(keptPause)
		c.mu.Lock()
		meant := c.stopped || c.processes[name] != running
		c.mu.Unlock()
		if !meant {
			_ = c.keep(name, path, args) // keep only fails if the cluster was stopped
		}
	}()
	return nil
}

func (c *Cluster) installCRDs() error {
	if len(c.opts.CRDPaths) == 0 {
		return nil
	}
	_, err := envtest.InstallCRDs(c.Config(), envtest.CRDInstallOptions{
		Paths: c.opts.CRDPaths, ErrorIfPathMissing: true, MaxTime: time.Minute, PollInterval: pollInterval,
	})
	return err
}

// run starts a component, unless it is already running, and records it under its name.
func (c *Cluster) run(name, path string, args []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return fmt.Errorf("starting %s, cluster %s has been stopped", name, c.opts.Name)
	}
	if p := c.processes[name]; p != nil && !p.HasEnded() {
		return nil
	}
	cmd := exec.Command(path, args...)
	if len(c.machines) > 0 {
		cmd = c.machines[0].NetworkCommand(path, args...)
	}
	if slices.Contains(components, name) {
		spareGC(cmd)
	}
	return c.start(name, cmd)
}

// spareGC makes a component collect garbage a third as often as by default, if it serves a test and GOGC is not set.
// This saves a seventh of the processor time of a control plane, and up to doubles its memory. Benchmarks use the
// default, because they measure the components, too.
func spareGC(cmd *exec.Cmd) {
	const variable = "GOGC"
	if _, set := os.LookupEnv(variable); !set && testing.Testing() {
		cmd.Env = append(cmd.Environ(), variable+"=300")
	}
}

// start starts a command and records it under its name. The caller must hold the lock.
func (c *Cluster) start(name string, cmd *exec.Cmd) error {
	p, err := process.Start(c.launcher, c.dir, name, cmd)
	if err != nil {
		return err
	}
	c.processes[name] = p
	return nil
}

// forget removes a component that has ended from the record, so that it no longer counts as a failure of the cluster.
func (c *Cluster) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.processes, name)
}

// Stop ends all processes of the cluster and removes its state. Further calls do nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	var group sync.WaitGroup
	for _, p := range c.processes {
		group.Go(p.Kill)
	}
	group.Wait()
	if c.front != nil {
		c.front.Close()
	}
	if c.launcher != nil {
		c.launcher.Close()
	}
	if c.port != nil {
		c.port.Release()
	}
	if c.dir == "" {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("removing the state of cluster %s, %w", c.opts.Name, err)
	}
	return nil
}

// StopAPIServer kills the API server, as in a crash or a network failure. Its port refuses connections, and its data
// is kept.
func (c *Cluster) StopAPIServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes["kube-apiserver"]; p != nil {
		p.Kill()
		delete(c.processes, p.Name)
	}
	return nil
}

// StartAPIServer starts the API server again, on the same port with the same data, and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.run("kube-apiserver", c.tools.APIServer, c.apiServerArgs()); err != nil {
		return err
	}
	return c.await(ctx, "the API server to be ready", c.apiServerReady)
}

// Name returns the name of the cluster.
func (c *Cluster) Name() string { return c.opts.Name }

// PodCIDR returns the address range of the pods on the real nodes, or on the simulated nodes if there are no real ones.
func (c *Cluster) PodCIDR() string { return c.opts.PodCIDR }

// ServiceCIDR returns the address range of Services.
func (c *Cluster) ServiceCIDR() string { return c.opts.ServiceCIDR }

// AuditLogPath returns the path of the audit log. It has one line of JSON for every recorded request (audit.k8s.io/v1
// Event, stage ResponseComplete), with its user, verb, object and status. With Options.AuditLog, all requests are
// recorded. With only Options.AuditWritesOf, these writes are recorded. With neither of them, the file does not exist.
func (c *Cluster) AuditLogPath() string { return c.path("audit.log") }

// Processes returns the process IDs of the running components, by name ("etcd", "kube-apiserver", …), for
// measurements.
func (c *Cluster) Processes() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := map[string]int{}
	for name, p := range c.processes {
		if !p.HasEnded() {
			pids[name] = p.Pid()
		}
	}
	return pids
}
