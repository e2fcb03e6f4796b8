// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

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

// options are the flags. Names and defaults are Liqo's where it has them.
type options struct {
	// Clusters.
	homeKubeconfig, foreignKubeconfig, foreignSecret string
	envKubeconfig                                    string // in place of homeKubeconfig
	tenantNamespace, liqoNamespace, rolePrefix       string
	homeClusterID, foreignClusterID                  string
	virtualNode, podName                             string
	clientTimeout                                    time.Duration
	clientQPS                                        float32
	clientBurst                                      int
	foreignAnswer                                    resource.QuantityValue

	// Node.
	nodeName, nodeIP                         string
	createNode, checkNetwork                 bool
	leaseDuration, pingInterval, pingTimeout time.Duration
	nodeExtraAnnotations, nodeExtraLabels    map[string]string

	// Reflection.
	resyncPeriod                         time.Duration
	workers                              map[string]*int
	policies                             map[string]*string
	statusBack                           map[string]*bool
	ownCIDRs, foreignCIDRs               []string
	disableIPReflection                  bool
	localPodCIDRs                        []string
	podCIDRs, podCIDRRemaps              []string
	externalCIDRs, externalCIDRRemaps    []string
	apiServerSupport                     bool
	supportMode                          string
	homeAPIServerHost, homeAPIServerPort string
	servicePort                          string // at which pods of this cluster find the API server

	// Storage.
	storage                                 bool
	virtualStorageClass, remoteStorageClass string
	ingress, loadBalancer                   bool
	ingressClass, loadBalancerClass         string

	// Plugins.
	pluginDir, pluginCacheDir string

	// Kubelet API.
	listenAddress                     string
	listenPort                        uint16
	certificateType, certificateDir   string
	tlsCertFile, tlsKeyFile, clientCA string

	// High availability.
	sharedLease                           bool
	electDuration, electRenew, electRetry time.Duration

	// Observability.
	logs                          cmdutil.Logs
	metricsEnabled, profiling     bool
	metricsAddress, healthAddress string

	inert []*inertFlag
}

// newOptions reads the environment of the pod.
func newOptions(env func(string) string) *options {
	return &options{
		foreignAnswer:        resource.QuantityValue{Quantity: resource.MustParse("512Mi")},
		envKubeconfig:        env("KUBECONFIG"),
		virtualNode:          env("VIRTUALNODE_NAME"),
		podName:              env("POD_NAME"),
		tenantNamespace:      or(env("POD_NAMESPACE"), "default"),
		nodeIP:               env("POD_IP"),
		servicePort:          env("KUBERNETES_SERVICE_PORT"),
		nodeExtraAnnotations: map[string]string{}, nodeExtraLabels: map[string]string{},
		workers: map[string]*int{}, policies: map[string]*string{}, statusBack: map[string]*bool{},
	}
}

func or(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}

// flagGroups registers all flags, grouped as the help shows them.
func (o *options) flagGroups() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	o.clusterFlags(&groups)
	o.nodeFlags(&groups)
	o.reflectionFlags(&groups)
	o.kubeletFlags(&groups)
	o.operationFlags(&groups)
	o.klogFlags(groups.FlagSet("accepted for compatibility but ineffective"))
	return groups
}

func (o *options) clusterFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("clusters")
	f.StringVar(&o.homeKubeconfig, "home-kubeconfig", "", "kubeconfig of this cluster; by default $KUBECONFIG, or the cluster that this process runs in")
	f.StringVar(&o.foreignSecret, "foreign-kubeconfig-secret-name", "", "Secret in the tenant namespace whose key \"kubeconfig\" opens the provider; it is followed")
	f.StringVar(&o.foreignKubeconfig, "foreign-kubeconfig", "", "kubeconfig file that opens the provider, in place of the Secret")
	f.StringVar(&o.homeClusterID, "home-cluster-id", "", "id of this cluster")
	f.StringVar(&o.foreignClusterID, "foreign-cluster-id", "", "id of the provider")
	f.StringVar(&o.tenantNamespace, "tenant-namespace", o.tenantNamespace, "namespace of this cluster that belongs to the provider: VirtualNode, NamespaceMap, leases; by default $POD_NAMESPACE")
	f.StringVar(&o.liqoNamespace, "liqo-namespace", "liqo", "namespace of the installation")
	f.StringVar(&o.rolePrefix, "role-prefix", rbac.DefaultPrefix, "what stands before the names of the ClusterRoles of the installation, for advice on missing permissions")
	f.DurationVar(&o.clientTimeout, "client-timeout", 0, "timeout of requests to either API server; 0 leaves it to each caller")
	f.Float32Var(&o.clientQPS, "client-qps", -1, "maximum number of requests per second to each API server for the node, leases and the kubelet API; negative for no limit. Reflection has none: it relies on the API servers' priority and fairness")
	f.Var(&o.foreignAnswer, "foreign-answer-limit", "maximum size of one response of the provider's API server: a longer list is refused, and a watch that has delivered as much ends and starts over with a list")
	f.IntVar(&o.clientBurst, "client-max-burst", 100, "maximum burst of requests when --client-qps is positive; does not apply to reflection")
}

