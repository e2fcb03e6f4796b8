// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
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
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/reflectionpolicy"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/probation"
	"github.com/refract-project/refract/vk/reflection/internal/settings"
	"github.com/refract-project/refract/vk/reflection/internal/statusdelay"
)

// Policy decides, by annotations, which objects of a kind are reflected.
type Policy = reflectionpolicy.Policy

// Values of Policy.
const (
	DenyList  = reflectionpolicy.DenyList
	AllowList = reflectionpolicy.AllowList
	Always    = reflectionpolicy.Always
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
	// RemoteTenantNamespace is the tenant namespace of this cluster on the provider. If it is empty, a provider that has
	// withdrawn the access of this cluster cannot be distinguished from one that has lost a remote namespace.
	RemoteTenantNamespace string
	LiqoNamespace         string // namespace where the network reports the API server's address; empty if it reports none
	// VirtualNode is the name of the VirtualNode whose offloadingPatch and classes are followed. If it is empty,
	// NodeName is used.
	VirtualNode string

	Registry mutation.Chains // the plugin chains, by Kind.Name: a *host.Registry
	Kinds    []Kind          // the reflected kinds
	// Probations contains the plugins that were promoted a short time ago. It is nil if there are none.
	Probations *probation.Set

	// Workers and Policies override the values of a kind, by Kind.Name. A kind with 0 workers is not reflected.
	Workers  map[string]int
	Policies map[string]Policy
	// WithoutStatus lists the kinds, by Kind.Name, whose status on the provider is not shown in this cluster.
	WithoutStatus []string

	// RemoteIPs maps addresses of the provider's pods to the addresses at which this cluster reaches them. If it is
	// nil, addresses are unchanged.
	RemoteIPs     *ipmap.Table
	LocalPodCIDRs ipmap.Ranges // addresses that the provider itself remaps
	// ForeignCIDRs contains the addresses of the provider's pods and load balancers, as seen from this cluster. It is
	// nil if they are not known.
	ForeignCIDRs        ipmap.Ranges
	ForeignPodCIDRs     ipmap.Ranges // addresses of the provider's pods alone, without ForeignCIDRs
	OwnCIDRs            ipmap.Ranges // this cluster's addresses, which no provider may report as its own
	FollowIPs           bool         // translate other addresses of endpoints through the IP objects of their namespace
	DisableIPReflection bool         // reflect neither pod IPs nor kinds that follow the network

	// APIServerSupport is one of the values below. An empty value means SupportDisabled. It should be the same for
	// all virtual nodes of a provider, because the value of the leading virtual kubelet decides whether Secrets with
	// tokens are reflected.
	APIServerSupport string
	APIServer        settings.APIServer // address of this cluster's API server for offloaded pods

	Classes settings.Classes // classes of ingresses and load balancers
	Storage settings.Storage // whether and how claims get their volumes on the provider

	StandBy bool // only fill the caches until Lead is called, and reflect nothing

	ResyncPeriod time.Duration // resync period of all informers; 0 means never
	CallTimeout  time.Duration // deadline of each API call; 0 means 10 s
	ProbeEvery   time.Duration // interval of probes of an unreachable provider; 0 means 1 s
	RecheckAfter time.Duration // delay before an object is tried again whose name is taken on the provider; 0 means 30 s
	SettleAfter  time.Duration // how long the status of a Pending pod of the provider may be delayed; 0 means 1 s
	MapGrace     time.Duration // how long a new NamespaceMap may lack a namespace without effect; 0 means 1 min
	// ReferenceTimeout limits how long a pod waits until the objects that it refers to are up to date on the provider.
	// 0 means 30 s. If the value is negative, pods do not wait.
	ReferenceTimeout time.Duration

	Registerer prometheus.Registerer // nil means that metrics are not exported
	Log        *slog.Logger          // nil means slog.Default()
	Clock      clock.WithTicker      // nil means the real clock
}

// Values of Options.APIServerSupport, the access of offloaded pods to an API server.
const (
	SupportDisabled = "Disabled" // no access
	SupportTokenAPI = "TokenAPI" // this cluster's API server, with tokens that are requested for each pod
	SupportLegacy   = "Legacy"   // this cluster's API server, with a Secret created by the user: see package secret
	SupportRemote   = "Remote"   // the provider's API server, with a service account of the provider
)

// The defaults of durations in Options. The fields of Options describe them.
const (
	defaultCallTimeout      = 10 * time.Second
	defaultProbeInterval    = time.Second
	defaultRecheckInterval  = 30 * time.Second
	defaultReferenceTimeout = 30 * time.Second
)

// withDefaults returns the options with the default of each field that is not set.
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
	}{{&o.CallTimeout, defaultCallTimeout}, {&o.ProbeEvery, defaultProbeInterval}, {&o.RecheckAfter,
		defaultRecheckInterval}, {&o.SettleAfter, statusdelay.DefaultSettlePeriod}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if o.ReferenceTimeout == 0 {
		o.ReferenceTimeout = defaultReferenceTimeout
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

// validate returns all errors of the options together.
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

// ownership returns the labels that identify copies of a kind.
func (o Options) ownership(kind Kind) map[string]string {
	owned := wire.ReflectionLabels(o.LocalClusterID, o.RemoteClusterID)
	if kind.PerNode {
		owned[wire.NodeNameLabel] = o.NodeName
	}
	return owned
}
