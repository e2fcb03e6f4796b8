// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	psapi "k8s.io/pod-security-admission/api"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/objectquota"
	"github.com/refract-project/refract/controllers/plugin"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/homenames"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/pluginsource"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// defaultRemoteRole is the default name of the role for consumers. It is the same as in Liqo.
const defaultRemoteRole = "liqo-virtual-kubelet-remote"

// options contains the values of the flags. Flags that Liqo also has have the same names.
type options struct {
	kubeconfig, clusterID, liqoNamespace   string
	clientQPS                              float32
	clientBurst                            int
	leaderElection                         bool
	electionID                             string
	resyncPeriod                           time.Duration
	podWorkers, sliceWorkers, spaceWorkers int
	clusterWorkers                         int
	pingInterval, pingTimeout              time.Duration
	nodeFailure                            bool
	approveServing                         bool
	nodeFailureDelay                       time.Duration
	networkAddresses, gateways, podIPs     bool
	keyRotation                            time.Duration
	homeDomains                            map[string]string
	drainTimeout                           time.Duration
	vkTemplate                             string
	kubeletAccounts, joinProviders         bool
	recordAfter                            time.Duration
	denyDirectConnections                  bool
	remoteClusterRole                      string
	extendedClusterRole                    string
	withdrawalGrace                        time.Duration
	metricsAddress, healthAddress          string
	webhook                                bool
	webhookHost                            string
	webhookPort                            int
	webhookClientCAs                       string
	runtimeClass                           string
	declaredPlugins                        bool
	pluginTrustPolicy                      string
	insecureRegistries                     []string
	podSecurity                            string
	podSecurityOf                          map[string]string
	reservedPrefixes                       []string
	acceptedLabels                         []string
	namePatterns                           []string
	tenantLimits                           map[string]*string // the keys are the names of the settings
	limitRange                             string
	objectCounts                           map[string]string
	consumerDefaults                       map[string]string
	defaultObjectCount                     int64
	ownCIDRs, reservedCIDRs, tenantCIDRs   []string
	enforceQuotas                          bool
	limits                                 string
	sliceQuotas                            bool
	authentication                         authenticationOptions
	logs                                   cmdutil.Logs
	inert                                  cmdutil.InertFlags
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of this cluster; by default $KUBECONFIG, or the cluster that this process runs in")
	flags.StringVar(&o.clusterID, "cluster-id", os.Getenv("CLUSTER_ID"), "id of this cluster, by which its peers know it; by default $CLUSTER_ID")
	flags.StringVar(&o.liqoNamespace, "liqo-namespace", envOr("POD_NAMESPACE", "liqo"), "namespace of this installation, with the leader-election lease and the Service and the Secret of the webhook; by default $POD_NAMESPACE, or liqo")
	flags.Float32Var(&o.clientQPS, "client-qps", -1, "maximum number of requests per second to the API server; negative for no limit, which leaves it to priority and fairness")
	flags.IntVar(&o.clientBurst, "client-max-burst", 0, "maximum burst of requests when --client-qps is positive; 0 for the default of Kubernetes clients")
	flags.BoolVar(&o.leaderElection, "enable-leader-election", true, "run one active replica at a time; also needed with a single replica during rollouts")
	flags.StringVar(&o.electionID, "leader-election-id", rbac.LeaderElectionID, "name of the Lease for leader election; use "+rbac.BesideLiqoElectionID+" beside Liqo's controller manager, which uses the default")
	flags.DurationVar(&o.resyncPeriod, "resync-period", 10*time.Hour, "how often to reconcile all objects even if nothing has changed")
	flags.IntVar(&o.podWorkers, "shadow-pod-ctrl-workers", 10, "maximum number of ShadowPods reconciled at once")
	flags.IntVar(&o.sliceWorkers, "shadow-endpointslice-ctrl-workers", 10, "maximum number of ShadowEndpointSlices reconciled at once")
	flags.IntVar(&o.spaceWorkers, "namespace-ctrl-workers", 10, "maximum number of NamespaceOffloadings, and of NamespaceMaps of consumers, reconciled at once")
	flags.IntVar(&o.clusterWorkers, "foreign-cluster-workers", 1, "maximum number of ForeignClusters reconciled at once")
	flags.DurationVar(&o.pingInterval, "foreign-cluster-ping-interval", 15*time.Second, "how often to probe the API servers of peered clusters; 0 disables probes: the clusters then count as healthy")
	flags.DurationVar(&o.pingTimeout, "foreign-cluster-ping-timeout", 5*time.Second, "timeout of a probe; three failed probes in a row, a second apart, make a peered cluster unavailable")
	flags.BoolVar(&o.nodeFailure, "enable-node-failure-controller", false, "enable force deletion of offloaded pods that are Terminating on a node that is not ready, so that they are recreated on another node; pods of StatefulSets, and those that write to claims, wait for the taint node.kubernetes.io/out-of-service")
	flags.StringVar(&o.vkTemplate, "vk-options-default-template", "", "VkOptionsTemplate (namespace/name) of VirtualNodes that reference none; if empty, no virtual kubelet is deployed")
	flags.BoolVar(&o.kubeletAccounts, "create-service-accounts", false,
		"create the ServiceAccounts of virtual kubelets, with their roles and bindings, for VirtualNodes in the tenant namespace of their provider that have no spec.template, and no VkOptionsTemplate of another namespace than that of this installation")
	flags.BoolVar(&o.joinProviders, "join-providers", false,
		"join providers by Liqo's protocol: sign their nonces, write the kubeconfigs of Identities, send ResourceSlices of this cluster, and create VirtualNodes from the answers (needs --create-service-accounts for those to run)")
	flags.DurationVar(&o.drainTimeout, "virtual-node-drain-timeout", 10*time.Minute, "how long the drain of a virtual node may take before it is reported as stuck, while it is retried; 0 disables the report")
	flags.BoolVar(&o.approveServing, "approve-serving-certificates", false, "approve the CertificateSigningRequests of virtual kubelets for their serving certificates (--certificate-type=kubelet)")
	flags.DurationVar(&o.nodeFailureDelay, "node-failure-delay", time.Minute, "how long a node must have been not ready before its pods are force-deleted")
	flags.BoolVar(&o.networkAddresses, "enable-network-addresses", false,
		"enable granting ranges and addresses to Networks, IPs and Configurations, as Liqo's IPAM does; "+
			"do not use it with Liqo's network module")
	flags.StringSliceVar(&o.reservedCIDRs, "reserved-cidrs", nil,
		"CIDRs that are not granted, such as those of databases outside of this cluster; peers that ask for them, and the external range, "+
			"get others; ranges that were granted before stay (needs --enable-network-addresses)")
	flags.BoolVar(&o.gateways, "enable-gateways", false,
		"enable running the gateways of GatewayServers and GatewayClients whose template is in the namespace of this installation; "+
			"those with templates of Liqo are left to Liqo")
	flags.BoolVar(&o.podIPs, "offloaded-pod-ips", false,
		"create an IP for each offloaded pod, so that pods at other providers reach it through the gateways of this cluster; "+
			"needs --enable-gateways")
	flags.DurationVar(&o.keyRotation, "gateway-key-rotation-interval", 30*24*time.Hour,
		"age of a gateway's keys at which others replace them, if the gateway of the peer runs Refract; the connection stays; "+
			"0 disables it")
	flags.StringToStringVar(&o.homeDomains, "home-domain-of", nil, "consumers whose pods resolve the DNS names of their own cluster, with the domain of its DNS, as cluster-id=domain, such as milan=cluster.local, separated by commas; the command home-names must run for each of them, behind the Service "+wire.HomeNamesService+" in its tenant namespace, and pods wait for that Service; by default none")
	flags.DurationVar(&o.recordAfter, "shadow-pod-record-after", 30*time.Second, "age of a pod at which the phase Running is recorded in its ShadowPod; the final phase is recorded at once")
	flags.BoolVar(&o.denyDirectConnections, "deny-direct-connections", false, "drop endpoints in third clusters that would be reached directly, bypassing the consumer")
	flags.StringVar(&o.extendedClusterRole, "extended-cluster-role", "liqo-virtual-kubelet-extended", "ClusterRole bound to virtual kubelets in the namespaces offloaded to their providers; empty if they have it in all namespaces")
	flags.DurationVar(&o.withdrawalGrace, "namespace-withdrawal-grace", time.Minute, "how long to keep the remote namespace on a provider that the clusterSelector no longer matches, before it is deleted with everything in it; deleting the NamespaceOffloading deletes it at once")
	flags.StringSliceVar(&o.acceptedLabels, "accepted-offer-labels", nil, "labels that every provider may offer for its virtual nodes, as KEY or KEY=VALUE, separated by commas, in addition to those accepted with refractctl peer; a * in KEY matches any characters except /; by default none, because a clusterSelector could match them")
	flags.BoolVar(&o.declaredPlugins, "enable-declared-plugins", false, "enable fetching, verifying, testing and storing the modules of ReflectionPlugins")
	flags.StringVar(&o.pluginTrustPolicy, "plugin-trust-policy", "", "file with the policy of signatures of plugins, YAML: default (Require, Warn or Off), and prefixes with prefix, mode and keys (public keys, PEM); it is read before each verification; if empty, modules without a signature are accepted with a Warning")
	flags.StringSliceVar(&o.insecureRegistries, "plugin-insecure-registries", nil, "registries, as HOST or HOST:PORT, separated by commas, that are asked for plugins by HTTP, without encryption; by default none")
	flags.StringVar(&o.remoteClusterRole, "remote-cluster-role", defaultRemoteRole, "ClusterRole bound to consumers in their namespaces of this cluster")
	flags.StringVar(&o.podSecurity, "tenant-pod-security", "baseline", "Pod Security level of the namespaces of consumers: privileged, baseline or restricted; a namespace that has the label "+psapi.EnforceLevelLabel+" already keeps it")
	flags.StringToStringVar(&o.podSecurityOf, "tenant-pod-security-of", nil, "Pod Security levels of single consumers, as cluster-id=level, separated by commas")
	flags.StringSliceVar(&o.reservedPrefixes, "tenant-reserved-prefixes", nil, "prefixes of namespace names that consumers cannot use, in addition to kube-, openshift- and liqo-tenant-")
	flags.StringArrayVar(&o.namePatterns, "tenant-namespace-pattern-of", nil, "regular expression that the names of one consumer's namespaces match as a whole, as cluster-id=pattern; may be given several times")
	o.tenantLimits = map[string]*string{}
	for _, setting := range tenantlimits.Settings() {
		o.tenantLimits[setting.Name] = flags.String(setting.Flag(), setting.Default, setting.Help+"; the annotation "+setting.Annotation()+" of a tenant namespace overrides it for one consumer")
	}
	flags.StringVar(&o.limitRange, "tenant-limit-range", "", "limits of the LimitRange "+wire.TenantLimitRange+" in the namespaces of consumers, as a JSON list such as [{\"type\":\"Container\",\"defaultRequest\":{\"cpu\":\"100m\"}}]; if empty, there is none")
	flags.StringToStringVar(&o.objectCounts, "tenant-object-counts", defaultObjectCounts(), "maximum number of objects of each kind in a namespace of a consumer, and of authentication.liqo.io in its tenant namespace, as resource=number with the resources of ResourceQuotas, such as count/secrets=1000, separated by commas; empty for no limit")
	flags.StringToStringVar(&o.consumerDefaults, "tenant-default-quota", map[string]string{"services.nodeports": "100", "services.loadbalancers": "10", "persistentvolumeclaims": "1000", "requests.storage": "10Ti"}, "what a consumer may have in all its namespaces together, of each resource that no Quota of it names, as resource=quantity with the resources of ResourceQuotas that no pod has, such as services.nodeports=100, separated by commas; empty for no limit")
	flags.Int64Var(&o.defaultObjectCount, "tenant-default-object-count", 1000, "maximum number of objects, in a namespace of a consumer, of each kind that RBAC lets it create in addition to those of its role in the chart, such as a ReflectedResource, unless --tenant-object-counts names the kind; 0 for no limit")
	flags.BoolVar(&o.enforceQuotas, "enable-resource-enforcement", true, "enforce the Quotas of the users of consumers; a consumer without Quotas in its tenant namespace is not limited")
	flags.BoolVar(&o.sliceQuotas, "resource-slice-quotas", false, "create the Quotas of the ResourceSlices that Liqo's authentication module has accepted in this cluster, and refuse the pods of consumers without any Quota; --authentication-enabled does so for consumers that have joined with a Tenant")
	flags.StringVar(&o.limits, "default-limits-enforcement", "None", "default enforcement of requests and limits, for Quotas that set none: None, Soft (requests of cpu and memory are mandatory) or Hard (limits must also equal requests)")
	flags.StringArrayVar(&o.tenantCIDRs, "tenant-cidrs-of", nil, "CIDRs of the endpoints of one consumer, as cluster-id=CIDR,CIDR: endpoints outside of them are dropped. If not set, endpoints must be in the CIDRs that the network between the clusters reports for the consumer, if any; may be repeated")
	flags.StringSliceVar(&o.ownCIDRs, "own-cidrs", nil, "CIDRs of the pods, Services and nodes of this cluster: endpoints of consumers in them are dropped")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8082", "address of the Prometheus metrics; 0 disables them")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of /healthz and /readyz; 0 disables them")
	flags.BoolVar(&o.webhook, "enable-scheduling-webhook", true, "serve the admission webhook that lets pods of offloaded namespaces run on virtual nodes")
	flags.StringVar(&o.webhookHost, "webhook-host", "", "address on which webhooks are served; all when empty")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port on which webhooks are served")
	flags.StringVar(&o.webhookClientCAs, "webhook-client-ca-file", "", "file with the certificate authorities, PEM, of the client certificates that API servers show to the webhooks; others cannot call them then. Use an authority of its own: that of the cluster also signs certificates of consumers. If empty, anyone in the cluster can call them, and answers about Quotas do not say how much is used")
	flags.StringVar(&o.runtimeClass, "liqo-runtime-class", wire.RuntimeClassName, "runtime class whose pods the scheduling webhook skips, because the class itself schedules them on virtual nodes; empty for none")
	o.authentication.addFlags(flags)
	o.logs.AddFlags(flags)
	o.addInertFlags(flags)
}

