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
	// heartbeat of the node status when nothing changes: that of a kubelet.
	heartbeat = 5 * time.Minute
	// requestTimeout of everything this package asks the local API server.
	requestTimeout = 30 * time.Second
	// firstRetry and lastRetry bound the wait before something that did not
	// work, or did not last, is done again.
	firstRetry = 2 * time.Second
	lastRetry  = heartbeat
)

// Config of a Controller.
type Config struct {
	Identity
	// Local cluster, where the Node is.
	Local *rest.Config
	// VirtualNode is the name of the resource to follow, Namespace where it is.
	VirtualNode, Namespace string
	// CheckNetwork makes readiness depend on the network between the clusters.
	CheckNetwork bool
	// LeaseDuration of the node lease; it is renewed four times as often.
	LeaseDuration time.Duration
	// Pinger of the provider; the controller subscribes, its caller runs it.
	Pinger *pinger.Pinger
	// ProviderVersion reads the version of the provider's API server; nil leaves its label out.
	ProviderVersion func(context.Context) (string, error)
	// Warn shows users, where they look at the VirtualNode, what is wrong with it or
	// keeps its Node from being written: each message once, until it changes. nil
	// leaves it to the log. It must not block.
	Warn func(reason, message string)
	// Clock for everything that waits.
	Clock clock.Clock
}

// Reasons that Config.Warn gets.
const (
	// InvalidReason: parts of the VirtualNode cannot be parts of a Node.
	InvalidReason = "InvalidVirtualNode"
	// UpdateFailedReason: the API server does not accept the Node.
	UpdateFailedReason = "NodeUpdateFailed"
	// NotRegisteredReason: there is no Node that is ours.
	NotRegisteredReason = "NodeNotRegistered"
)

// Controller maintains one Node. Run may be called once.
type Controller struct {
	config  Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	shown   offloadingv1beta1.VirtualNodeCondition // on the VirtualNode, by one goroutine at a time
	// leaseOwner is the Node that was last found to own its Lease. Only compareLoop uses it.
	leaseOwner types.UID
	trigger    chan struct{}
	ready      chan struct{}

	observed observations
	version  providerVersion

	mu      sync.Mutex
	library *inbox // of the library's controller while it runs
	desired *corev1.Node
	own     types.UID         // of the Node that was last found to be ours
	warned  map[string]string // message by reason
}

// inbox takes nodes for one run of the library's controller. Its push may block
// for as long as the API server does, and forever once that run has ended.
type inbox struct {
	push func(*corev1.Node)
	full bool
}

// NewController checks its configuration and makes no requests.
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

// Ready is closed once the Node is registered.
func (c *Controller) Ready() <-chan struct{} { return c.ready }

// Run maintains the Node until ctx ends. It returns an error only when it cannot
// work at all; temporary errors are retried.
func (c *Controller) Run(ctx context.Context) error {
	logger := log.FromContext(ctx).WithValues("node", c.config.Name)
	ctx = log.IntoContext(ctx, logger)
	ctx = vklog.WithLogger(ctx, libraryLog{Logger: logger})
	c.config.Pinger.Subscribe(c.wake)

	group, ctx := errgroup.WithContext(ctx)
	if err := c.observed.start(ctx, group, &c.config, c.wake); err != nil {
		return err
	}
	if c.config.ProviderVersion != nil {
		group.Go(func() error { return c.version.follow(ctx, &c.config, c.wake) })
	}
	group.Go(func() error { return c.register(ctx) })
	return group.Wait()
}

// wake has the node compared soon. It never blocks.
func (c *Controller) wake() {
	select {
	case c.trigger <- struct{}{}:
	default: // it is going to happen anyway
	}
}

// warn reports a message once; "" means that all is well and the next one is
// news again.
func (c *Controller) warn(reason, message string) {
	c.mu.Lock()
	news := c.warned[reason] != message
	c.warned[reason] = message
	c.mu.Unlock()
	if news && message != "" && c.config.Warn != nil {
		c.config.Warn(reason, message)
	}
}

// text of an error; "" of none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// register waits for the VirtualNode and for what the pinger has to say, makes
// sure that there is a Node, and then runs the library's controller and our
// comparison beside it.
func (c *Controller) register(ctx context.Context) error {
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
		case <-c.trigger: // something was observed; at the start that is soon
		case <-timer:
			wait = min(2*wait, lastRetry)
			timer = c.config.Clock.After(wait)
			log.FromContext(ctx).Info("The node cannot be registered yet, retrying", "in", wait.String(), "err", err)
			c.warn(NotRegisteredReason, err.Error())
			c.showNode(ctx, err)
		}
	}
	c.warn(NotRegisteredReason, "")
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.runLibrary(ctx) })
	group.Go(func() error { return c.compareLoop(ctx) })
	return group.Wait()
}

// runLibrary registers with the virtual-kubelet library's node controller,
// which heartbeats, renews the lease and patches the status. It ends early only
// when its first update is refused, so it is started again.
func (c *Controller) runLibrary(ctx context.Context) error {
	wait := firstRetry
	for ctx.Err() == nil {
		controller, err := c.newLibraryController()
		if err != nil {
			return fmt.Errorf("setting up the node controller, %w", err)
		}
		go c.announce(ctx, controller)
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

// announce closes ready when the library has registered the node.
func (c *Controller) announce(ctx context.Context, controller *vknode.NodeController) {
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
		vknode.WithNodeStatusUpdateErrorHandler(c.recover),
	)
}

// provider is what the library sees of a Controller.
type provider struct{ *Controller }

// Ping always succeeds: for the library a failed ping means that the node
// agent is dead, and it would stop reporting. That the provider is
// unreachable is reported in a condition instead.
func (p provider) Ping(ctx context.Context) error { return ctx.Err() }

// NotifyNodeStatus keeps the library's callback.
func (p provider) NotifyNodeStatus(_ context.Context, push func(*corev1.Node)) {
	p.setInbox(&inbox{push: push})
	p.wake()
}
