// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/internal/cmdutil"
)

// options are the flags. Their names are Liqo's where it has them.
type options struct {
	kubeconfig, clusterID, liqoNamespace   string
	clientQPS                              float32
	clientBurst                            int
	leaderElection                         bool
	resyncPeriod                           time.Duration
	podWorkers, sliceWorkers, spaceWorkers int
	recordAfter                            time.Duration
	denyDirectConnections                  bool
	remoteClusterRole                      string
	extendedClusterRole                    string
	metricsAddress, healthAddress          string
	webhook                                bool
	webhookHost                            string
	webhookPort                            int
	runtimeClass                           string
	logs                                   cmdutil.Logs
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of this cluster; by default $KUBECONFIG, or the cluster that this process runs in")
	flags.StringVar(&o.clusterID, "cluster-id", os.Getenv("CLUSTER_ID"), "id of this cluster, by which its peers know it; by default $CLUSTER_ID")
	flags.StringVar(&o.liqoNamespace, "liqo-namespace", envOr("POD_NAMESPACE", "liqo"), "namespace of this installation, where the leader-election lease is")
	flags.Float32Var(&o.clientQPS, "client-qps", -1, "requests a second to the API server; negative leaves the flow to the API server")
	flags.IntVar(&o.clientBurst, "client-max-burst", 0, "requests at once beyond --client-qps")
	flags.BoolVar(&o.leaderElection, "enable-leader-election", false, "let one of several replicas work; needed with more than one")
	flags.DurationVar(&o.resyncPeriod, "resync-period", 10*time.Hour, "how often everything is looked at again though nothing has changed")
	flags.IntVar(&o.podWorkers, "shadow-pod-ctrl-workers", 10, "ShadowPods worked on at once")
	flags.IntVar(&o.sliceWorkers, "shadow-endpointslice-ctrl-workers", 10, "ShadowEndpointSlices worked on at once")
	flags.IntVar(&o.spaceWorkers, "namespace-ctrl-workers", 10, "NamespaceOffloadings, and NamespaceMaps of consumers, worked on at once")
	flags.DurationVar(&o.recordAfter, "shadow-pod-record-after", 30*time.Second, "age of a pod from which on its ShadowPod tells that it runs; how it ends is told at once")
	flags.BoolVar(&o.denyDirectConnections, "deny-direct-connections", false, "leave out endpoints of third clusters to which traffic would go past the consumer")
	flags.StringVar(&o.extendedClusterRole, "extended-cluster-role", "liqo-virtual-kubelet-extended", "ClusterRole that virtual kubelets get in the namespaces of this cluster that are extended to their providers; empty when they have it everywhere")
	flags.StringVar(&o.remoteClusterRole, "remote-cluster-role", "liqo-virtual-kubelet-remote", "ClusterRole that consumers get in their namespaces of this cluster")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8082", "address of the Prometheus metrics; 0 turns them off")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of /healthz and /readyz; 0 turns them off")
	flags.BoolVar(&o.webhook, "enable-scheduling-webhook", true, "serve the admission webhook that lets the pods of extended namespaces onto virtual nodes")
	flags.StringVar(&o.webhookHost, "webhook-host", "", "address on which webhooks are served; all when empty")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port on which webhooks are served")
	flags.StringVar(&o.runtimeClass, "liqo-runtime-class", wire.RuntimeClassName, "runtime class whose pods the scheduling webhook leaves alone, because it sends them to virtual nodes itself; empty for none")
	o.logs.AddFlags(flags)
}

func envOr(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// validate names the flag that is wrong, and the remedy.
func (o *options) validate() error {
	if o.clusterID == "" {
		return errors.New("--cluster-id is missing: give the id by which the peers of this cluster know it")
	}
	if err := core.ClusterID(o.clusterID).Validate(); err != nil {
		return fmt.Errorf("--cluster-id: %w", err)
	}
	for flag, workers := range map[string]int{
		"shadow-pod-ctrl-workers": o.podWorkers, "shadow-endpointslice-ctrl-workers": o.sliceWorkers, "namespace-ctrl-workers": o.spaceWorkers,
	} {
		if workers < 1 {
			return fmt.Errorf("--%s is %d: use 1 or more", flag, workers)
		}
	}
	if o.recordAfter < 0 {
		return fmt.Errorf("--shadow-pod-record-after is %s: use 0 or a positive duration such as 10s", o.recordAfter)
	}
	if o.webhook && (o.webhookPort < 1 || o.webhookPort > 65535) {
		return fmt.Errorf("--webhook-port is %d: use a port between 1 and 65535, or --enable-scheduling-webhook=false", o.webhookPort)
	}
	if o.resyncPeriod <= 0 {
		return fmt.Errorf("--resync-period is %s: use a positive duration such as 10h", o.resyncPeriod)
	}
	return nil
}

// webhooks returns the settings of the webhooks, nil when none is served.
func (o *options) webhooks() *controllers.WebhookOptions {
	if !o.webhook {
		return nil
	}
	return &controllers.WebhookOptions{Namespace: o.liqoNamespace, Host: o.webhookHost, Port: o.webhookPort, RuntimeClass: o.runtimeClass}
}

// restConfig returns the access to this cluster.
func (o *options) restConfig() (*rest.Config, error) {
	path := o.kubeconfig
	if path == "" {
		path = os.Getenv("KUBECONFIG")
	}
	config, err := loadConfig(path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = o.clientQPS, o.clientBurst
	config.UserAgent = "refract-controller-manager/" + cmdutil.Version()
	return config, nil
}

func loadConfig(path string) (*rest.Config, error) {
	if path != "" {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig=%s cannot be used: %w", path, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("no way to the API server: give --kubeconfig or $KUBECONFIG, or run in the cluster (%w)", err)
	}
	return config, nil
}
