// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/homenames"
)

// resolvConf is the file with the DNS configuration of this process's pod.
const resolvConf = "/etc/resolv.conf"

// homeNamesOptions contains the flags of the command home-names.
type homeNamesOptions struct {
	kubeconfig, consumer, namespace           string
	homeDomain, clusterDomain                 string
	upstreams                                 []string
	addresses                                 bool
	dnsAddress, metricsAddress, healthAddress string
	logs                                      cmdutil.Logs
}

func newHomeNamesCommand(env func(string) string) *cobra.Command {
	var o homeNamesOptions
	command := &cobra.Command{
		Use:   "home-names --consumer=ID",
		Short: "Resolve, for the pods of one consumer, the DNS names of their own cluster",
		Long: `Resolve, for the pods of one consumer, the DNS names of their own cluster.

The process translates the namespaces and the domain in questions and answers, and
forwards the questions to the DNS of this cluster. It reads the NamespaceMap of the
consumer, and writes nothing to the API server.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.validate(), o.logs.Install(cmd.ErrOrStderr())); err != nil {
				return err
			}
			return runHomeNames(cmd.Context(), &o)
		},
	}
	o.addFlags(command.Flags(), env)
	return command
}

func (o *homeNamesOptions) addFlags(flags *pflag.FlagSet, env func(string) string) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", env("KUBECONFIG"), "kubeconfig of this cluster; by default $KUBECONFIG, or the cluster that this process runs in")
	flags.StringVar(&o.consumer, "consumer", "", "id of the consumer's cluster")
	flags.StringVar(&o.namespace, "namespace", env("POD_NAMESPACE"), "tenant namespace of the consumer, with its NamespaceMap; by default $POD_NAMESPACE")
	flags.StringVar(&o.homeDomain, "home-domain", homenames.DefaultDomain, "domain of the DNS of the consumer's cluster")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "", "domain of the DNS of this cluster; by default that of the search domains in "+resolvConf)
	flags.StringSliceVar(&o.upstreams, "upstream", nil, "addresses of the DNS servers of this cluster, with ports, separated by commas; by default the nameservers in "+resolvConf)
	flags.BoolVar(&o.addresses, "home-addresses", false,
		"answer with the cluster IPs that Services have in the consumer's cluster, which the nodes of this cluster must translate")
	flags.StringVar(&o.dnsAddress, "dns-address", ":53", "address on which DNS is served, over UDP and TCP")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8082", "address of the Prometheus metrics; 0 disables them")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of /healthz and /readyz; 0 disables them")
	o.logs.AddFlags(flags)
}

func (o *homeNamesOptions) validate() error {
	if err := core.ClusterID(o.consumer).Validate(); err != nil {
		return fmt.Errorf("--consumer: %w", err)
	}
	if o.namespace == "" {
		return errors.New("--namespace is missing: set it to the tenant namespace of the consumer")
	}
	for flag, domain := range map[string]string{"--home-domain": o.homeDomain, "--cluster-domain": o.clusterDomain} {
		if problems := validation.IsDNS1123Subdomain(domain); len(problems) > 0 && (domain != "" || flag == "--home-domain") {
			return fmt.Errorf("%s=%s is invalid (%s): use the domain of the DNS of the cluster, such as %s", flag, domain, problems[0], homenames.DefaultDomain)
		}
	}
	for _, address := range o.upstreams {
		if _, err := netip.ParseAddrPort(address); err != nil {
			return fmt.Errorf("--upstream=%s: use addresses with ports, such as 10.96.0.10:53", address)
		}
	}
	return nil
}

// completeFromPod sets the DNS servers and the domain that no flag sets.
func (o *homeNamesOptions) completeFromPod(path string) error {
	if len(o.upstreams) > 0 && o.clusterDomain != "" {
		return nil
	}
	servers, domain, err := homenames.ReadResolvConf(path)
	if err != nil {
		return fmt.Errorf("finding the DNS of this cluster, %w; or set --upstream and --cluster-domain", err)
	}
	if len(o.upstreams) == 0 {
		o.upstreams = servers
	}
	if o.clusterDomain == "" {
		o.clusterDomain = domain
	}
	return nil
}

// runHomeNames resolves names until ctx is done. It serves DNS when it has read the NamespaceMap, so that it does not
// answer that names of the consumer do not exist.
func runHomeNames(ctx context.Context, o *homeNamesOptions) error {
	if err := o.completeFromPod(resolvConf); err != nil {
		return err
	}
	config, err := connection.LoadLocal("--kubeconfig", "--kubeconfig", o.kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = wire.ControllerManagerProcess + "/" + cmdutil.Version()
	registry := prometheus.NewRegistry()
	metrics := homenames.NewMetrics(registry)
	consumer := homenames.Consumer{
		ClusterID: o.consumer, TenantNamespace: o.namespace, Domain: o.homeDomain, TranslatesAddresses: o.addresses,
	}
	source, err := homenames.NewSource(config, consumer, o.clusterDomain, metrics)
	if err != nil {
		return err
	}
	slog.Info("Starting", "version", cmdutil.Version(), "consumer", o.consumer, "homeDomain", o.homeDomain, "clusterDomain", o.clusterDomain, "upstreams", o.upstreams)
	group, ctx := errgroup.WithContext(ctx)
	serving := make(chan struct{})
	if err := o.serveOperations(ctx, group, registry, serving); err != nil {
		return err
	}
	group.Go(func() error { return source.Run(ctx) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-source.Synced():
		}
		packets, err := net.ListenPacket("udp", o.dnsAddress)
		if err != nil {
			return fmt.Errorf("--dns-address=%s: listening there, %w", o.dnsAddress, err)
		}
		connections, err := net.Listen("tcp", o.dnsAddress)
		if err != nil {
			packets.Close()
			return fmt.Errorf("--dns-address=%s: listening there, %w", o.dnsAddress, err)
		}
		close(serving)
		resolver := &homenames.Resolver{Names: source.Names, Exchange: homenames.Upstream{Addresses: o.upstreams}.Exchange, Metrics: metrics}
		if o.addresses {
			resolver.IsTranslated = source.IsTranslated
		}
		return resolver.Serve(ctx, packets, connections)
	})
	return group.Wait()
}

// serveOperations starts the servers for metrics and probes.
func (o *homeNamesOptions) serveOperations(ctx context.Context, group *errgroup.Group, metrics prometheus.Gatherer, serving <-chan struct{}) error {
	health := cmdutil.HealthHandler(map[string]healthz.Checker{"ping": healthz.Ping},
		map[string]healthz.Checker{"dns": cmdutil.Closed(serving, "waiting for the NamespaceMap of the consumer to be read")})
	return cmdutil.ServeEndpoints(ctx, group,
		cmdutil.Endpoint{Flag: "metrics-address", Address: o.metricsAddress, Handler: cmdutil.MetricsHandler(metrics, cmdutil.ProcessMetrics())},
		cmdutil.Endpoint{Flag: "health-probe-address", Address: o.healthAddress, Handler: health})
}
