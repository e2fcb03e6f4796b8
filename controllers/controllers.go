// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/addresses"
	"github.com/refract-project/refract/controllers/authentication"
	"github.com/refract-project/refract/controllers/credentials"
	"github.com/refract-project/refract/controllers/foreigncluster"
	"github.com/refract-project/refract/controllers/gateways"
	"github.com/refract-project/refract/controllers/identity"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/ledger"
	"github.com/refract-project/refract/controllers/internal/metrics"
	"github.com/refract-project/refract/controllers/internal/networks"
	"github.com/refract-project/refract/controllers/internal/onepass"
	"github.com/refract-project/refract/controllers/internal/ownranges"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/controllers/namespacemap"
	"github.com/refract-project/refract/controllers/namespaceoffloading"
	"github.com/refract-project/refract/controllers/negotiation"
	"github.com/refract-project/refract/controllers/network"
	"github.com/refract-project/refract/controllers/nodeaddresses"
	"github.com/refract-project/refract/controllers/nodefailure"
	"github.com/refract-project/refract/controllers/objectquota"
	"github.com/refract-project/refract/controllers/plugin"
	"github.com/refract-project/refract/controllers/podaddresses"
	"github.com/refract-project/refract/controllers/podstatus"
	"github.com/refract-project/refract/controllers/replicator"
	"github.com/refract-project/refract/controllers/resourceoffer"
	"github.com/refract-project/refract/controllers/resourcerequest"
	"github.com/refract-project/refract/controllers/resourceshare"
	"github.com/refract-project/refract/controllers/resourceslice"
	"github.com/refract-project/refract/controllers/servingcertificate"
	"github.com/refract-project/refract/controllers/shadowendpointslice"
	"github.com/refract-project/refract/controllers/shadowpod"
	"github.com/refract-project/refract/controllers/tenantaccess"
	"github.com/refract-project/refract/controllers/virtualnode"
	"github.com/refract-project/refract/controllers/webhookcert"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/serverversion"
)

// Controller is one of the controllers that Register adds to a manager.
type Controller interface {
	// Name returns the name of the controller in logs, metrics and Events.
	Name() string
	// Register adds the controller to the manager.
	Register(ctx context.Context, mgr manager.Manager) error
	// Enforces returns an empty list of the kind that the controller reconciles, and a function that reports whether
	// the controller reconciles a given object of this kind.
	Enforces() (list client.ObjectList, meant func(client.Object) bool)
}

// QuotaOptions configures the enforcement of consumers' Quotas.
type QuotaOptions = ledger.Options