// addInertFlags adds flags of Liqo's controller manager that have no effect in Refract, because the feature does not
// exist or is always enabled.
func (o *options) addInertFlags(flags *pflag.FlagSet) {
	const (
		network = "no network module is part of this controller manager; it reads Liqo's Connections, Configurations and IPs where they exist"
		storage = "claims of the virtual storage class get volumes on virtual nodes alone; see --enable-storage of the virtual kubelet"
		global  = "set common.globalLabels and common.globalAnnotations of the chart, for its own objects"
	)
	for _, f := range []struct {
		name, missing, byDefault string
		boolean                  bool
	}{
		{"networking-enabled", network, "false", true},
		{"offloading-enabled", "the offloading controllers always run", "true", true},
		{"virtual-storage-class-name", storage, "", false}, {"storage-namespace", storage, "", false},
		{"podcidr", "set --local-podcidr of virtual kubelets, in the extraArgs of their VkOptionsTemplate", "", false},
		{"enable-api-server-proxy-ip-remapping", network, "false", true}, {"api-server-ip-use-endpointslices", network, "false", true},
		{"network-ctrl-workers", network, "1", false}, {"ip-ctrl-workers", network, "1", false},
		{"global-labels", global, "", false}, {"global-annotations", global, "", false},
		{"client-timeout", "requests have timeouts of their own", "0s", false},
		{"resource-validator-refresh-interval", "the usage of a consumer is computed from its pods", "5m0s", false},
	} {
		o.inert.Add(flags, f.name, f.missing, f.byDefault, f.boolean)
	}
}

