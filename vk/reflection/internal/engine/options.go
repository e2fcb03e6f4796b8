// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/policy"
)

// Policy decides, by annotations, which objects of a kind are reflected.
type Policy = policy.Policy

// Policies.
const (
	DenyList  = policy.DenyList
	AllowList = policy.AllowList
	Always    = policy.Always
)

// Options are the options of a Manager. Local, Remote, the two cluster ids, NodeName, TenantNamespace and Registry are
// required.
type Options struct {
	Local, Remote   *rest.Config // used as they are; client-side rate limits are disabled in copies
	LocalClusterID  string
	RemoteClusterID string
	NodeName        string
	NodeIP          string // host IP of offloaded pods
	TenantNamespace string // namespace of the NamespaceMap and the VirtualNode
	LiqoNamespace   string // namespace where the network reports the API server's address; "" = it reports none
	VirtualNode     string // name of the VirtualNode whose offloadingPatch and classes are followed; "" = NodeName

	Registry Chains // the plugin chains, by Kind.Name: a *host.Registry
	Kinds    []Kind // the reflected kinds

	// Workers and Policies override the values of a kind, by Kind.Name. A kind with 0 workers is not reflected.
	Workers  map[string]int
	Policies map[string]Policy
	// WithoutStatus lists the kinds, by Kind.Name, whose status on the provider is not shown here.
	WithoutStatus []string

	RemoteIPs           *ipmap.Table // maps addresses of the provider's pods to their addresses here; nil = unchanged
	LocalPodCIDRs       ipmap.Ranges // addresses that the provider itself remaps
	ForeignCIDRs        ipmap.Ranges // the provider's pods and load balancers, as seen from here; nil = not known
	ForeignPodCIDRs     ipmap.Ranges // addresses of the provider's pods alone, without ForeignCIDRs
	OwnCIDRs            ipmap.Ranges // this cluster's addresses, which no provider may report as its own
	FollowIPs           bool         // translate other addresses of endpoints through the IP objects of their namespace
	DisableIPReflection bool         // reflect neither pod IPs nor kinds that follow the network

	// APIServerSupport is one of the values below; "" = SupportDisabled. It should be the same for all virtual nodes of
	// a provider, because the value of the leading one decides whether Secrets with tokens cross.
	APIServerSupport string
	APIServer        APIServer // address of this cluster's API server for offloaded pods

	Classes Classes // classes of ingresses and load balancers
	Storage Storage // volumes that the provider lends

	StandBy bool // fill the caches, and reflect nothing before Lead is called

	ResyncPeriod time.Duration // resync period of all informers; 0 = never
	CallTimeout  time.Duration // deadline of each API call; 0 = 10 s
	ProbeEvery   time.Duration // interval of probes of an unreachable provider; 0 = 1 s
	RecheckAfter time.Duration // delay before an object with a taken name is tried again; 0 = 30 s
	SettleAfter  time.Duration // how long a Pending pod of the provider may stay unshown; 0 = 1 s
	MapGrace     time.Duration // how long a new NamespaceMap may lack a namespace without effect; 0 = 1 min
	// ReferenceTimeout limits how long a pod waits until the objects that it refers to are in step on the provider; 0 =
	// 30 s, negative = the pod does not wait.
	ReferenceTimeout time.Duration

	Registerer prometheus.Registerer // nil = metrics are not exported
	Log        *slog.Logger          // nil = slog.Default()
	Clock      clock.WithTicker      // nil = the real clock
}

// Values of Options.APIServerSupport, the access of offloaded pods to an API server.
const (
	SupportDisabled = "Disabled" // no access
	SupportTokenAPI = "TokenAPI" // this cluster's API server, with tokens that are requested for each pod
	SupportLegacy   = "Legacy"   // this cluster's API server, with a Secret created by the user: see package secret
	SupportRemote   = "Remote"   // the provider's API server, with a service account there
)

// Chains runs the plugin chains. A *host.Registry is one. Each Run uses one generation of its chain.
type Chains interface {
	Run(ctx context.Context, kind string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error)
	Subscribe(f func(kind string, hook host.Hook, generation uint64)) (cancel func())
}

// APIServer is the address of this cluster's API server as offloaded pods see it.
type APIServer struct {
	Host string   // "" = kubernetes.default, resolved by a host alias
	Port string   // "" = 443
	IPs  []string // IPs of the host alias, in addition to the IPs of IP objects
	// Domain is the DNS domain of this cluster, which is part of a name of the API server; "" = cluster.local.
	Domain string
}

// Classes are the provider's classes if the VirtualNode names none. "" leaves the default to Kubernetes.
type Classes struct{ Ingress, LoadBalancer string }

// Storage configures whether and how claims get their volumes on the provider.
type Storage struct {
	Enabled     bool   // claims of the virtual class get new volumes; existing volumes are maintained in any case
	Class       string // the virtual storage class; "" = wire.DefaultStorageClass
	RemoteClass string // storage class of the provider if the VirtualNode names none; "" = the provider's default
}

func (o Options) withDefaults() Options {
	if o.VirtualNode == "" {
		o.VirtualNode = o.NodeName
	}
	if o.APIServerSupport == "" {
		o.APIServerSupport = SupportDisabled
	}
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&o.CallTimeout, 10 * time.Second}, {&o.ProbeEvery, time.Second}, {&o.RecheckAfter, 30 * time.Second}, {&o.SettleAfter, time.Second}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if o.ReferenceTimeout == 0 {
		o.ReferenceTimeout = 30 * time.Second
	}
	o.Storage.Class = cmp.Or(o.Storage.Class, wire.DefaultStorageClass)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

func (o Options) validate() error {
	var faults []error
	if o.Local == nil || o.Remote == nil {
		faults = append(faults, errors.New("both clusters need a client configuration"))
	}
	for _, id := range []string{o.LocalClusterID, o.RemoteClusterID} {
		faults = append(faults, corev1beta1.ClusterID(id).Validate())
	}
	if o.LocalClusterID == o.RemoteClusterID {
		faults = append(faults, fmt.Errorf("both clusters have the id %q: each needs a unique id", o.LocalClusterID))
	}
	if o.NodeName == "" || len(o.NodeName) > 63 {
		faults = append(faults, fmt.Errorf("node name %q must have 1 to 63 characters: it becomes a label value", o.NodeName))
	}
	if o.TenantNamespace == "" {
		faults = append(faults, errors.New("the tenant namespace is missing"))
	}
	if o.Registry == nil {
		faults = append(faults, errors.New("the plugin registry is missing"))
	}
	if modes := []string{SupportDisabled, SupportTokenAPI, SupportLegacy, SupportRemote}; !slices.Contains(modes, o.APIServerSupport) {
		faults = append(faults, fmt.Errorf("API server support %q is unknown: use one of %s", o.APIServerSupport, strings.Join(modes, ", ")))
	}
	names := map[string]bool{}
	for _, kind := range o.Kinds {
		faults = append(faults, kind.validate())
		if names[kind.Name] {
			faults = append(faults, fmt.Errorf("kind %s is listed twice", kind.Name))
		}
		names[kind.Name] = true
	}
	for name, p := range o.Policies {
		if !names[name] {
			faults = append(faults, fmt.Errorf("there is a policy for kind %q, which is not reflected", name))
		}
		faults = append(faults, p.Validate(name))
	}
	return errors.Join(faults...)
}