// Options are the settings of all controllers.
type Options struct {
	// ClusterID is the ID of this cluster.
	ClusterID core.ClusterID
	// ShadowPodWorkers, ShadowEndpointSliceWorkers and NamespaceWorkers are the numbers of workers of the controllers.
	// The replication of NamespaceMaps always uses one worker for each map.
	ShadowPodWorkers, ShadowEndpointSliceWorkers, NamespaceWorkers int
	// ForeignClusters configures the checks of peered clusters. Register sets ClusterID, Clock and the callbacks.
	ForeignClusters foreigncluster.Options
	// NodeFailure enables the deletion of pods on failed nodes. Register sets Clock and the callbacks.
	NodeFailure nodefailure.Options
	// ServingCertificates enables the approval of the serving certificates of virtual kubelets. Register sets Clock and
	// the callbacks.
	ServingCertificates servingcertificate.Options
	// Authentication configures the admission of consumers that join as in Liqo. Register sets APIServer.Config and the
	// callbacks.
	Authentication authentication.Options
	// Identities configures how this cluster joins providers by Liqo's protocol. Register sets ClusterID, Installation,
	// AcceptedLabels, Clock and Failed.
	Identities identity.Options
	// ResourceSlices enables the creation of the Quotas of ResourceSlices. Register sets the callbacks.
	ResourceSlices resourceslice.Options
	// ResourceOffers configures the resources that this cluster offers to consumers that refractctl peer has joined.
	// Register sets the callbacks.
	ResourceOffers resourceoffer.Options
	// TenantAccess enables Tenants of consumers that refractctl peer has joined. Register sets Failed.
	TenantAccess tenantaccess.Options
	// ResourceRequests enables the denial of ResourceSlices that no controller of this cluster sends. Register sets
	// Clock and the callbacks.
	ResourceRequests resourcerequest.Options
	// ResourceShares configures how ResourceSlices on providers that run Liqo are restored. Register sets ClusterID,
	// Clock and Failed.
	ResourceShares resourceshare.Options
	// Negotiation configures how virtual nodes follow the offers of their providers. Register sets ClusterID, Clock and
	// the callbacks.
	Negotiation negotiation.Options
	// VirtualNodes configures how virtual nodes are run and drained. Register sets Installation, Clock and the
	// callbacks.
	VirtualNodes virtualnode.Options
	// Plugins configures how the modules of ReflectionPlugins are fetched. Register sets Namespace, Mapper, Clock and
	// the callbacks.
	Plugins plugin.Options
	// Addresses configures whether ranges and addresses are granted. Register sets the ranges of this cluster and the
	// callbacks that report.
	Addresses addresses.Options
	// Gateways configures whether the gateways of the network between the clusters are run. Register sets all fields
	// except Enabled, RolePrefix and KeyRotationInterval.
	Gateways gateways.Options
	// OffloadedPodIPs requests an address for each offloaded pod, at which the pods of other providers reach it. It has
	// no effect unless Gateways are enabled.
	OffloadedPodIPs bool
	// HomeDomains are the domains of the DNS of the clusters of the consumers whose pods resolve the names of their own
	// cluster, by the IDs of the consumers.
	HomeDomains map[string]string
	// RecordAfter is the age of a pod at which the phase Running is recorded in its ShadowPod.
	RecordAfter time.Duration
	// DenyDirectConnections omits endpoints in third clusters from EndpointSlices.
	DenyDirectConnections bool
	// OwnCIDRs are the ranges of this cluster's pods, Services and nodes. No endpoint of a consumer may be in these
	// ranges.
	OwnCIDRs ipmap.Ranges
	// RangesOf contains the address ranges in which the endpoints of a consumer may be, by the consumer's ID.
	RangesOf map[string]ipmap.Ranges
	// ObjectCounts limits the number of a consumer's objects of each kind in a remote namespace, and of its requests in
	// its tenant namespace.
	ObjectCounts corev1.ResourceList
	// ConsumerDefaults contains limits for resources that are in none of a consumer's Quotas. They apply to all remote
	// namespaces of a consumer together.
	ConsumerDefaults corev1.ResourceList
	// DefaultObjectCount is the maximum number of objects of each other kind that a consumer may create in a remote
	// namespace. 0 means no limit.
	DefaultObjectCount int64
	// RegrantDelay is the interval at which the permissions of consumers are read for DefaultObjectCount. 0 means 10
	// minutes.
	RegrantDelay time.Duration
	// RecountDelay is how long a limit is omitted from a ResourceQuota because this cluster does not count the kind
	// yet. 0 means 2 minutes.
	RecountDelay time.Duration
	// RemoteClusterRole is the ClusterRole that consumers get in their remote namespaces.
	RemoteClusterRole string
	// ExtendedClusterRole is the ClusterRole that virtual kubelets get in offloaded namespaces.
	ExtendedClusterRole string
	// WithdrawalGrace is how long a namespace is kept on a provider after its clusterSelector has stopped selecting the
	// provider.
	WithdrawalGrace time.Duration
	// Tenancy contains the limits of consumers in this cluster. Installation is the namespace of this process.
	Tenancy      tenancy.Options
	Installation string
	// LimitRange contains the limits of the LimitRange in the namespaces of consumers.
	LimitRange []corev1.LimitRangeItem
	// Quotas configures the enforcement of consumers' Quotas.
	Quotas QuotaOptions
	// Clock returns the time.
	Clock clock.WithTicker
	// Registerer registers the metrics. If it is nil, no metrics are exported.
	Registerer prometheus.Registerer
	// Webhooks contains the settings of the webhook server. If it is nil, there are no webhooks.
	Webhooks *WebhookOptions
}