func envOr(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// validateOptions validates the flags. It returns the errors of all flags together. Each error contains the flag and
// the remedy.
func (o *options) validateOptions() error {
	return errors.Join(o.validateID(), o.validateClient(), o.validateWork(), o.validateTenancy(), o.logs.Validate())
}

func (o *options) validateID() error {
	if o.clusterID == "" {
		return errors.New("--cluster-id is missing: set it to the id by which peers know this cluster")
	}
	if err := core.ClusterID(o.clusterID).Validate(); err != nil {
		return fmt.Errorf("--cluster-id: %w", err)
	}
	return nil
}

func (o *options) validateClient() error {
	var faults []error
	if o.clientQPS == 0 {
		faults = append(faults, errors.New("--client-qps=0: use a positive number, or a negative one for no limit"))
	}
	if o.clientBurst < 0 {
		faults = append(faults, fmt.Errorf("--client-max-burst is %d: use 1 or more, or 0 for the default", o.clientBurst))
	}
	return errors.Join(faults...)
}

// labelAcceptance returns the labels that providers may offer.
func (o *options) labelAcceptance() (negotiation.Acceptance, error) {
	accepted, err := negotiation.ParseAcceptance(o.acceptedLabels)
	if err != nil {
		return nil, fmt.Errorf("--accepted-offer-labels: %w", err)
	}
	return accepted, nil
}

func (o *options) validateWork() error {
	var faults []error
	for _, known := range []struct {
		flag    string
		workers int
	}{
		{"shadow-pod-ctrl-workers", o.podWorkers}, {"shadow-endpointslice-ctrl-workers", o.sliceWorkers}, {"namespace-ctrl-workers", o.spaceWorkers},
		{"foreign-cluster-workers", o.clusterWorkers},
	} {
		if known.workers < 1 {
			faults = append(faults, fmt.Errorf("--%s is %d: use 1 or more", known.flag, known.workers))
		}
	}
	if o.pingInterval < 0 {
		faults = append(faults, fmt.Errorf("--foreign-cluster-ping-interval is %s: use a positive duration such as 15s, or 0 to disable probes", o.pingInterval))
	}
	if o.pingTimeout <= 0 {
		faults = append(faults, fmt.Errorf("--foreign-cluster-ping-timeout is %s: use a positive duration such as 5s", o.pingTimeout))
	}
	if o.nodeFailureDelay < 0 {
		faults = append(faults, fmt.Errorf("--node-failure-delay is %s: use 0 or a positive duration such as 1m", o.nodeFailureDelay))
	}
	if _, err := o.defaultTemplate(); err != nil {
		faults = append(faults, err)
	}
	if _, err := o.labelAcceptance(); err != nil {
		faults = append(faults, err)
	}
	if len(o.reservedCIDRs) > 0 && !o.networkAddresses {
		faults = append(faults, errors.New("--reserved-cidrs needs --enable-network-addresses"))
	}
	if _, err := o.reservedRanges(); err != nil {
		faults = append(faults, err)
	}
	if o.podIPs && !o.gateways {
		faults = append(faults, errors.New("--offloaded-pod-ips needs --enable-gateways"))
	}
	if o.keyRotation < 0 {
		const text = "--gateway-key-rotation-interval is %s: use 0 or a positive duration such as 720h"
		faults = append(faults, fmt.Errorf(text, o.keyRotation))
	}
	if o.drainTimeout < 0 {
		faults = append(faults, fmt.Errorf("--virtual-node-drain-timeout is %s: use 0 or a positive duration such as 10m", o.drainTimeout))
	}
	if o.recordAfter < 0 {
		faults = append(faults, fmt.Errorf("--shadow-pod-record-after is %s: use 0 or a positive duration such as 10s", o.recordAfter))
	}
	faults = append(faults, validateHomeDomains(o.homeDomains))
	if o.remoteClusterRole == "" {
		faults = append(faults, fmt.Errorf("--remote-cluster-role is empty: name the ClusterRole that consumers get, such as %s", defaultRemoteRole))
	}
	if o.webhook && (o.webhookPort < 1 || o.webhookPort > 65535) {
		faults = append(faults, fmt.Errorf("--webhook-port is %d: use a port between 1 and 65535, or --enable-scheduling-webhook=false", o.webhookPort))
	}
	if o.resyncPeriod <= 0 {
		faults = append(faults, fmt.Errorf("--resync-period is %s: use a positive duration such as 10h", o.resyncPeriod))
	}
	return errors.Join(faults...)
}

// validateHomeDomains validates the value of --home-domain-of.
func validateHomeDomains(domains map[string]string) error {
	for id, domain := range domains {
		if err := core.ClusterID(id).Validate(); err != nil {
			return fmt.Errorf("--home-domain-of: %w", err)
		}
		if problems := validation.IsDNS1123Subdomain(domain); len(problems) > 0 {
			return fmt.Errorf("--home-domain-of: %s=%s: the domain is invalid (%s): use the domain of the DNS of that cluster, such as %s", id, domain, problems[0], homenames.DefaultDomain)
		}
	}
	return nil
}

func (o *options) validateTenancy() error {
	for _, text := range o.namePatterns {
		if id, pattern, ok := strings.Cut(text, "="); !ok || id == "" || pattern == "" {
			return fmt.Errorf("--tenant-namespace-pattern-of=%s: use cluster-id=pattern, such as milan=milan-.*", text)
		}
	}
	limits, err := o.limitsOfTenants()
	if err != nil {
		return fmt.Errorf("--tenant-%w", err)
	}
	settings := o.tenancyOptions(limits)
	if err := settings.Validate(); err != nil {
		return fmt.Errorf("--tenant-pod-security, --tenant-pod-security-of, --tenant-namespace-pattern-of: %w", err)
	}
	_, err = o.quotaOptions()
	_, countErr := o.countLimits()
	_, defaultErr := o.consumerLimits()
	if o.defaultObjectCount < 0 {
		countErr = errors.Join(countErr, fmt.Errorf("--tenant-default-object-count is %d: use a number of objects, or 0 for no limit", o.defaultObjectCount))
	}
	_, ownErr := o.ownRanges()
	_, rangeErr := o.rangesOf()
	_, authenticationErr := o.authentication.authenticationConfig()
	_, limitRangeErr := o.limitRangeOfTenants()
	return errors.Join(limitRangeErr, err, countErr, defaultErr, ownErr, rangeErr, authenticationErr)
}

// defaultTemplate returns the name of the default template for virtual kubelets. It is empty if this process does not
// create virtual kubelets.
func (o *options) defaultTemplate() (name types.NamespacedName, err error) {
	if o.vkTemplate == "" {
		return name, nil
	}
	var found bool
	if name.Namespace, name.Name, found = strings.Cut(o.vkTemplate, "/"); !found || name.Namespace == "" || name.Name == "" {
		return name, fmt.Errorf("--vk-options-default-template=%s: use namespace/name", o.vkTemplate)
	}
	return name, nil
}

// quotaOptions returns the options for enforcing Quotas. The enforcement level is not case-sensitive, because the
// default of Liqo's flag differs in case from the value in Liqo's CRD.
func (o *options) quotaOptions() (controllers.QuotaOptions, error) {
	for _, known := range []offloading.LimitsEnforcement{offloading.NoLimitsEnforcement, offloading.SoftLimitsEnforcement, offloading.HardLimitsEnforcement} {
		if strings.EqualFold(o.limits, string(known)) {
			return controllers.QuotaOptions{Off: !o.enforceQuotas, Limits: known, Required: o.sliceQuotas, OfTenants: o.authentication.enabled}, nil
		}
	}
	return controllers.QuotaOptions{}, fmt.Errorf("--default-limits-enforcement is %q: use None, Soft or Hard", o.limits)
}

// defaultObjectCounts returns the default limits. They are several times the numbers of objects in large namespaces.
// Limits are needed because the controllers cache up to 64 KiB of each ShadowPod, and because the token of each pod is
// reflected as a Secret.
func defaultObjectCounts() map[string]string {
	return map[string]string{
		"count/shadowpods.offloading.liqo.io": "5000", "count/shadowendpointslices.offloading.liqo.io": "5000",
		"count/secrets": "10000", "count/configmaps": "5000", "count/services": "2000", "count/persistentvolumeclaims": "2000",
		"count/ingresses.networking.k8s.io": "2000", "count/networkpolicies.networking.k8s.io": "500", "count/poddisruptionbudgets.policy": "500",
		"count/resourceslices.authentication.liqo.io": "100", "count/renews.authentication.liqo.io": "100",
	}
}

// countLimits returns the maximum number of objects of each kind that a consumer may have in one namespace.
func (o *options) countLimits() (corev1.ResourceList, error) {
	counts := corev1.ResourceList{}
	for name, text := range o.objectCounts {
		count, err := resource.ParseQuantity(text)
		if !strings.HasPrefix(name, "count/") || err != nil || count.Sign() < 0 {
			return nil, fmt.Errorf("--tenant-object-counts: %s=%s is not a count: use count/RESOURCE.GROUP=NUMBER, such as count/secrets=1000", name, text)
		}
		counts[corev1.ResourceName(name)] = count
	}
	return counts, nil
}

// consumerLimits returns the limits of a consumer for resources that none of its Quotas contains.
func (o *options) consumerLimits() (corev1.ResourceList, error) {
	limits := corev1.ResourceList{}
	for name, text := range o.consumerDefaults {
		limit, err := resource.ParseQuantity(text)
		if !objectquota.IsCounted(corev1.ResourceName(name)) || err != nil || limit.Sign() < 0 {
			return nil, fmt.Errorf("--tenant-default-quota: %s=%s is not a limit: use a resource of a ResourceQuota that no pod has, and a quantity, such as services.nodeports=100", name, text)
		}
		limits[corev1.ResourceName(name)] = limit
	}
	return limits, nil
}

// ownRanges returns the configured address ranges of this cluster.
func (o *options) ownRanges() (ipmap.Ranges, error) {
	return ipmap.ParseRanges("--own-cidrs", o.ownCIDRs)
}

// reservedRanges returns the ranges that peers do not get.
func (o *options) reservedRanges() (ipmap.Ranges, error) {
	return ipmap.ParseRanges("--reserved-cidrs", o.reservedCIDRs)
}

// rangesOf returns the configured address ranges of each consumer. Consumers without configured ranges are omitted.
func (o *options) rangesOf() (map[string]ipmap.Ranges, error) {
	all := map[string]ipmap.Ranges{}
	for _, text := range o.tenantCIDRs {
		id, list, ok := strings.Cut(text, "=")
		if !ok || id == "" || list == "" {
			return nil, fmt.Errorf("--tenant-cidrs-of=%s: use cluster-id=CIDR,CIDR, such as milan=10.70.0.0/16", text)
		}
		ranges, err := ipmap.ParseRanges("--tenant-cidrs-of="+text, strings.Split(list, ","))
		if err != nil {
			return nil, err
		}
		all[id] = append(all[id], ranges...)
	}
	return all, nil
}

// pluginOptions returns the options for fetching the modules of ReflectionPlugins.
func (o *options) pluginOptions() plugin.Options {
	return plugin.Options{
		Enabled: o.declaredPlugins, TrustPolicy: o.pluginTrustPolicy, Sources: pluginsource.Options{InsecureRegistries: o.insecureRegistries},
	}
}

// tenancyOptions returns the options for the objects that consumers may create in this cluster.
func (o *options) tenancyOptions(limits tenantlimits.Limits) controllers.TenancyOptions {
	patterns := map[string]string{}
	for _, text := range o.namePatterns {
		id, pattern, _ := strings.Cut(text, "=")
		patterns[id] = pattern
	}
	return controllers.TenancyOptions{
		PodSecurity: o.podSecurity, Levels: o.podSecurityOf, ReservedPrefixes: o.reservedPrefixes, NamePatterns: patterns, Limits: limits,
	}
}

// limitRangeOfTenants returns the limits for the LimitRange in the namespaces of consumers.
func (o *options) limitRangeOfTenants() (limits []corev1.LimitRangeItem, err error) {
	if o.limitRange == "" {
		return nil, nil
	}
	decoder := json.NewDecoder(strings.NewReader(o.limitRange))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&limits); err != nil {
		return nil, fmt.Errorf("--tenant-limit-range is not a JSON list of limits as in the spec of a LimitRange: %w", err)
	}
	return limits, nil
}

