// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/internal/pinger"
)

const (
	// heartbeatInterval is how often the node status is updated if nothing has changed. A kubelet has the same
	// interval.
	heartbeatInterval = 5 * time.Minute
	// requestTimeout limits each request of this package to the local API server.
	requestTimeout = 30 * time.Second
	// minRetryDelay and maxRetryDelay bound the delay before a failed or reverted update is retried.
	minRetryDelay = 2 * time.Second
	maxRetryDelay = heartbeatInterval
)

// Config holds the settings of a Controller.
type Config struct {
	Identity
	// Local is the client configuration for the cluster of the Node.
	Local *rest.Config
	// VirtualNode and Namespace identify the VirtualNode that the Node is computed from.
	VirtualNode, Namespace string
	// CheckNetwork makes readiness depend on the network between the clusters.
	CheckNetwork bool
	// LeaseDuration is the duration of the node lease. The lease is renewed four times in this duration.
	LeaseDuration time.Duration
	// Pinger checks whether the provider is reachable. The Controller subscribes to it, and the caller runs it.
	Pinger *pinger.Pinger
	// ProviderVersion reads the version of the provider's API server. If it is nil, the Node has no version label.
	ProviderVersion func(context.Context) (string, error)
	// FolderPlugins returns the plugins in the folder of this virtual kubelet. An annotation and a condition of the
	// Node describe them. If there are no plugins, the Node has neither of the two. FolderPlugins may be nil.
	FolderPlugins func() []folderplugins.Plugin
	// Warn reports a problem on the VirtualNode: invalid settings, or errors that prevent its Node from being written.
	// Each message is reported once until it changes. Warn must not block. If Warn is nil, messages are only logged.
	Warn func(reason, message string)
	// Clock is used for all timers.
	Clock clock.Clock
}

// Reasons of the messages for Config.Warn.
const (
	// InvalidReason means that settings of the VirtualNode are not valid in a Node.
	InvalidReason = "InvalidVirtualNode"
	// UpdateFailedReason means that the API server rejects the Node.
	UpdateFailedReason = "NodeUpdateFailed"
	// NotRegisteredReason means that the Node does not exist or belongs to another owner.
	NotRegisteredReason = "NodeNotRegistered"
)

// Controller maintains one Node. Run may be called once.
type Controller struct {
	config  Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// shown is the last condition that was written to the VirtualNode. Only one goroutine at a time accesses it.
	shown offloadingv1beta1.VirtualNodeCondition
	// leaseOwner is the UID of the Node that was last found to own its Lease. Only compareLoop uses it.
	leaseOwner types.UID
	trigger    chan struct{}
	ready      chan struct{}

	observed observations
	version  providerVersion

	fights *oscillation.Guard[part]

	mu       sync.Mutex
	expected *intent // write that the library was asked for; nil if it was recorded
	library  *inbox  // inbox of the library's controller; nil while the controller is not running
	desired  *corev1.Node
	own      types.UID         // UID of the Node that was last recognized as ours
	warned   map[string]string // last message for each reason
}

// inbox passes nodes to one run of the library's controller. push blocks as long as the API server does not respond,
// and forever after the run has ended.
type inbox struct {
	push func(*corev1.Node)
	full bool
}

// MinLeasePeriod is the shortest duration of the node's Lease. The Lease is renewed four times in this duration, and
// each request takes part of a second.
const MinLeasePeriod = 4 * time.Second

// NewController returns a Controller, or an error if the configuration is invalid. It sends no requests.
func NewController(config Config) (*Controller, error) {
	if config.LeaseDuration < MinLeasePeriod {
		return nil, fmt.Errorf("the duration of the node lease is %s: use at least 4s", config.LeaseDuration)
	}
	local := rest.CopyConfig(config.Local)
	local.Timeout = requestTimeout
	client, err := kubernetes.NewForConfig(local)
	if err != nil {
		return nil, fmt.Errorf("creating a client for node %s, %w", config.Name, err)
	}
	dynamicClient, err := dynamic.NewForConfig(local)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the VirtualNode of node %s, %w", config.Name, err)
	}
	return &Controller{
		config: config, client: client, dynamic: dynamicClient, warned: map[string]string{},
		trigger: make(chan struct{}, 1), ready: make(chan struct{}),
		// Protective is used because the control plane deletes the pods of a Node that is deleted, and because a Node
		// without its taints gets pods that do not belong on it.
		fights: oscillation.New[part](config.Clock, oscillation.Protective),
	}, nil
}

// Ready returns a channel that is closed when the Node is registered.
func (c *Controller) Ready() <-chan struct{} { return c.ready }

// Run maintains the Node until ctx ends. Temporary errors are retried. Run returns an error only if it cannot work at
// all.
func (c *Controller) Run(ctx context.Context) error {
	logger := log.FromContext(ctx).WithValues("node", c.config.Name)
	ctx = log.IntoContext(ctx, logger)
	ctx = vklog.WithLogger(ctx, libraryLog{Logger: logger})
	c.config.Pinger.Subscribe(c.triggerComparison)

	group, ctx := errgroup.WithContext(ctx)
	if err := c.observed.startWatches(ctx, group, &c.config, c.triggerComparison); err != nil {
		return err
	}
	if c.config.ProviderVersion != nil {
		group.Go(func() error { return c.version.pollVersion(ctx, &c.config, c.triggerComparison) })
	}
	group.Go(func() error { return c.registerNode(ctx) })
	return group.Wait()
}

