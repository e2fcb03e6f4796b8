// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/memo"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/rollout"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/admission"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether the controller is started.
	Enabled bool
	// Workers is the number of tenant namespaces that are reconciled concurrently.
	Workers int
	// ClusterID is the ID of this cluster.
	ClusterID string
	// Installation is the namespace of the installation, with the templates.
	Installation string
	// RolePrefix is the prefix of the names of the installation's roles.
	RolePrefix string
	// KeyRotationInterval is how old the keys of a gateway become before others replace them. If it is 0, they are not replaced.
	KeyRotationInterval time.Duration
	// Failed is called with each error of a reconciliation. It may be nil.
	Failed func(error)
}

// Controller runs gateways.
type Controller struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options
	// ensured records, for each tenant namespace, when the objects of the gateway other than its Deployment and Service were last
	// created, and for which version of the gateway.
	ensured memo.Memo[ensured]
	// refusals counts, for each tenant namespace, writes that the API server has refused, and conflicts with objects that do not
	// belong to the gateway.
	refusals report.Refusals
}

// ensured describes when the objects of a gateway were created.
type ensured struct {
	// version is the UID of the gateway and the hash of its Deployment.
	version string
	at      time.Time
}

// NewController returns a controller that uses the client c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, live: live, report: report.New(recorder), options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "gateways" }

// Reasons of Events about gateways, and their action.
const (
	createdReason     = "GatewayCreated"
	updatedReason     = "GatewayUpdated"
	waitingReason     = "WaitingForAddress"
	unavailableReason = "GatewayUnavailable"
	noTemplateReason  = "TemplateNotFound"
	templateReason    = "InvalidTemplate"
	clusterReason     = "WrongCluster"
	surplusReason     = "AnotherGateway"
	invalidReason     = "InvalidGateway"
	conflictReason    = "ObjectConflict"
	keysReason        = "NewKeys"
	// keysReplacedReason is the reason of the Event about keys that the controller has replaced because of their age.
	keysReplacedReason = "KeysReplaced"
	runAction          = "Run"
)

// unavailableCheckInterval is how often the objects of a gateway without an available pod are compared. A longer interval
// leaves a gateway down for longer if its ServiceAccount or a binding was deleted.
const unavailableCheckInterval = 15 * time.Second

// relatedCheckInterval is how often the objects of an available gateway that are not watched are created again if they are missing. A
// longer interval leaves a gateway without permissions, or its Service without an endpoint, for longer.
const relatedCheckInterval = 10 * time.Minute

// nodeCheckInterval is how often the node of a gateway with a node port is read, because the cache has virtual nodes only. A longer
// interval leaves a former address of the node in the status for longer.
const nodeCheckInterval = time.Minute

// verdict contains the reason and the message of the Event of a gateway that does not run as requested.
type verdict struct{ reason, message string }

// Reconcile runs the gateway of one tenant namespace, which is the name in the request.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	all, err := c.listGateways(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(all) == 0 {
		c.ensured.Drop(request.NamespacedName)
		c.refusals.Drop(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	for _, g := range all[1:] {
		const text = "%s in this namespace is used, and a peer has one gateway: delete one of them"
		c.report.Warn(g.object(), surplusReason, runAction, fmt.Sprintf(text, all[0]))
	}
	g := all[0]
	again, why, err := c.run(ctx, g)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case why.reason != "":
		c.report.Warn(g.object(), why.reason, runAction, why.message)
	default:
		if len(all) == 1 { // a waiting gateway may have the same name, and Clear would repeat its Event
			c.report.Clear(client.ObjectKeyFromObject(g.object()))
		}
		c.refusals.Drop(request.NamespacedName)
	}
	if why.reason == invalidReason || why.reason == conflictReason || why.reason == admission.DeniedReason {
		again = c.refusals.Next(request.NamespacedName, strconv.FormatInt(g.object().GetGeneration(), 10))
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// listGateways returns the gateways in a namespace whose templates are in the namespace of the installation, in the
// order of comparePrecedence.
func (c *Controller) listGateways(ctx context.Context, namespace string) (found []gateway, err error) {
	servers, clients := &api.GatewayServerList{}, &api.GatewayClientList{}
	if err := c.client.List(ctx, servers, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the GatewayServers of namespace %s, %w", namespace, err)
	}
	if err := c.client.List(ctx, clients, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the GatewayClients of namespace %s, %w", namespace, err)
	}
	for i := range servers.Items {
		found = append(found, gateway{server: &servers.Items[i]})
	}
	for i := range clients.Items {
		found = append(found, gateway{client: &clients.Items[i]})
	}
	found = slices.DeleteFunc(found, func(g gateway) bool {
		reference, _, _ := g.templateRef()
		return reference.Namespace != c.options.Installation || g.object().GetDeletionTimestamp() != nil
	})
	slices.SortFunc(found, comparePrecedence)
	return found, nil
}

// run brings the objects and the status of a gateway in line with its spec and its template.
func (c *Controller) run(ctx context.Context, g gateway) (again time.Duration, why verdict, err error) {
	template, why, err := c.findTemplate(ctx, g)
	if err != nil || template == nil {
		return 0, why, err
	}
	for _, check := range []func(context.Context, gateway) (verdict, error){c.checkCluster, checkSpec} {
		if why, err := check(ctx, g); err != nil || why.reason != "" {
			return 0, why, err
		}
	}
	return c.ensure(ctx, g, template)
}

// findTemplate returns the content of the gateway's template. It is nil if there is none, or if other controllers run the gateway.
func (c *Controller) findTemplate(ctx context.Context, g gateway) (*gatewayTemplate, verdict, error) {
	reference, field, kind := g.templateRef()
	key := client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}
	var spec *api.GatewayTemplateSpec
	var err error
	switch {
	case reference.Kind != kind:
		const text = "%s.kind is %q: set it to %s"
		return nil, verdict{noTemplateReason, fmt.Sprintf(text, field, reference.Kind, kind)}, nil
	case g.server != nil:
		object := &api.WgGatewayServerTemplate{}
		err, spec = c.client.Get(ctx, key, object), &object.Spec
	default:
		object := &api.WgGatewayClientTemplate{}
		err, spec = c.client.Get(ctx, key, object), &object.Spec
	}
	switch {
	case apierrors.IsNotFound(err):
		const text = "%s %s does not exist: create it, or name one that exists"
		return nil, verdict{noTemplateReason, fmt.Sprintf(text, kind, key)}, nil
	case err != nil:
		return nil, verdict{}, fmt.Errorf("getting %s %s, %w", kind, key, err)
	}
	content, err := parseTemplate(*spec)
	if err != nil {
		return nil, verdict{templateReason, fmt.Sprintf("%s %s: %v", kind, key, err)}, nil
	}
	return content, verdict{}, nil
}