// limitsOfTenants returns the limits of all consumers. An error begins with the name of the setting.
func (o *options) limitsOfTenants() (tenantlimits.Limits, error) {
	values := map[string]string{}
	for name, value := range o.tenantLimits {
		values[name] = *value
	}
	return tenantlimits.New(values)
}

// webhookOptions returns the settings of the webhooks, or nil if no webhooks are served.
func (o *options) webhookOptions() *controllers.WebhookOptions {
	if !o.webhook {
		return nil
	}
	return &controllers.WebhookOptions{Namespace: o.liqoNamespace, Host: o.webhookHost, Port: o.webhookPort, ClientCAFile: o.webhookClientCAs, RuntimeClass: o.runtimeClass}
}

// restConfig returns the client configuration for this cluster.
func (o *options) restConfig() (*rest.Config, error) {
	config, err := o.loadConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = o.clientQPS, o.clientBurst
	config.UserAgent = wire.ControllerManagerProcess + "/" + cmdutil.Version()
	return config, nil
}

// loadConfig returns the client configuration. An error names the source of the kubeconfig.
func (o *options) loadConfig() (*rest.Config, error) {
	source, path := "--kubeconfig", o.kubeconfig
	if path == "" {
		source, path = "$KUBECONFIG", os.Getenv("KUBECONFIG")
	}
	return connection.LoadLocal("--kubeconfig", source, path)
}