func (o *options) nodeFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("node")
	f.StringVar(&o.nodeName, "nodename", "virtual-kubelet", "name of the node, and of the lease that decides which replica is active")
	f.StringVar(&o.nodeIP, "node-ip", o.nodeIP, "address at which the control plane reaches this process; by default $POD_IP")
	f.StringVar(&o.virtualNode, "virtualnode-name", o.virtualNode, "VirtualNode to follow; by default $VIRTUALNODE_NAME, or the name of the node")
	f.BoolVar(&o.createNode, "create-node", true, "register a node")
	f.DurationVar(&o.leaseDuration, "node-lease-duration", 40*time.Second, "duration of the node's heartbeat lease, renewed four times as often")
	f.DurationVar(&o.pingInterval, "node-ping-interval", 10*time.Second, "how often to ping the provider's API server; 0 disables pings")
	f.DurationVar(&o.pingTimeout, "node-ping-timeout", time.Second, "timeout of a ping; after three lost pings the node is NotReady")
	f.BoolVar(&o.checkNetwork, "node-check-network", true, "make the readiness of the node depend on the network between the clusters")
	f.StringToStringVar(&o.nodeExtraAnnotations, "node-extra-annotations", nil, "annotations of the node, as k=v,k=v")
	f.StringToStringVar(&o.nodeExtraLabels, "node-extra-labels", nil, "labels of the node, as k=v,k=v")
}

func (o *options) reflectionFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("reflection")
	f.DurationVar(&o.resyncPeriod, "resync-period", 10*time.Hour, "how often to compare all objects even if nothing has changed")
	for _, kind := range reflection.DefaultKinds() {
		flag := flagName(kind.Name)
		o.workers[kind.Name] = f.Int(flag+"-reflection-workers", kind.Workers, "maximum number of "+plural(kind.Name)+" reconciled at once; 0 disables their reflection")
		if kind.Name == reflection.ServiceAccountKind {
			f.Lookup(flag + "-reflection-workers").Usage = "pods at once whose service-account tokens are worked on; 0 requests none"
		}
		if kind.Policy != reflection.Always && !kind.FollowsService { // slices cross as their Services do
			o.policies[kind.Name] = f.String(flag+"-reflection-type", string(kind.Policy), "which "+plural(kind.Name)+" cross: DenyList (all but the annotated) or AllowList (the annotated)")
		}
		if kind.StatusFields != nil {
			o.statusBack[kind.Name] = f.Bool(flag+"-status-back", true, "show the load-balancer addresses of the provider in the status of "+plural(kind.Name)+" that no controller here writes")
		}
	}
	f.BoolVar(&o.disableIPReflection, "disable-ip-reflection", false, "do not reflect EndpointSlices, and do not show the addresses of pods")
	f.StringArrayVar(&o.localPodCIDRs, "local-podcidr", nil, "CIDR of this cluster's pods, whose addresses the provider remaps itself; may be repeated")
	f.StringSliceVar(&o.foreignCIDRs, "foreign-cidrs", nil, "CIDRs, as seen from this cluster, of the provider's pods and load balancers: addresses outside of them are not shown. If empty, addresses of pods are held to --remote-pod-cidr-remap and --remote-external-cidr-remap, and load balancers may have any")
	f.StringSliceVar(&o.ownCIDRs, "own-cidrs", nil, "CIDRs of the pods, Services and nodes of this cluster: the provider cannot claim addresses in them for its pods and load balancers")
	f.StringSliceVar(&o.podCIDRs, "remote-pod-cidr", nil, "CIDRs of the provider's pods")
	f.StringSliceVar(&o.podCIDRRemaps, "remote-pod-cidr-remap", nil, "the CIDRs to which they are remapped in this cluster, in the same order")
	f.StringSliceVar(&o.externalCIDRs, "remote-external-cidr", nil, "external CIDRs of the provider")
	f.StringSliceVar(&o.externalCIDRRemaps, "remote-external-cidr-remap", nil, "the CIDRs to which they are remapped in this cluster, in the same order")
	f.BoolVar(&o.apiServerSupport, "enable-apiserver-support", false, "enable offloaded pods to use this cluster's API server; their service-account tokens are stored in Secrets of the provider")
	f.StringVar(&o.supportMode, "apiserver-support-mode", autoSupport, "how offloaded pods that use this cluster's API server get tokens: TokenAPI (requested for each pod), Legacy (those in Secrets that users made for their service accounts, which cross), auto (TokenAPI if the API server issues tokens on request, else Legacy)")
	f.StringVar(&o.homeAPIServerHost, "home-api-server-host", "", "this cluster's API server as offloaded pods reach it; by default kubernetes.default, at the address that the network tells")
	f.StringVar(&o.homeAPIServerPort, "home-api-server-port", "", "its port; by default 443, or without a host the one at which this process finds it")
	f.BoolVar(&o.storage, "enable-storage", false, "enable the virtual storage class: claims get their volumes on the provider. If disabled, claims of that class are scheduled to other nodes")
	f.StringVar(&o.virtualStorageClass, "virtual-storage-class-name", wire.DefaultStorageClass, "the virtual storage class of this cluster")
	f.StringVar(&o.remoteStorageClass, "remote-real-storage-class-name", "", "storage class on the provider if the VirtualNode names none; by default the default class of the provider")
	f.BoolVar(&o.ingress, "enable-ingress", false, "enable the ingress class of the provider: honour --remote-real-ingress-class-name")
	f.StringVar(&o.ingressClass, "remote-real-ingress-class-name", "", "ingress class on the provider if the VirtualNode names none; by default Ingresses have no class there")
	f.BoolVar(&o.loadBalancer, "enable-load-balancer", false, "enable the load-balancer class of the provider: honour --remote-real-load-balancer-class-name")
	f.StringVar(&o.loadBalancerClass, "remote-real-load-balancer-class-name", "", "load-balancer class on the provider if the VirtualNode names none; by default Services have no class there")

	p := groups.FlagSet("plugins")
	p.StringVar(&o.pluginDir, "plugin-dir", "", "folder of plugins (*.wasm, settings beside them in *.yaml), followed while running")
	p.StringVar(&o.pluginCacheDir, "plugin-cache-dir", "", "folder that keeps, between runs, compiled plugins and the last good version of each, which stands in for a file that is broken at start; by default none are kept")
}

