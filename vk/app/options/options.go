// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/vk/reflection"
)

// AutoSupport is the value of --apiserver-support-mode with which the mode depends on the resources that this cluster's
// API server serves.
const AutoSupport = "auto"

// supportModes are the values of --apiserver-support-mode.
var supportModes = []string{AutoSupport, reflection.SupportTokenAPI, reflection.SupportLegacy}

// Options contains the values of the flags. Flags that Liqo also has have the same names and defaults as in Liqo.
type Options struct {
	// Flags for access to both clusters.
	HomeKubeconfig, ForeignKubeconfig, ForeignSecret string
	EnvKubeconfig                                    string // path from the environment; takes precedence over HomeKubeconfig
	TenantNamespace, LiqoNamespace, RolePrefix       string
	HomeClusterID, ForeignClusterID                  string
	VirtualNode, PodName                             string
	ClientTimeout                                    time.Duration
	ClientQPS                                        float32
	ClientBurst                                      int
	ForeignAnswer                                    resource.QuantityValue

	// Flags of the Node.
	NodeName, NodeIP                         string
	CreateNode, CheckNetwork                 bool
	LeaseDuration, PingInterval, PingTimeout time.Duration
	HeartbeatInterval                        time.Duration
	NodeExtraAnnotations, NodeExtraLabels    map[string]string

	// Flags of reflection.
	ResyncPeriod, ReferenceTimeout       time.Duration
	Workers                              map[string]*int
	Policies                             map[string]*string
	StatusBack                           map[string]*bool
	OwnCIDRs, ForeignCIDRs               []string
	DisableIPReflection                  bool
	LocalPodCIDRs                        []string
	PodCIDRs, PodCIDRRemaps              []string
	ExternalCIDRs, ExternalCIDRRemaps    []string
	APIServerSupport                     bool
	SupportMode                          string
	HomeAPIServerHost, HomeAPIServerPort string
	ServicePort                          string // port at which the pods of this cluster reach its API server

	// Flags of storage, ingress and load balancer classes.
	Storage                                 bool
	VirtualStorageClass, RemoteStorageClass string
	Ingress, LoadBalancer                   bool
	IngressClass, LoadBalancerClass         string

	// Flags of plugins.
	PluginDir, PluginCacheDir string

	// Flags of the kubelet API.
	ListenAddress                     string
	ListenPort                        uint16
	CertificateType, CertificateDir   string
	TlsCertFile, TlsKeyFile, ClientCA string

	// Flags of high availability.
	SharedLease                           bool
	ElectDuration, ElectRenew, ElectRetry time.Duration

	// Flags of logs and metrics.
	Logs                          cmdutil.Logs
	MetricsEnabled, Profiling     bool
	MetricsAddress, HealthAddress string

	// Flags that control what happens with unknown flags.
	IgnoreUnknown bool
	Ignored       []string

	inert cmdutil.InertFlags
}

const (
	// IgnoreUnknown is the name of the flag that permits unknown flags.
	IgnoreUnknown = "ignore-unknown-flags"
	// IgnoredFlags is the name of the flag that lists the unknown flags that were ignored.
	IgnoredFlags = "ignored-flags"
)

// New returns the defaults of the flags. Some defaults come from environment variables of the pod, which are looked up
// with env.
func New(env func(string) string) *Options {
	return &Options{
		ForeignAnswer:        resource.QuantityValue{Quantity: resource.MustParse("512Mi")},
		EnvKubeconfig:        env("KUBECONFIG"),
		VirtualNode:          env("VIRTUALNODE_NAME"),
		PodName:              env("POD_NAME"),
		TenantNamespace:      valueOr(env("POD_NAMESPACE"), "default"),
		NodeIP:               env("POD_IP"),
		ServicePort:          env("KUBERNETES_SERVICE_PORT"),
		NodeExtraAnnotations: map[string]string{}, NodeExtraLabels: map[string]string{},
		Workers: map[string]*int{}, Policies: map[string]*string{}, StatusBack: map[string]*bool{},
	}
}

func valueOr(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}

