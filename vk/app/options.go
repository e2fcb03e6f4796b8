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
	f.DurationVar(&o.clientTimeout, "client-timeout", 0, "how long a request to either API server may take; 0 leaves it to each caller")
	f.Float32Var(&o.clientQPS, "client-qps", -1, "requests a second to each API server for the node, leases and the kubelet API; negative sets no limit. Reflection never has one: it leaves the flow to the API servers' priority and fairness")
	f.Var(&o.foreignAnswer, "foreign-answer-limit", "bytes that are read of one answer of the provider's API server: a longer list is not used, after a watch that has brought as much everything is listed again")
	f.IntVar(&o.clientBurst, "client-max-burst", 100, "requests at once when --client-qps is positive; without effect on reflection")
}

func (o *options) nodeFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("node")
	f.StringVar(&o.nodeName, "nodename", "virtual-kubelet", "name of the node, and of the lease that decides which replica is active")
	f.StringVar(&o.nodeIP, "node-ip", o.nodeIP, "address at which the control plane reaches this process; by default $POD_IP")
	f.StringVar(&o.virtualNode, "virtualnode-name", o.virtualNode, "VirtualNode to follow; by default $VIRTUALNODE_NAME, or the name of the node")
	f.BoolVar(&o.createNode, "create-node", true, "register a node")
	f.DurationVar(&o.leaseDuration, "node-lease-duration", 40*time.Second, "duration of the node's heartbeat lease, renewed four times as often")
	f.DurationVar(&o.pingInterval, "node-ping-interval", 10*time.Second, "how often the provider's API server is pinged; 0 turns pings off")
	f.DurationVar(&o.pingTimeout, "node-ping-timeout", time.Second, "when a ping counts as lost; three lost ones make the node NotReady")
	f.BoolVar(&o.checkNetwork, "node-check-network", true, "make the node's readiness depend on the network between the clusters")
	f.StringToStringVar(&o.nodeExtraAnnotations, "node-extra-annotations", nil, "annotations of the node, as k=v,k=v")
	f.StringToStringVar(&o.nodeExtraLabels, "node-extra-labels", nil, "labels of the node, as k=v,k=v")
}

func (o *options) reflectionFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("reflection")
	f.DurationVar(&o.resyncPeriod, "resync-period", 10*time.Hour, "how often everything is compared again though nothing has changed")
	for _, kind := range reflection.DefaultKinds() {
		flag := flagName(kind.Name)
		o.workers[kind.Name] = f.Int(flag+"-reflection-workers", kind.Workers, plural(kind.Name)+" worked on at once; 0 does not reflect them")
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
	f.BoolVar(&o.disableIPReflection, "disable-ip-reflection", false, "reflect no EndpointSlices and show no pod addresses")
	f.StringArrayVar(&o.localPodCIDRs, "local-podcidr", nil, "range of this cluster's pods, whose addresses the provider remaps itself; may be given several times")
	f.StringSliceVar(&o.foreignCIDRs, "foreign-cidrs", nil, "ranges, as seen from this cluster, in which the provider's pods and load balancers have their addresses: others are not shown. Without, pods have theirs in --remote-pod-cidr-remap and --remote-external-cidr-remap, if these are given, and load balancers have any")
	f.StringSliceVar(&o.ownCIDRs, "own-cidrs", nil, "ranges of the pods, Services and nodes of this cluster, separated by commas: addresses there are not believed to be the provider's")
	f.StringSliceVar(&o.podCIDRs, "remote-pod-cidr", nil, "ranges of the provider's pods")
	f.StringSliceVar(&o.podCIDRRemaps, "remote-pod-cidr-remap", nil, "what those ranges look like here, in the same order")
	f.StringSliceVar(&o.externalCIDRs, "remote-external-cidr", nil, "external ranges of the provider")
	f.StringSliceVar(&o.externalCIDRRemaps, "remote-external-cidr-remap", nil, "what those ranges look like here, in the same order")
	f.BoolVar(&o.apiServerSupport, "enable-apiserver-support", false, "let offloaded pods use this cluster's API server: their service-account tokens are kept in Secrets of the provider")
	f.StringVar(&o.supportMode, "apiserver-support-mode", autoSupport, "how offloaded pods that use this cluster's API server get tokens: TokenAPI (requested for each pod), Legacy (those in Secrets that users made for their service accounts, which cross), auto (TokenAPI if the API server issues tokens on request, else Legacy)")
	f.StringVar(&o.homeAPIServerHost, "home-api-server-host", "", "this cluster's API server as offloaded pods reach it; by default kubernetes.default, at the address that the network tells")
	f.StringVar(&o.homeAPIServerPort, "home-api-server-port", "", "its port; by default 443, or without a host the one at which this process finds it")
	f.BoolVar(&o.storage, "enable-storage", false, "make volumes on the provider for claims of the virtual storage class; without it other nodes are selected for them")
	f.StringVar(&o.virtualStorageClass, "virtual-storage-class-name", wire.DefaultStorageClass, "the virtual storage class of this cluster")
	f.StringVar(&o.remoteStorageClass, "remote-real-storage-class-name", "", "storage class on the provider as long as the VirtualNode names none; by default the provider's own default")
	f.BoolVar(&o.ingress, "enable-ingress", false, "let --remote-real-ingress-class-name count")
	f.StringVar(&o.ingressClass, "remote-real-ingress-class-name", "", "class of Ingresses on the provider as long as the VirtualNode names none; by default they have none there")
	f.BoolVar(&o.loadBalancer, "enable-load-balancer", false, "let --remote-real-load-balancer-class-name count")
	f.StringVar(&o.loadBalancerClass, "remote-real-load-balancer-class-name", "", "class of load balancers on the provider as long as the VirtualNode names none; by default they have none there")

	p := groups.FlagSet("plugins")
	p.StringVar(&o.pluginDir, "plugin-dir", "", "folder of plugins (*.wasm, settings beside them in *.yaml), followed while running")
	p.StringVar(&o.pluginCacheDir, "plugin-cache-dir", "", "folder that keeps, between runs, compiled plugins and the last good version of each, which stands in for a file that is broken at start; by default none are kept")
}

// plural of a kind's name.
func plural(kind string) string {
	if strings.HasSuffix(kind, "s") {
		return kind + "es"
	}
	return kind + "s"
}

func (o *options) kubeletFlags(groups *cliflag.NamedFlagSets) {
	f := groups.FlagSet("kubelet API")
	f.StringVar(&o.listenAddress, "listen-address", "0.0.0.0", "address to listen on for logs, exec, attach and port-forward")
	f.Uint16Var(&o.listenPort, "listen-port", 10250, "port to listen on; 0 takes a free one")
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
	f.StringVar(&o.healthAddress, "health-probe-address", "0", "address of /healthz and /readyz; 0 turns them off")
	f.BoolVar(&o.profiling, "enable-profiling", false, "serve pprof on 127.0.0.1:6060")
}
