// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/vk/node"
)

// run returns when ctx ends and everything has been shut down, or when this
// replica can no longer be the active one.
func run(ctx context.Context, o *options) error {
	log.Log.Info("Starting", "version", cmdutil.Version(), "node", o.nodeName, "provider", o.foreignClusterID)
	local, err := o.localConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(local)
	if err != nil {
		return fmt.Errorf("making a client for this cluster, %w", err)
	}
	k := &kubelet{options: o, local: local, client: client}

	group, ctx := errgroup.WithContext(ctx)
	if err := k.serveOperations(ctx, group); err != nil {
		return err
	}
	group.Go(func() error {
		defer log.Log.Info("Stopped", "node", o.nodeName)
		if err := k.election(o.nodeName).Run(ctx, k.lead); err != nil {
			return err
		}
		return errEnded
	})
	if err := group.Wait(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// errEnded stops the servers of a process whose work has ended well.
var errEnded = errors.New("ended")

// kubelet is this process.
type kubelet struct {
	*options
	local  *rest.Config
	client kubernetes.Interface

	// active is what runs while this replica leads.
	active atomic.Pointer[active]
}

func (k *kubelet) election(name string) node.Election {
	return node.Election{
		Client: k.client, Namespace: k.tenantNamespace, Name: name, Identity: k.podName,
		Duration: k.electDuration, RenewDeadline: k.electRenew, RetryPeriod: k.electRetry,
	}
}

// serveOperations starts what operators look at, whether this replica leads or not.
func (k *kubelet) serveOperations(ctx context.Context, group *errgroup.Group) error {
	for _, endpoint := range []struct {
		enabled       bool
		flag, address string
		handler       http.Handler
	}{
		{k.metricsEnabled, "metrics-address", k.metricsAddress, cmdutil.MetricsHandler(metrics.Registry, cmdutil.ProcessMetrics())},
		{k.healthAddress != "0", "health-probe-address", k.healthAddress, cmdutil.HealthHandler(
			map[string]healthz.Checker{"ping": healthz.Ping}, map[string]healthz.Checker{"kubelet": k.ready})},
		{k.profiling, "enable-profiling", profilingAddress, cmdutil.ProfilingHandler()},
	} {
		if !endpoint.enabled {
			continue
		}
		listener, err := cmdutil.Listen(endpoint.flag, endpoint.address)
		if err != nil {
			return err
		}
		group.Go(func() error { return cmdutil.Serve(ctx, listener, endpoint.handler) })
	}
	return nil
}

// profilingAddress is out of reach of other pods: profiles show secrets.
const profilingAddress = "127.0.0.1:6060"

// ready checks that the active replica works; one that stands by does its duty.
func (k *kubelet) ready(*http.Request) error {
	if a := k.active.Load(); a != nil {
		return a.ready()
	}
	return nil
}

// lead runs the virtual kubelet until ctx ends.
func (k *kubelet) lead(ctx context.Context) error {
	a, err := k.activate(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	k.active.Store(a)
	return a.run(ctx)
}