// checkCluster returns a verdict if the gateway is not in the tenant namespace of its peer.
func (c *Controller) checkCluster(ctx context.Context, g gateway) (verdict, error) {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: g.object().GetNamespace()}, namespace); err != nil {
		return verdict{}, fmt.Errorf("getting Namespace %s, %w", g.object().GetNamespace(), err)
	}
	owner := namespace.Labels[wire.RemoteClusterIDLabel]
	switch {
	case namespace.Labels[wire.TenantNamespaceLabel] != "true" || owner == "":
		const text = "namespace %s is not the tenant namespace of a cluster: it lacks the labels %s=true and %s"
		return verdict{clusterReason, fmt.Sprintf(text, namespace.Name, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel)}, nil
	case owner != g.peer():
		const text = "label %s: a gateway to cluster %q is in namespace %s of cluster %q: create it in the tenant namespace of its cluster"
		return verdict{clusterReason, fmt.Sprintf(text, wire.RemoteClusterIDLabel, g.peer(), namespace.Name, owner)}, nil
	}
	return verdict{}, nil
}

// reservedPorts are the UDP ports that a gateway uses for other purposes than the tunnel: for packets of the nodes, for
// probes by its other pods, and for pings.
var reservedPorts = []int32{6092, 6093, 6096, 12345}

// checkSpec returns a verdict if no valid objects can be created for the spec of the gateway.
func checkSpec(_ context.Context, g gateway) (verdict, error) {
	if len(g.object().GetName()) > maxGatewayName {
		const text = "metadata.name has more than %d characters, so that its Service would have no valid name: choose a shorter one"
		return verdict{invalidReason, fmt.Sprintf(text, maxGatewayName)}, nil
	}
	if g.server == nil {
		return verdict{}, nil
	}
	endpoint := g.server.Spec.Endpoint
	switch {
	case endpoint.Port < 1 || endpoint.Port > 65535:
		return verdict{invalidReason, fmt.Sprintf("spec.endpoint.port %d is not a UDP port", endpoint.Port)}, nil
	case slices.Contains(reservedPorts, endpoint.Port):
		return verdict{invalidReason, fmt.Sprintf("spec.endpoint.port %d is used by the gateway itself: use another one, such as 51840", endpoint.Port)}, nil
	case endpoint.ServiceType == corev1.ServiceTypeExternalName:
		return verdict{invalidReason, "spec.endpoint.serviceType ExternalName is not supported: use LoadBalancer, NodePort or ClusterIP"}, nil
	}
	return verdict{}, nil
}