// FlagGroups returns all flags in the groups of the help.
func (o *Options) FlagGroups() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	o.clusterFlags(&groups)
	o.nodeFlags(&groups)
	o.reflectionFlags(&groups)
	o.kubeletFlags(&groups)
	o.operationFlags(&groups)
	o.klogFlags(groups.FlagSet("accepted for compatibility but ineffective"))
	return groups
}

func (o *Options) clusterFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("clusters")
	f.StringVar(&o.HomeKubeconfig, "home-kubeconfig", "", "kubeconfig of this cluster; by default $KUBECONFIG, or the cluster that this process runs in")
	f.StringVar(&o.ForeignSecret, "foreign-kubeconfig-secret-name", "", "Secret in the tenant namespace with the kubeconfig of the provider under the key \"kubeconfig\"; reloaded on change")
	f.StringVar(&o.ForeignKubeconfig, "foreign-kubeconfig", "", "kubeconfig file of the provider, instead of the Secret")
	f.StringVar(&o.HomeClusterID, "home-cluster-id", "", "id of this cluster")
	f.StringVar(&o.ForeignClusterID, "foreign-cluster-id", "", "id of the provider")
	f.StringVar(&o.TenantNamespace, "tenant-namespace", o.TenantNamespace, "tenant namespace of the provider in this cluster, with the VirtualNode, NamespaceMap and leases; by default $POD_NAMESPACE")
	f.StringVar(&o.LiqoNamespace, "liqo-namespace", "liqo", "namespace of the installation")
	f.StringVar(&o.RolePrefix, "role-prefix", rbac.DefaultPrefix, "prefix of the names of the installation's ClusterRoles, for messages about missing permissions")
	f.BoolVar(&o.IgnoreUnknown, IgnoreUnknown, false, "ignore flags that this version does not know and report them in an Event on the VirtualNode, for use under controllers of another implementation; by default an unknown flag is an error")
	f.StringSliceVar(&o.Ignored, IgnoredFlags, nil, "flags that were ignored")
	_ = f.MarkHidden(IgnoredFlags)
	f.DurationVar(&o.ClientTimeout, "client-timeout", 0, "timeout of requests to either API server; 0 leaves it to each caller")
	f.Float32Var(&o.ClientQPS, "client-qps", -1, "maximum number of requests per second to each API server for the node, leases and the kubelet API; negative for no limit. Reflection has none: it relies on the API servers' priority and fairness")
	f.Var(&o.ForeignAnswer, "foreign-answer-limit", "maximum size of one response of the provider's API server: larger lists fail, and a watch that has delivered this much is closed and restarted with a list")
	f.IntVar(&o.ClientBurst, "client-max-burst", 100, "maximum burst of requests when --client-qps is positive; does not apply to reflection")
}

func (o *Options) nodeFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("node")
	f.StringVar(&o.NodeName, "nodename", "virtual-kubelet", "name of the node, and of the lease that decides which replica is active")
	f.StringVar(&o.NodeIP, "node-ip", o.NodeIP, "address at which the control plane reaches this process; by default $POD_IP")
	f.StringVar(&o.VirtualNode, "virtualnode-name", o.VirtualNode, "VirtualNode to follow; by default $VIRTUALNODE_NAME, or the name of the node")
	f.BoolVar(&o.CreateNode, "create-node", true, "register a node")
	f.DurationVar(&o.LeaseDuration, "node-lease-duration", 40*time.Second, "duration of the node's heartbeat lease, renewed four times as often")
	f.DurationVar(&o.HeartbeatInterval, "heartbeat-interval", 10*time.Second, "how often to renew the heartbeat Lease in the tenant namespace on the provider; the Lease expires after four intervals; 0 disables the heartbeat")
	f.DurationVar(&o.PingInterval, "node-ping-interval", 10*time.Second, "how often to ping the provider's API server; 0 disables pings")
	f.DurationVar(&o.PingTimeout, "node-ping-timeout", time.Second, "timeout of a ping; after three lost pings the node is NotReady")
	f.BoolVar(&o.CheckNetwork, "node-check-network", true, "make the readiness of the node depend on the network between the clusters")
	f.StringToStringVar(&o.NodeExtraAnnotations, "node-extra-annotations", nil, "annotations of the node, as k=v,k=v")
	f.StringToStringVar(&o.NodeExtraLabels, "node-extra-labels", nil, "labels of the node, as k=v,k=v")
}