// versionOf returns a function that reads the version of this cluster's API server.
func versionOf(mgr manager.Manager) func(context.Context) (string, error) {
	return serverversion.Cached(func(ctx context.Context) (string, error) {
		client, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return "", fmt.Errorf("creating a client, %w", err)
		}
		return serverversion.Read(ctx, client.RESTClient())
	}, clock.RealClock{})
}

// newControllers returns the controllers, with their dependencies.
func newControllers(mgr manager.Manager, live client.Reader, m *metrics.Metrics, reached *networks.Networks, own *ownranges.Ranges, policy *tenancy.Policy, quotas *ledger.Ledger, o Options) []Controller {
	c := func(name string) client.Client { return m.Client(mgr.GetClient(), name, metrics.Local) }
	recorder := func(name string) events.EventRecorder { return m.Recorder(mgr.GetEventRecorder(name), name) }
	// All errors are counted. If an admission policy denied a request, this is also reported on the reconciled object,
	// which has the given kind.
	failed := func(name string, kind client.Object) func(error) {
		count, deny := m.Failed(name), report.Denials(kindOf(mgr.GetScheme(), kind), live, recorder(name))
		return func(err error) { count(err); deny(err) }
	}
	foreignClusters := o.ForeignClusters
	foreignClusters.ClusterID = o.ClusterID.String()
	foreignClusters.Clock, foreignClusters.Failed, foreignClusters.Observed = o.Clock, failed("foreigncluster", &core.ForeignCluster{}), m.Peer
	virtualNodes := o.VirtualNodes
	virtualNodes.Installation = virtualnode.Installation{ClusterID: o.ClusterID.String(), Namespace: o.Installation}
	virtualNodes.Clock, virtualNodes.Failed = o.Clock, failed("virtualnode", &offloading.VirtualNode{})
	grantsAddresses := o.Addresses.Enabled && hasNetwork(mgr)
	virtualNodes.TranslatesAddresses, virtualNodes.JoinsProviders = grantsAddresses, o.Identities.Enabled
	restricting := brake.Client(c("namespacemap"), live, recorder("namespacemap"), o.Clock, corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
		corev1.SchemeGroupVersion.WithKind("LimitRange"), networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		corev1.SchemeGroupVersion.WithKind("Namespace"), rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
	admitting := brake.Client(c("namespaceoffloading"), live, recorder("namespaceoffloading"), o.Clock, corev1.SchemeGroupVersion.WithKind("Namespace"), rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
	limiting := brake.Client(c("objectquota"), live, recorder("objectquota"), o.Clock, corev1.SchemeGroupVersion.WithKind("ResourceQuota"))
	objectQuotas := objectquota.NewController(limiting, live, objectquota.Options{Off: o.Quotas.Off, Defaults: o.ConsumerDefaults, Failed: m.Failed("objectquota")})
	controllers := []Controller{
		shadowpod.NewController(c("shadowpod"), live, recorder("shadowpod"), shadowpod.Options{
			Workers: o.ShadowPodWorkers, RecordAfter: o.RecordAfter, Clock: o.Clock, Failed: failed("shadowpod", &offloading.ShadowPod{}),
			APIServerMapper: networks.APIServers{Networks: reached, Client: mgr.GetClient()}, Policy: policy, Quotas: quotas, HomeDomains: o.HomeDomains, Version: versionOf(mgr),
		}),
		shadowendpointslice.NewController(c("shadowendpointslice"), live, recorder("shadowendpointslice"), shadowendpointslice.Options{
			Workers: o.ShadowEndpointSliceWorkers, DenyDirectConnections: o.DenyDirectConnections, RangesOf: o.RangesOf, AddressMapper: reached,
			OwnRanges: own.All, FollowOwnRanges: own.Follow, Limits: o.Tenancy.Limits, Policy: policy, Clock: o.Clock, Failed: failed("shadowendpointslice", &offloading.ShadowEndpointSlice{}),
		}),
		namespacemap.NewController(restricting, live, recorder("namespacemap"), namespacemap.Options{
			Workers: o.NamespaceWorkers, ClusterID: o.ClusterID, RemoteClusterRole: o.RemoteClusterRole, ObjectCounts: o.ObjectCounts, RecountDelay: o.RecountDelay,
			DefaultObjectCount: o.DefaultObjectCount, RegrantDelay: o.RegrantDelay, Tenancy: o.Tenancy, Installation: o.Installation, Failed: failed("namespacemap", &offloading.NamespaceMap{}),
			OwnRanges: own.All, FollowOwnRanges: own.Follow,
			RangesOfOthers: reached.RangesOfOthers, FollowRangesOfOthers: reached.FollowRanges,
			RangesOf: o.RangesOf, LimitRange: o.LimitRange, LimitNewNamespace: objectQuotas.LimitNewNamespace,
		}),
		objectQuotas,
		namespaceoffloading.NewController(admitting, live, recorder("namespaceoffloading"), namespaceoffloading.Options{
			Workers: o.NamespaceWorkers, ClusterID: o.ClusterID, ExtendedClusterRole: o.ExtendedClusterRole, WithdrawalGrace: o.WithdrawalGrace, Clock: o.Clock, Failed: failed("namespaceoffloading", &offloading.NamespaceOffloading{}),
		}),
		foreigncluster.NewController(c("foreigncluster"), live, recorder("foreigncluster"), foreignClusters),
		virtualnode.NewController(c("virtualnode"), live, recorder("virtualnode"), virtualNodes),
		podstatus.NewController(c("podstatus"), live, podstatus.Options{Workers: o.NamespaceWorkers, Failed: failed("podstatus", &corev1.Node{})}),
		replicator.NewController(c("replicator"), live, recorder("replicator"), replicator.Options{
			ClusterID: o.ClusterID, Clock: o.Clock, Failed: failed("replicator", &offloading.NamespaceMap{}),
			Observe: func(provider client.Client) client.Client { return m.Client(provider, "replicator", metrics.Provider) },
		}),
	}
	joining := o.Identities
	joining.Enabled = joining.Enabled && hasKind(mgr, auth.ResourceSliceKind) && hasKind(mgr, auth.IdentityKind)
	negotiations := o.Negotiation
	negotiations.OwnSlices = joining.Enabled
	negotiations.ClusterID, negotiations.Clock, negotiations.Failed = o.ClusterID, o.Clock, failed("negotiation", &offloading.VirtualNode{})
	controllers = append(controllers, negotiation.NewController(c("negotiation"), live, recorder("negotiation"), negotiations))
	shares := o.ResourceShares
	shares.ClusterID, shares.Clock, shares.Failed = o.ClusterID, o.Clock, failed("resourceshare", &offloading.VirtualNode{})
	controllers = append(controllers, resourceshare.NewController(c("resourceshare"), live, recorder("resourceshare"), shares))
	controllers = append(controllers, credentials.NewController(c("credentials"), live, recorder("credentials"), credentials.Options{ClusterID: o.ClusterID.String(), Clock: o.Clock, Failed: failed("credentials", &offloading.VirtualNode{})}))
	if nodeFailure := o.NodeFailure; nodeFailure.Enabled {
		nodeFailure.Clock, nodeFailure.Failed = o.Clock, failed("nodefailure", &corev1.Pod{})
		controllers = append(controllers, nodefailure.NewController(c("nodefailure"), live, recorder("nodefailure"), nodeFailure))
	}
	if certificates := o.ServingCertificates; certificates.Enabled {
		certificates.Clock, certificates.Failed = o.Clock, failed("servingcertificate", &certificatesv1.CertificateSigningRequest{})
		controllers = append(controllers, servingcertificate.NewController(c("servingcertificate"), live, recorder("servingcertificate"), certificates))
	}
	if resourceSlices := o.ResourceSlices; resourceSlices.Enabled {
		resourceSlices.Failed = failed("resourceslice", &auth.ResourceSlice{})
		controllers = append(controllers, resourceslice.NewController(c("resourceslice"), live, recorder("resourceslice"), resourceSlices))
	}
	if offers := o.ResourceOffers; offers.Enabled && hasKind(mgr, auth.ResourceSliceKind) {
		offers.Failed = failed("resourceoffer", &auth.ResourceSlice{})
		controllers = append(controllers, resourceoffer.NewController(c("resourceoffer"), live, recorder("resourceoffer"), offers))
	}
	if access := o.TenantAccess; access.Enabled && hasKind(mgr, auth.TenantKind) {
		access.Failed = failed("tenantaccess", &auth.Tenant{})
		controllers = append(controllers, tenantaccess.NewController(c("tenantaccess"), live, recorder("tenantaccess"), access))
	}
	if requests := o.ResourceRequests; requests.Enabled && hasKind(mgr, auth.ResourceSliceKind) {
		requests.Joins = joining.Enabled
		requests.Clock, requests.Failed = o.Clock, failed("resourcerequest", &auth.ResourceSlice{})
		controllers = append(controllers, resourcerequest.NewController(c("resourcerequest"), recorder("resourcerequest"), requests))
	}
	if joining.Enabled {
		joining.ClusterID, joining.Installation, joining.AcceptedLabels, joining.Clock = o.ClusterID, o.Installation, o.Negotiation.AcceptedLabels, o.Clock
		access := identity.NewAccess(c("identity"), live, joining)
		of := func(name string, kind client.Object) identity.Options {
			joining.Failed = failed(name, kind)
			return joining
		}
		controllers = append(controllers,
			identity.NewIdentities(c("identity"), recorder("identity"), access, of("identity", &auth.Identity{})),
			identity.NewResourceSlices(c("resourceslicesender"), live, recorder("resourceslicesender"), access, of("resourceslicesender", &auth.ResourceSlice{})))
	}
	if declared := o.Plugins; declared.Enabled && hasPlugins(mgr) {
		declared.Namespace, declared.Mapper, declared.Clock, declared.Failed = o.Installation, mgr.GetRESTMapper(), o.Clock, failed("plugin", &plugins.ReflectionPlugin{})
		controllers = append(controllers, plugin.NewController(c("plugin"), live, recorder("plugin"), declared))
	}
	if grants := o.Addresses; grantsAddresses {
		grants.OwnRanges, grants.FollowOwnRanges, grants.Failed = own.All, own.Follow, m.Failed("addresses")
		controllers = append(controllers,
			addresses.NewController(c("addresses"), live, recorder("addresses"), grants),
			network.NewController(c("network"), live, recorder("network"), network.Options{
				Failed: failed("network", &networking.Configuration{}),
			}))
	}
	if running := o.Gateways; running.Enabled && hasGateways(mgr) {
		running.Workers, running.ClusterID, running.Installation = o.NamespaceWorkers, o.ClusterID.String(), o.Installation
		running.Failed = m.Failed("gateways")
		restoring := brake.Client(c("gateways"), live, recorder("gateways"), o.Clock,
			appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Service"))
		controllers = append(controllers, gateways.NewController(restoring, live, recorder("gateways"), running),
			nodeaddresses.NewController(c("nodeaddresses"), nodeaddresses.Options{
				Installation: o.Installation, Nodes: own.Nodes, FollowNodes: own.Follow, Failed: m.Failed("nodeaddresses"),
			}))
		if o.OffloadedPodIPs {
			controllers = append(controllers, podaddresses.NewController(c("podaddresses"), podaddresses.Options{
				Workers: o.NamespaceWorkers, Failed: failed("podaddresses", &corev1.Pod{}),
			}))
		}
	}
	if admission := o.Authentication; admission.Enabled {
		admission.APIServer.Config = mgr.GetConfig()
		admission.ObjectCounts, admission.RecountDelay = o.ObjectCounts, o.RecountDelay
		issuer := authentication.NewIssuer(c("tenant"), live, &admission.APIServer, o.Clock)
		of := func(name string, kind client.Object) authentication.Options {
			admission.Failed = failed(name, kind)
			return admission
		}
		controllers = append(controllers,
			authentication.NewTenants(brake.Client(c("tenant"), live, recorder("tenant"), o.Clock, corev1.SchemeGroupVersion.WithKind("ResourceQuota")), live, recorder("tenant"), issuer, of("tenant", &auth.Tenant{})),
			authentication.NewResourceSlices(c("resourceslicerequest"), live, recorder("resourceslicerequest"), issuer, of("resourceslicerequest", &auth.ResourceSlice{})),
			authentication.NewRenewals(c("renew"), recorder("renew"), issuer, of("renew", &auth.Renew{})))
	}
	return controllers
}

// kindOf returns the kind that the scheme has for the type of object.
func kindOf(scheme *runtime.Scheme, object client.Object) schema.GroupVersionKind {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		// If the scheme lacks the type, this package has a bug that makes every test fail.
		panic(err)
	}
	return kind
}

// hasKinds reports whether the CRDs of all kinds are installed. An upgrade with Helm does not install new CRDs, and all other controllers
// still work without them. consequence says what the missing CRD means and what to do, for the log.
func hasKinds(mgr manager.Manager, consequence string, kinds ...schema.GroupVersionKind) bool {
	for _, kind := range kinds {
		_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if apimeta.IsNoMatchError(err) {
			log.Log.Info("CRD not found", "kind", kind.Kind, "consequence", consequence)
			return false
		}
	}
	return true
}

// hasKind reports whether the CRD of a kind in package auth is installed.
func hasKind(mgr manager.Manager, kind string) bool {
	return hasKinds(mgr, "its controllers are disabled; install the chart's CRDs", auth.GroupVersion.WithKind(kind))
}

// hasPlugins reports whether the CRDs of declared plugins are installed.
func hasPlugins(mgr manager.Manager) bool {
	return hasKinds(mgr, "ReflectionPlugins are not reconciled; install the chart's CRDs",
		plugins.GroupVersion.WithKind(plugins.ReflectionPluginKind), plugins.GroupVersion.WithKind(plugins.PluginRevisionKind),
		plugins.GroupVersion.WithKind(plugins.PluginModuleKind))
}

// hasNetwork reports whether the CRDs of the network between the clusters are installed.
func hasNetwork(mgr manager.Manager) bool {
	return hasKinds(mgr, "no addresses are granted; install the chart with networking.addresses.enabled",
		networking.GroupVersion.WithKind(networking.ConfigurationKind),
		ipam.GroupVersion.WithKind(ipam.NetworkKind), ipam.GroupVersion.WithKind(ipam.IPKind))
}

// hasGateways reports whether the CRDs of gateways, and of the addresses of nodes, are installed.
func hasGateways(mgr manager.Manager) bool {
	return hasKinds(mgr, "no gateways run; apply the CRDs in the folder crds of the chart, and install it with networking.addresses.enabled",
		networking.GroupVersion.WithKind(networking.GatewayServerKind), networking.GroupVersion.WithKind(networking.GatewayClientKind),
		networking.GroupVersion.WithKind(networking.WgGatewayServerTemplateKind),
		networking.GroupVersion.WithKind(networking.WgGatewayClientTemplateKind), ipam.GroupVersion.WithKind(ipam.IPKind))
}

// Register adds all controllers to mgr, which must have been created with the ManagerOptions of this package.
func Register(ctx context.Context, mgr manager.Manager, o Options) error {
	m, err := metrics.New(o.Registerer)
	if err != nil {
		return fmt.Errorf("registering metrics, %w", err)
	}
	reached, err := networks.New(mgr.GetConfig())
	if err != nil {
		return err
	}
	if err := mgr.Add(reached); err != nil {
		return fmt.Errorf("registering the networks, %w", err)
	}
	var enforced []metrics.Enforced
	policy, err := tenancy.NewPolicy(o.Tenancy)
	if err != nil {
		return err
	}
	quotas := ledger.New(mgr.GetClient(), o.Quotas)
	own, err := followOwnRanges(mgr, o.OwnCIDRs)
	if err != nil {
		return err
	}
	live, err := onepass.NewReader(mgr.GetConfig(), mgr.GetAPIReader(), newDecoding())
	if err != nil {
		return err
	}
	all := newControllers(mgr, live, m, reached, own, policy, quotas, o)
	if o.Webhooks != nil {
		certificate, err := registerWebhooks(ctx, mgr, m, quotas, o.Webhooks)
		if err != nil {
			return err
		}
		all = append(all, certificate)
	}
	for _, c := range all {
		if err := c.Register(ctx, mgr); err != nil {
			return fmt.Errorf("registering controller %s, %w", c.Name(), err)
		}
		list, meant := c.Enforces()
		enforced = append(enforced, metrics.Enforced{Controller: c.Name(), List: list, Meant: meant})
		if braked, ok := c.(interface{ Quarantined() int }); ok {
			if err := metrics.RegisterQuarantined(o.Registerer, c.Name(), braked.Quarantined); err != nil {
				return fmt.Errorf("registering metrics, %w", err)
			}
		}
	}
	if err := metrics.RegisterObjects(o.Registerer, mgr.GetClient(), mgr.Elected(), enforced); err != nil {
		return fmt.Errorf("registering metrics, %w", err)
	}
	if o.Plugins.Enabled && hasPlugins(mgr) {
		if err := metrics.RegisterPlugins(o.Registerer, mgr.GetClient(), mgr.Elected()); err != nil {
			return fmt.Errorf("registering metrics, %w", err)
		}
	}
	return nil
}

// followOwnRanges returns the address ranges of this cluster. They are kept up to date while the manager runs.
func followOwnRanges(mgr manager.Manager, configured ipmap.Ranges) (*ownranges.Ranges, error) {
	clientset, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("creating the client of Nodes, %w", err)
	}
	own, err := ownranges.New(configured, clientset, mgr.GetAPIReader())
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(own); err != nil {
		return nil, fmt.Errorf("registering the ranges of this cluster, %w", err)
	}
	return own, nil
}

// Scheme returns a scheme with the types of Kubernetes, Refract and Liqo.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, auth.AddToScheme, core.AddToScheme, offloading.AddToScheme, plugins.AddToScheme,
		networking.AddToScheme, ipam.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("building scheme, %w", err)
		}
	}
	return s, nil
}