// Refresh starts a comparison of the Node with the desired state. It must be called when the result of FolderPlugins
// has changed. It never blocks.
func (c *Controller) Refresh() { c.triggerComparison() }

// triggerComparison starts a comparison of the Node with the desired state. It never blocks.
func (c *Controller) triggerComparison() {
	select {
	case c.trigger <- struct{}{}:
	default: // a comparison is already pending
	}
}

// warnOnce reports a message if it differs from the last message with the same reason. An empty message resets the
// reason, so that the next message is always reported.
func (c *Controller) warnOnce(reason, message string) { c.warnAbout(reason, reason, message) }

// warnAbout does the same as warnOnce for a subject whose warnings have the same reason as the warnings of another
// subject.
func (c *Controller) warnAbout(subject, reason, message string) {
	c.mu.Lock()
	news := c.warned[subject] != message
	c.warned[subject] = message
	c.mu.Unlock()
	if news && message != "" && c.config.Warn != nil {
		c.config.Warn(reason, message)
	}
}

// errorText returns the message of an error, or an empty string for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// registerNode registers the Node and maintains it. Before, it waits for the VirtualNode and for the first result of
// the pinger, and ensures that the Node exists. Then it runs the library's controller and the comparison at the same
// time.
func (c *Controller) registerNode(ctx context.Context) error {
	select {
	case <-c.config.Pinger.Settled():
	case <-ctx.Done():
		return nil
	}
	wait, timer := minRetryDelay, c.config.Clock.After(minRetryDelay)
	for {
		err := c.ensureNode(ctx)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.trigger: // at the start, several objects are observed one after the other
		case <-timer:
			wait = min(2*wait, maxRetryDelay)
			timer = c.config.Clock.After(wait)
			log.FromContext(ctx).Info("The node cannot be registered yet, retrying", "in", wait.String(), "err", err)
			c.warnOnce(NotRegisteredReason, err.Error())
			c.showNode(ctx, err)
		}
	}
	c.warnOnce(NotRegisteredReason, "")
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.runLibrary(ctx) })
	group.Go(func() error { return c.compareLoop(ctx) })
	return group.Wait()
}

// runLibrary runs the node controller of the virtual-kubelet library, which sends heartbeats, renews the lease and
// patches the status. If the controller ends before ctx, for example because its first update was rejected, it is
// started again.
func (c *Controller) runLibrary(ctx context.Context) error {
	wait := minRetryDelay
	for ctx.Err() == nil {
		controller, err := c.newLibraryController()
		if err != nil {
			return fmt.Errorf("setting up the node controller, %w", err)
		}
		go c.announceReady(ctx, controller)
		err = controller.Run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.setInbox(nil)
		log.FromContext(ctx).Error(err, "The node controller ended, restarting it", "in", wait.String())
		select {
		case <-ctx.Done():
		case <-c.config.Clock.After(wait):
			wait = min(2*wait, maxRetryDelay)
		}
	}
	return nil
}

func (c *Controller) setInbox(library *inbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.library = library
}

// announceReady closes ready when the library has registered the node.
func (c *Controller) announceReady(ctx context.Context, controller *vknode.NodeController) {
	select {
	case <-ctx.Done():
	case <-controller.Done():
	case <-controller.Ready():
		c.mu.Lock()
		defer c.mu.Unlock()
		select {
		case <-c.ready:
		default:
			log.FromContext(ctx).Info("The node is registered")
			close(c.ready)
		}
	}
}

func (c *Controller) newLibraryController() (*vknode.NodeController, error) {
	c.mu.Lock()
	node := c.desired.DeepCopy()
	c.mu.Unlock()
	leases := ownedLeases{c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), c.presentNode, c.reportLease}
	return vknode.NewNodeController(provider{c}, node, libraryNodes{c.client.CoreV1().Nodes(), c.recordLibraryWrite},
		vknode.WithNodeEnableLeaseV1(leases, int32(c.config.LeaseDuration.Seconds())),
		vknode.WithNodeStatusUpdateInterval(heartbeatInterval),
		vknode.WithNodeStatusUpdateErrorHandler(c.recoverNode),
	)
}

// provider implements the interface that the library requires of providers of nodes.
type provider struct{ *Controller }

// Ping always succeeds. After a failed ping, the library would assume that the node agent is dead, and stop the
// heartbeats. An unreachable provider is reported in a condition instead.
func (p provider) Ping(ctx context.Context) error { return ctx.Err() }

// NotifyNodeStatus stores the library's callback, which deliverNode calls to pass the Node to the library.
func (p provider) NotifyNodeStatus(_ context.Context, push func(*corev1.Node)) {
	p.setInbox(&inbox{push: push})
	p.triggerComparison()
}
