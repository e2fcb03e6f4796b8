// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway"
)

const (
	// connectionRefreshInterval is how often the latency and its time are written while the peer answers, as in Liqo.
	// Readers treat a Connection that is not refreshed as down.
	connectionRefreshInterval = 10 * time.Second
	// minConnectionWriteInterval is the pause after a write. With a shorter pause, a flapping connection causes more
	// writes.
	minConnectionWriteInterval = time.Second
	// connectionRetryInterval is the pause after a failed write.
	connectionRetryInterval = 5 * time.Second
	// connectionWriteTimeout limits one write.
	connectionWriteTimeout = 10 * time.Second
	// restartGrace is how long the Connection keeps the state that an earlier process has written while this process
	// waits for the first answer. With a shorter time, the endpoints of the peer become unready after each restart of a
	// gateway.
	restartGrace = 5 * time.Second
)

// noLatency is the latency if the peer does not answer, as in Liqo.
const noLatency = "N/A"

// link is the state of the connection to the peer, according to this process. Times are from the clock of this host.
type link struct {
	opened    time.Time // when this pod became active; zero while it is a standby
	connected bool
	lost      bool // whether the peer answered this process earlier but no longer does
	latency   time.Duration
	answered  time.Time // time of the last answer
	// cutOff is true while no node of this cluster reaches this pod, so that no pod reaches the peer.
	cutOff bool
}

// nextValue returns the new value of the Connection, given its previous value. kept is the remaining time for which the
// previous value is kept only because an earlier process has written it.
func (l link) nextValue(before networking.ConnectionValue, now time.Time) (value networking.ConnectionValue, kept time.Duration) {
	grace := restartGrace - now.Sub(l.opened)
	switch {
	case l.connected && !l.cutOff:
		return networking.Connected, 0
	case l.connected || l.lost:
		return networking.ConnectionFailed, 0
	case before == "" || before == networking.Connecting:
		return networking.Connecting, 0
	case grace > 0:
		return before, grace
	}
	return networking.ConnectionFailed, 0
}

// nextStatus returns the status of a Connection with the given value.
func (l link) nextStatus(value networking.ConnectionValue, now time.Time) networking.ConnectionStatus {
	if value != networking.Connected {
		latency := networking.ConnectionLatency{Value: noLatency, Timestamp: metav1.NewTime(now)}
		return networking.ConnectionStatus{Value: value, Latency: latency}
	}
	latency := networking.ConnectionLatency{Value: formatLatency(l.latency), Timestamp: metav1.NewTime(l.answered)}
	return networking.ConnectionStatus{Value: value, Latency: latency}
}

// formatLatency returns a latency in Liqo's format.
func formatLatency(latency time.Duration) string {
	if latency.Milliseconds() == 0 {
		return fmt.Sprintf("%dμs", latency.Microseconds())
	}
	return fmt.Sprintf("%dms", latency.Milliseconds())
}

// connectionKeeper updates the Connection of a gateway, which reports whether the peer answers.
type connectionKeeper struct {
	options  *runOptions
	reader   client.Reader
	writer   client.Client
	reporter *reporter
	// changed receives a value when the link or the objects have changed.
	changed chan struct{}

	mutex sync.Mutex
	link  link

	// The other fields are used only by the goroutine that runs keepConnection.
	refreshed time.Time              // when the time of an answer was last written
	recorded  time.Time              // time of this answer
	replaced  string                 // resource version before the last write
	written   *networking.Connection // the Connection after the last write
	failing   bool
}

// newConnectionKeeper returns a keeper. It sends no requests until the caches are filled.
func newConnectionKeeper(writer client.Client, o *runOptions, reader client.Reader, r *reporter) *connectionKeeper {
	return &connectionKeeper{options: o, reader: reader, writer: writer, reporter: r, changed: make(chan struct{}, 1)}
}

// requestUpdate triggers a comparison of the Connection. It does not block.
func (k *connectionKeeper) requestUpdate() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// recordReport processes a Report of package gateway. It does not block.
func (k *connectionKeeper) recordReport(r gateway.Report) {
	now := time.Now()
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if r.Active != nil {
		k.link = link{cutOff: k.link.cutOff} // the nodes are reported separately, in any order
		if *r.Active {
			k.link.opened = now
		}
		k.requestUpdate()
	}
	if c := r.Connection; c != nil {
		k.link.connected, k.link.lost = c.Connected, !c.Connected
		k.link.latency, k.link.answered = c.Latency, now
		k.requestUpdate()
	}
	if r.Leg != nil {
		k.link.cutOff = isCutOff(*r.Leg)
		k.requestUpdate()
	}
	if r.Latency > 0 {
		k.link.latency, k.link.answered = r.Latency, now
	}
}