// ensure creates and updates the objects of a gateway, and its status.
func (c *Controller) ensure(ctx context.Context, g gateway, content *gatewayTemplate) (again time.Duration, why verdict, err error) {
	desired := c.forgeDeployment(g, &content.Deployment)
	hash, err := rollout.HashSpec(desired.Spec)
	if err != nil {
		return 0, why, err
	}
	current, err := c.readDeployment(ctx, g)
	if err != nil {
		return 0, why, err
	}
	isAvailable := current != nil && current.Status.AvailableReplicas > 0
	key, version := client.ObjectKey{Name: g.object().GetNamespace()}, string(g.object().GetUID())+hash
	last, _ := c.ensured.Get(key)
	if last.version != version || !isAvailable || time.Since(last.at) >= relatedCheckInterval {
		if why, err := c.createRelated(ctx, g, desired, isAvailable); err != nil || why.reason != "" {
			return 0, why, err
		}
		c.ensured.Set(key, ensured{version, time.Now()})
	}
	service, why, err := c.ensureService(ctx, g, content.Service)
	if err != nil || why.reason != "" {
		return 0, why, err
	}
	current, why, err = c.ensureDeployment(ctx, g, current, desired, hash)
	if err != nil || why.reason != "" {
		return 0, why, err
	}
	var endpoint *api.EndpointStatus
	if service != nil {
		if endpoint, why, err = c.findEndpoint(ctx, g, service); err != nil {
			return 0, why, err
		}
	}
	again = relatedCheckInterval
	if service != nil && service.Spec.Type == corev1.ServiceTypeNodePort {
		again = nodeCheckInterval
	}
	if err := c.publish(ctx, g, endpoint); err != nil {
		return 0, why, err
	}
	if isComplete(current) {
		next, refused, err := c.rotateKeys(ctx, g, current)
		if next > 0 {
			again = min(again, next)
		}
		return again, cmp.Or(refused, why), err
	}
	problem, err := rollout.FindProblem(ctx, c.live, current)
	if problem != "" {
		const text = "%d of %d pods of Deployment %s are available: %s"
		why = verdict{unavailableReason,
			fmt.Sprintf(text, current.Status.AvailableReplicas, ptr.Deref(current.Spec.Replicas, 1), current.Name, problem)}
	}
	return unavailableCheckInterval, why, err
}

// isComplete reports whether all pods of a Deployment are available and have its template.
func isComplete(deployment *appsv1.Deployment) bool {
	want, status := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status
	return status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas >= want && status.AvailableReplicas >= want
}

// publish writes the status. An endpoint that is not known at the moment stays as it was: the peer still uses it.
func (c *Controller) publish(ctx context.Context, g gateway, endpoint *api.EndpointStatus) error {
	name, _ := g.secretName()
	namespace := g.object().GetNamespace()
	secret := &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: name}
	runner := &corev1.ObjectReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Namespace: namespace, Name: g.objectName()}
	var before, after client.Object
	isSame := false
	if g.server != nil {
		next := g.server.DeepCopy()
		next.Status.ServerRef, next.Status.SecretRef = runner, secret
		if endpoint != nil {
			next.Status.Endpoint = endpoint
		}
		before, after, isSame = g.server, next, equality.Semantic.DeepEqual(g.server.Status, next.Status)
	} else {
		next := g.client.DeepCopy()
		next.Status.ClientRef, next.Status.SecretRef = runner, secret
		before, after, isSame = g.client, next, equality.Semantic.DeepEqual(g.client.Status, next.Status)
	}
	if isSame {
		return nil
	}
	if err := c.client.Status().Patch(ctx, after, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of %s in namespace %s, %w", g, namespace, err)
	}
	return nil
}

// Quarantined returns the number of objects that are left unchanged for a while because of conflicts with another client.
func (c *Controller) Quarantined() int { return brake.Quarantined(c.client) }

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &api.GatewayServerList{}, func(server client.Object) bool {
		return server.(*api.GatewayServer).Spec.ServerTemplateRef.Namespace == c.options.Installation
	}
}

// CacheOptions restricts the Services in the manager's cache to the Services of gateways.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.Service{}: {Label: componentSelector}}
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	inNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: object.GetNamespace()}}}
	})
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, namespace client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: namespace.GetName()}}}
	})
	everywhere := handler.EnqueueRequestsFromMapFunc(c.listNamespaces)
	isGateway := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[wire.ComponentLabel] == wire.GatewayComponent
	})
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(c.options.Workers)).
		Watches(&api.GatewayServer{}, inNamespace).
		Watches(&api.GatewayClient{}, inNamespace).
		Watches(&appsv1.Deployment{}, inNamespace, builder.WithPredicates(isGateway)).
		Watches(&corev1.Service{}, inNamespace, builder.WithPredicates(isGateway)).
		Watches(&api.PublicKey{}, inNamespace).
		Watches(&api.WgGatewayServerTemplate{}, everywhere).
		Watches(&api.WgGatewayClientTemplate{}, everywhere).
		Watches(&corev1.Namespace{}, ofNamespace, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Complete(report.Failures(c, c.options.Failed))
}

// listNamespaces returns the namespaces with gateways.
func (c *Controller) listNamespaces(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	servers, clients := &api.GatewayServerList{}, &api.GatewayClientList{}
	if c.client.List(ctx, servers) != nil || c.client.List(ctx, clients) != nil {
		return nil // nothing runs yet: when the caches are filled, all gateways are reconciled
	}
	for i := range servers.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: servers.Items[i].Namespace}})
	}
	for i := range clients.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: clients.Items[i].Namespace}})
	}
	return requests
}