func (o *Options) reflectionFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("reflection")
	f.DurationVar(&o.ResyncPeriod, "resync-period", 10*time.Hour, "how often to compare all objects even if nothing has changed")
	f.DurationVar(&o.ReferenceTimeout, "reference-timeout", 30*time.Second, "maximum time for which a new pod waits until the ConfigMaps, Secrets and Services that it refers to are up to date on the provider; it then starts with a warning. 0 starts pods at once")
	for _, kind := range reflection.DefaultKinds() {
		flag := kind.Flag()
		o.Workers[kind.Name] = f.Int(flag+"-reflection-workers", kind.Workers, "maximum number of "+pluralOf(kind.Liqo())+" reconciled at once; 0 disables their reflection")
		if kind.Name == reflection.ServiceAccountKind {
			f.Lookup(flag + "-reflection-workers").Usage = "maximum number of pods whose service-account tokens are reconciled at once; 0 requests none"
		}
		if kind.Policy != reflection.Always && kind.PolicyOf == "" {
			o.Policies[kind.Name] = f.String(flag+"-reflection-type", string(kind.Policy), "which "+pluralOf(kind.Liqo())+" are reflected: DenyList (all except annotated ones) or AllowList (only annotated ones)")
		}
		if kind.Status.Fields != nil {
			o.StatusBack[kind.Name] = f.Bool(flag+"-status-back", true, "show the load-balancer addresses of the provider in the status of "+pluralOf(kind.Liqo())+" that no controller here writes")
		}
	}
	f.BoolVar(&o.DisableIPReflection, "disable-ip-reflection", false, "do not reflect EndpointSlices, and do not show the addresses of pods")
	f.StringArrayVar(&o.LocalPodCIDRs, "local-podcidr", nil, "CIDR of this cluster's pods, whose addresses the provider remaps itself; may be repeated")
	f.StringSliceVar(&o.ForeignCIDRs, "foreign-cidrs", nil, "CIDRs, as seen from this cluster, of the provider's pods and load balancers: addresses outside of them are not shown. If empty, pod addresses must be in --remote-pod-cidr-remap or --remote-external-cidr-remap, and load balancer addresses are not checked")
	f.StringSliceVar(&o.OwnCIDRs, "own-cidrs", nil, "CIDRs of the pods, Services and nodes of this cluster: the provider cannot claim addresses in them for its pods and load balancers")
	f.StringSliceVar(&o.PodCIDRs, "remote-pod-cidr", nil, "CIDRs of the provider's pods")
	f.StringSliceVar(&o.PodCIDRRemaps, "remote-pod-cidr-remap", nil, "CIDRs in this cluster to which --remote-pod-cidr is remapped, in the same order")
	f.StringSliceVar(&o.ExternalCIDRs, "remote-external-cidr", nil, "external CIDRs of the provider")
	f.StringSliceVar(&o.ExternalCIDRRemaps, "remote-external-cidr-remap", nil, "CIDRs in this cluster to which --remote-external-cidr is remapped, in the same order")
	f.BoolVar(&o.APIServerSupport, "enable-apiserver-support", false, "enable offloaded pods to use this cluster's API server; their service-account tokens are stored in Secrets of the provider")
	f.StringVar(&o.SupportMode, "apiserver-support-mode", AutoSupport, "how offloaded pods that use this cluster's API server get tokens: TokenAPI (requested for each pod), Legacy (token Secrets that users created for their service accounts, which are reflected), auto (TokenAPI if the API server issues tokens on request, else Legacy)")
	f.StringVar(&o.HomeAPIServerHost, "home-api-server-host", "", "this cluster's API server as offloaded pods reach it; by default kubernetes.default, at the address that the network reports; with an IP address also the names such as kubernetes.default lead there, on port 443. Clients that use the names work only if the API server listens on 443; with another --home-api-server-port only those that use the variables KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do")
	f.StringVar(&o.HomeAPIServerPort, "home-api-server-port", "", "port for --home-api-server-host (default 443); without a host, the port this process uses")
	f.BoolVar(&o.Storage, "enable-storage", false, "enable the virtual storage class: claims get their volumes on the provider. If disabled, claims of that class are scheduled to other nodes")
	f.StringVar(&o.VirtualStorageClass, "virtual-storage-class-name", wire.DefaultStorageClass, "the virtual storage class of this cluster")
	f.StringVar(&o.RemoteStorageClass, "remote-real-storage-class-name", "", "storage class on the provider if the VirtualNode names none; by default the default class of the provider")
	f.BoolVar(&o.Ingress, "enable-ingress", false, "enable the ingress class of the provider: honour --remote-real-ingress-class-name")
	f.StringVar(&o.IngressClass, "remote-real-ingress-class-name", "", "ingress class on the provider if the VirtualNode names none; by default Ingresses have no class there")
	f.BoolVar(&o.LoadBalancer, "enable-load-balancer", false, "enable the load-balancer class of the provider: honour --remote-real-load-balancer-class-name")
	f.StringVar(&o.LoadBalancerClass, "remote-real-load-balancer-class-name", "", "load-balancer class on the provider if the VirtualNode names none; by default Services have no class there")

	p := groups.FlagSet("plugins")
	p.StringVar(&o.PluginDir, "plugin-dir", "", "directory of plugins (*.wasm, each with optional settings in a *.yaml of the same name); reloaded on change")
	p.StringVar(&o.PluginCacheDir, "plugin-cache-dir", "", "directory that keeps, between runs, compiled plugins and the last good version of each, which is used if a file is broken at start; by default none are kept")
}