// keepConnection updates the Connection until ctx is done. All changes during a write and the pause after it cause a
// single further write.
func (k *connectionKeeper) keepConnection(ctx context.Context, synced <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return nil
	case <-synced:
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-timer.C:
		}
		wrote, next, err := k.updateConnection(ctx, time.Now())
		k.logOutcome(wrote, err)
		pause := minConnectionWriteInterval
		switch {
		case err != nil:
			pause = connectionRetryInterval
		case !wrote:
			pause = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		timer.Reset(next)
	}
}

// logOutcome counts requests, and logs the first of several consecutive failures.
func (k *connectionKeeper) logOutcome(wrote bool, err error) {
	switch {
	case err != nil:
		k.reporter.statusWrites.WithLabelValues("failure").Inc()
		if !k.failing {
			slog.Error("Writing the Connection failed, it is tried again", "err", err)
		}
	case wrote:
		k.reporter.statusWrites.WithLabelValues("success").Inc()
		if k.failing {
			slog.Info("The Connection was written after failures")
		}
	default:
		return
	}
	k.failing = err != nil
}

// updateConnection writes the Connection if necessary. next is the maximum time until the Connection must be compared
// again.
func (k *connectionKeeper) updateConnection(ctx context.Context, now time.Time) (wrote bool, next time.Duration, err error) {
	k.mutex.Lock()
	l := k.link
	k.mutex.Unlock()
	gate, err := k.activeGateway(ctx)
	if err != nil || gate == nil || l.opened.IsZero() {
		return false, connectionRefreshInterval, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectionWriteTimeout)
	defer cancel()
	connection, wrote, err := k.ensureConnection(ctx, gate)
	if err != nil || connection == nil {
		return false, minConnectionWriteInterval, err
	}
	owned, err := checkOwner(connection, gate)
	k.reporter.refuse("connection", err)
	if !owned {
		return false, connectionRefreshInterval, nil
	}
	value, wait := k.nextWrite(l, connection.Status.Value, now)
	if wait > 0 {
		return wrote, wait, nil
	}
	after := connection.DeepCopy()
	after.Status = l.nextStatus(value, now)
	if err := k.writer.Status().Patch(ctx, after, client.MergeFrom(connection)); err != nil {
		return wrote, 0, fmt.Errorf("writing the status of Connection %s, %w", client.ObjectKeyFromObject(connection), err)
	}
	k.written, k.replaced, k.refreshed, k.recorded = after, connection.ResourceVersion, now, l.answered
	return true, connectionRefreshInterval, nil
}