// ManagerOptions returns the options that the controllers require of a manager for the cluster of config. The caller
// may set other options.
func ManagerOptions(config *rest.Config) (manager.Options, error) {
	s, err := Scheme()
	if err != nil {
		return manager.Options{}, err
	}
	caches, err := cacheOptions(config)
	if err != nil {
		return manager.Options{}, err
	}
	return manager.Options{
		Scheme: s, Cache: caches, NewClient: onepass.NewClient,
		// Unstructured objects are read from the cache, too. By default, they would be read from the API server.
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	}, nil
}

// cacheDeployments restricts the Deployments in the manager's cache to the Deployments of virtual kubelets and
// gateways.
func cacheDeployments() map[client.Object]cache.ByObject {
	own, err := labels.NewRequirement(wire.ComponentLabel, selection.In, []string{wire.VirtualKubeletComponent, wire.GatewayComponent})
	if err != nil {
		panic(err) // the requirement is a constant
	}
	return map[client.Object]cache.ByObject{&appsv1.Deployment{}: {Label: labels.NewSelector().Add(*own)}}
}

// newDecoding returns the decoding options of the kinds that consumers create. They limit the size of the decoded
// objects.
func newDecoding() onepass.Decoding {
	all := shadowpod.Decoding()
	maps.Copy(all, shadowendpointslice.Decoding())
	return all
}

// cacheOptions restricts the cache to the objects that the controllers read, and drops the managedFields.
func cacheOptions(config *rest.Config) (cache.Options, error) {
	byObject := map[client.Object]cache.ByObject{}
	for _, options := range []map[client.Object]cache.ByObject{
		shadowpod.CacheOptions(),
		shadowendpointslice.CacheOptions(),
		namespacemap.CacheOptions(),
		namespaceoffloading.CacheOptions(),
		foreigncluster.CacheOptions(),
		gateways.CacheOptions(),
		cacheDeployments(),
		webhookcert.CacheOptions(rbac.WebhookName),
	} {
		maps.Copy(byObject, options)
	}
	newInformer, err := onepass.NewInformer(config, byObject, newDecoding())
	return cache.Options{ByObject: byObject, DefaultTransform: onepass.DropManagedFields, NewInformer: newInformer}, err
}