// pluralOf returns the plural of a kind's name.
func pluralOf(kind string) string {
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	if strings.HasSuffix(kind, "s") {
		return kind + "es"
	}
	return kind + "s"
}

func (o *Options) kubeletFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("kubelet API")
	f.StringVar(&o.ListenAddress, "listen-address", "0.0.0.0", "address to listen on for logs, exec, attach and port-forward")
	f.Uint16Var(&o.ListenPort, "listen-port", 10250, "port to listen on; 0 for any free port")
	f.StringVar(&o.CertificateType, "certificate-type", "kubelet", "signer of the serving certificate: kubelet (this cluster's signer), aws, self-signed")
	f.StringVar(&o.CertificateDir, "cert-dir", "", "directory for signed serving certificates; by default one in the temporary folder for each cluster and node")
	f.StringVar(&o.TlsCertFile, "tls-cert-file", "", "serving certificate, instead of --certificate-type; reloaded on change")
	f.StringVar(&o.TlsKeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	f.StringVar(&o.ClientCA, "client-ca-file", "", "CA of callers' client certificates; by default the one that the cluster publishes in kube-system/extension-apiserver-authentication")
}

func (o *Options) operationFlags(groups *cliflag.NamedFlagSets) {
	h := groups.FlagSet("high availability")
	h.BoolVar(&o.SharedLease, "vk-lease-enabled", true, "enable leader election among the virtual nodes of a provider; the leader reflects shared resources")
	h.DurationVar(&o.ElectDuration, "vk-lease-duration", 15*time.Second, "duration after which a leader that does not renew its lease is replaced")
	h.DurationVar(&o.ElectRenew, "vk-lease-renew-interval", 10*time.Second, "duration after which a leader that cannot renew its lease steps down")
	h.DurationVar(&o.ElectRetry, "vk-lease-retry-period", 5*time.Second, "time between attempts to acquire or renew a lease")

	f := groups.FlagSet("observability")
	o.Logs.AddFlags(f)
	f.IntVar(&o.Logs.Verbosity, "klog.v", 0, "the same as --v")
	f.BoolVar(&o.MetricsEnabled, "metrics-enabled", false, "serve Prometheus metrics")
	f.StringVar(&o.MetricsAddress, "metrics-address", ":8082", "address of /metrics; 0 disables them")
	f.StringVar(&o.HealthAddress, "health-probe-address", "0", "address of /healthz and /readyz; 0 disables them")
	f.BoolVar(&o.Profiling, "enable-profiling", false, "serve pprof on "+cmdutil.ProfilingAddress)
}