// ensureConnection returns the Connection with this name, and creates it if it does not exist. It returns nil if the
// Connection exists but is not in the cache yet.
func (k *connectionKeeper) ensureConnection(ctx context.Context, gate client.Object) (connection *networking.Connection, created bool, err error) {
	connection, err = k.readConnection(ctx)
	if err != nil || connection != nil {
		return connection, false, err
	}
	connection = newConnection(gate, connectionName(k.options.name))
	switch err := k.writer.Create(ctx, connection); {
	case apierrors.IsAlreadyExists(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("creating Connection %s, %w", client.ObjectKeyFromObject(connection), err)
	}
	return connection, true, nil
}

// nextWrite returns the value to write and the delay before the write. If the value is unchanged, nothing is written,
// unless the peer has answered since the last write.
func (k *connectionKeeper) nextWrite(l link, before networking.ConnectionValue, now time.Time) (networking.ConnectionValue, time.Duration) {
	value, kept := l.nextValue(before, now)
	switch {
	case value != before:
		return value, 0
	case kept > 0:
		return value, kept
	case value != networking.Connected:
		return value, connectionRefreshInterval
	case !l.answered.After(k.recorded):
		return value, minConnectionWriteInterval
	}
	return value, connectionRefreshInterval - now.Sub(k.refreshed)
}

// activeGateway returns the gateway whose Connection this process must write, or nil if there is none. Nodes send
// packets to the pod in status.internalEndpoint, so measurements by another pod do not apply to these packets.
func (k *connectionKeeper) activeGateway(ctx context.Context) (client.Object, error) {
	o := k.options
	gate, endpoint, err := o.readGateway(ctx, k.reader)
	if err != nil || gate == nil {
		return nil, err
	}
	if o.isStandby(endpoint) || gate.GetLabels()[wire.RemoteClusterIDLabel] == "" {
		return nil, nil
	}
	return gate, nil
}

// readGateway returns the GatewayServer or the GatewayClient, and where nodes send their packets. It returns nil if there is none.
func (o *runOptions) readGateway(ctx context.Context, reader client.Reader) (client.Object, *networking.InternalGatewayEndpoint, error) {
	server, err := getObject(ctx, reader, o.namespace, o.name, &networking.GatewayServer{})
	if err != nil {
		return nil, nil, err
	}
	gatewayClient, err := getObject(ctx, reader, o.namespace, o.name, &networking.GatewayClient{})
	if err != nil {
		return nil, nil, err
	}
	server, gatewayClient = preferRunningEnd(server, gatewayClient)
	switch {
	case server != nil:
		return server, server.Status.InternalEndpoint, nil
	case gatewayClient != nil:
		return gatewayClient, gatewayClient.Status.InternalEndpoint, nil
	}
	return nil, nil, nil
}

// preferRunningEnd returns only the end of the tunnel that the controller manager runs, if there are both and it runs exactly
// one of them. The pod of a gateway has the name of both, but belongs to that one. In all other cases, it returns what it was given.
func preferRunningEnd(server *networking.GatewayServer, gatewayClient *networking.GatewayClient) (*networking.GatewayServer, *networking.GatewayClient) {
	if server == nil || gatewayClient == nil {
		return server, gatewayClient
	}
	switch isServer, isClient := server.Status.ServerRef != nil, gatewayClient.Status.ClientRef != nil; {
	case isServer && !isClient:
		return server, nil
	case isClient && !isServer:
		return nil, gatewayClient
	}
	return server, gatewayClient
}

// isStandby reports whether nodes send their packets to another pod of the gateway. Without an endpoint, a pod is active unless it was
// started as a standby.
func (o *runOptions) isStandby(endpoint *networking.InternalGatewayEndpoint) bool {
	if endpoint == nil || endpoint.IP == nil || o.podIP == "" {
		return o.standby
	}
	return string(*endpoint.IP) != o.podIP
}

// readConnection returns the Connection, or nil if it does not exist. The cached object may be older than the last
// write.
func (k *connectionKeeper) readConnection(ctx context.Context) (*networking.Connection, error) {
	found := &networking.Connection{}
	key := client.ObjectKey{Namespace: k.options.namespace, Name: connectionName(k.options.name)}
	err := k.reader.Get(ctx, key, found)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Connection %s, %w", key, err)
	case k.written != nil && k.written.UID == found.UID && k.replaced == found.ResourceVersion:
		return k.written, nil
	}
	return found, nil
}

// connectionName returns the name of the Connection of a gateway, as in Liqo.
func connectionName(gatewayName string) string { return "gw-" + gatewayName }

// newConnection returns the Connection of a gateway, without its status. It is deleted together with the gateway.
func newConnection(gate client.Object, name string) *networking.Connection {
	// As in Liqo, the reference contains the kind of the object that would run the gateway in Liqo, and the UID of the
	// gateway.
	kind, end, runner := networking.GatewayServerKind, networking.ServerConnection, "WgGatewayServer"
	if _, ok := gate.(*networking.GatewayClient); ok {
		kind, end, runner = networking.GatewayClientKind, networking.ClientConnection, "WgGatewayClient"
	}
	isController := true
	version := networking.GroupVersion.String()
	return &networking.Connection{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: gate.GetNamespace(), Name: name,
			Labels: map[string]string{wire.RemoteClusterIDLabel: gate.GetLabels()[wire.RemoteClusterIDLabel]},
			// blockOwnerDeletion is not set, because it would require permission to update the finalizers of the
			// gateway.
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: version, Kind: kind, Name: gate.GetName(), UID: gate.GetUID(), Controller: &isController},
			},
		},
		Spec: networking.ConnectionSpec{Type: end, GatewayRef: corev1.ObjectReference{
			APIVersion: version, Kind: runner, Namespace: gate.GetNamespace(), Name: gate.GetName(), UID: gate.GetUID(),
		}},
	}
}

// checkOwner reports whether a Connection belongs to the gateway. If not, it returns an error for the user. There is no
// error if the Connection belongs to a former gateway with the same name, because Kubernetes deletes it.
func checkOwner(connection *networking.Connection, gate client.Object) (owned bool, err error) {
	owner := metav1.GetControllerOf(connection)
	switch {
	case owner != nil && owner.UID == gate.GetUID():
		return true, nil
	case owner != nil && owner.Name == gate.GetName():
		return false, nil
	}
	const text = "the Connection %s does not belong to this gateway, so it does not report whether the peer answers: delete it, and the gateway creates its own"
	return false, fmt.Errorf(text, client.ObjectKeyFromObject(connection))
}
