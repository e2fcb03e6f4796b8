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
	"github.com/refract-project/refract/internal/pinger"
)

const (
	// heartbeat is the period of node status updates without changes, the same as the kubelet's.
	heartbeat = 5 * time.Minute
	// requestTimeout limits each request of this package to the local API server.
	requestTimeout = 30 * time.Second
	// firstRetry and lastRetry are the minimum and maximum delay before a failed or reverted update is retried.
	firstRetry = 2 * time.Second
	lastRetry  = heartbeat
)

// Config holds the settings of a Controller.
type Config struct {
	Identity
	// Local is the configuration of the cluster with the Node.
	Local *rest.Config
	// VirtualNode and Namespace identify the VirtualNode that the Node is made from.
	VirtualNode, Namespace string
	// CheckNetwork makes readiness depend on the network between the clusters.
	CheckNetwork bool
	// LeaseDuration is the duration of the node lease, which is renewed four times as often.
	LeaseDuration time.Duration
	// Pinger checks the provider. The controller subscribes to it; the caller runs it.
	Pinger *pinger.Pinger
	// ProviderVersion reads the version of the provider's API server. If it is nil, the Node has no version label.
	ProviderVersion func(context.Context) (string, error)
	// Warn reports, on the VirtualNode, its invalid settings and the errors that keep its Node from being written. Each
	// message is reported once until it changes. If Warn is nil, messages are only logged. It must not block.
	Warn func(reason, message string)
	// Clock is used for all timers.
	Clock clock.Clock
}

// Reasons of the messages for Config.Warn.
const (
	// InvalidReason means that settings of the VirtualNode are invalid in a Node.
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
	shown   offloadingv1beta1.VirtualNodeCondition // condition on the VirtualNode, accessed by one goroutine at a time
	// leaseOwner is the Node that was last found to own its Lease. Only compareLoop uses it.
	leaseOwner types.UID
	trigger    chan struct{}
	ready      chan struct{}

	observed observations
	version  providerVersion

	mu      sync.Mutex
	library *inbox // inbox of the library's controller, nil while that does not run
	desired *corev1.Node
	own     types.UID         // UID of the Node that was last found to be ours
	warned  map[string]string // message by reason
}

// inbox accepts nodes for one run of the library's controller. push may block as long as the API server does, and
// blocks forever once that run has ended.
type inbox struct {
	push func(*corev1.Node)
	full bool
}

// NewController validates its configuration and sends no requests.
func NewController(config Config) (*Controller, error) {
	if config.LeaseDuration < 4*time.Second {
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
	}, nil
}

// Ready returns a channel that is closed once the Node is registered.
func (c *Controller) Ready() <-chan struct{} { return c.ready }

// Run maintains the Node until ctx ends. It returns an error only if it cannot work at all; temporary errors are
// retried.
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

// triggerComparison triggers a comparison of the node. It never blocks.
func (c *Controller) triggerComparison() {
	select {
	case c.trigger <- struct{}{}:
	default: // a comparison is pending
	}
}

// warnOnce reports a message once per reason. An empty message clears the reason, so that the next message is reported
// again.
func (c *Controller) warnOnce(reason, message string) {
	c.mu.Lock()
	news := c.warned[reason] != message
	c.warned[reason] = message
	c.mu.Unlock()
	if news && message != "" && c.config.Warn != nil {
		c.config.Warn(reason, message)
	}
}

// errorText returns the message of an error, empty for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// registerNode waits for the VirtualNode and for the first result of the pinger, ensures that the Node exists, and then
// runs the library's controller and the comparison concurrently.
func (c *Controller) registerNode(ctx context.Context) error {
	select {
	case <-c.config.Pinger.Settled():
	case <-ctx.Done():
		return nil
	}
	wait, timer := firstRetry, c.config.Clock.After(firstRetry)
	for {
		err := c.ensureNode(ctx)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.trigger: // an observation arrived; at the start the next ones follow soon
		case <-timer:
			wait = min(2*wait, lastRetry)
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
// patches the status. That controller ends early only when its first update is rejected, and is then started again.
func (c *Controller) runLibrary(ctx context.Context) error {
	wait := firstRetry
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
			wait = min(2*wait, lastRetry)
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
	return vknode.NewNodeController(provider{c}, node, c.client.CoreV1().Nodes(),
		vknode.WithNodeEnableLeaseV1(c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), int32(c.config.LeaseDuration.Seconds())),
		vknode.WithNodeStatusUpdateInterval(heartbeat),
		vknode.WithNodeStatusUpdateErrorHandler(c.recoverNode),
	)
}

// provider is the Controller as the library's node provider.
type provider struct{ *Controller }

// Ping always succeeds: the library takes a failed ping for a dead node agent and would stop its heartbeats. An
// unreachable provider is reported in a condition instead.
func (p provider) Ping(ctx context.Context) error { return ctx.Err() }

// NotifyNodeStatus stores the library's callback.
func (p provider) NotifyNodeStatus(_ context.Context, push func(*corev1.Node)) {
	p.setInbox(&inbox{push: push})
	p.triggerComparison()
}