// plural of a kind's name.
func plural(kind string) string {
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	if strings.HasSuffix(kind, "s") {
		return kind + "es"
	}
	return kind + "s"
}

func (o *options) kubeletFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("kubelet API")
	f.StringVar(&o.listenAddress, "listen-address", "0.0.0.0", "address to listen on for logs, exec, attach and port-forward")
	f.Uint16Var(&o.listenPort, "listen-port", 10250, "port to listen on; 0 for any free port")
	f.StringVar(&o.certificateType, "certificate-type", "kubelet", "who signs the serving certificate: kubelet (this cluster's signer), aws, self-signed")
	f.StringVar(&o.certificateDir, "cert-dir", "/tmp/certs", "folder for signed serving certificates")
	f.StringVar(&o.tlsCertFile, "tls-cert-file", "", "serving certificate, in place of --certificate-type; followed")
	f.StringVar(&o.tlsKeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	f.StringVar(&o.clientCA, "client-ca-file", "", "authority of callers' client certificates; by default the one that the cluster publishes in kube-system/extension-apiserver-authentication")
}

func (o *options) operationFlags(groups *cliflag.NamedFlagSets) {
	h := groups.FlagSet("high availability")
	h.BoolVar(&o.sharedLease, "vk-lease-enabled", true, "with several virtual nodes of one provider: elect the one that reflects what they share")
	h.DurationVar(&o.electDuration, "vk-lease-duration", 15*time.Second, "after which a silent leader is replaced")
	h.DurationVar(&o.electRenew, "vk-lease-renew-interval", 10*time.Second, "after which a leader that cannot renew its lease gives up")
	h.DurationVar(&o.electRetry, "vk-lease-retry-period", 5*time.Second, "between attempts to take or renew a lease")

	f := groups.FlagSet("observability")
	o.logs.AddFlags(f)
	f.IntVar(&o.logs.Verbosity, "klog.v", 0, "the same as --v")
	f.BoolVar(&o.metricsEnabled, "metrics-enabled", false, "serve Prometheus metrics")
	f.StringVar(&o.metricsAddress, "metrics-address", ":8082", "address of /metrics")
	f.StringVar(&o.healthAddress, "health-probe-address", "0", "address of /healthz and /readyz; 0 disables them")
	f.BoolVar(&o.profiling, "enable-profiling", false, "serve pprof on 127.0.0.1:6060")
}
