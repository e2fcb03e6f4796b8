// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// cable is a connection to an API server that can be cut (connections end, new ones are closed at once) and unplugged (new
// ones are refused).
type cable struct {
	target, address string
	listener        net.Listener
	mu              sync.Mutex
	cut             bool
	open            map[net.Conn]bool
}

// throughCable leads the manager's way to the provider through a cable.
func (l *lab) throughCable() *cable {
	l.Helper()
	address := must(url.Parse(l.options.Remote.Host))(l.T)
	c := &cable{target: address.Host, address: "127.0.0.1:0", open: map[net.Conn]bool{}}
	c.plug(l.T)
	c.address = c.listener.Addr().String()
	l.Cleanup(c.unplug)
	l.options.Remote.Host = "https://" + c.address
	return c
}

func (c *cable) plug(t *testing.T) {
	t.Helper()
	c.setCut(false)
	listener := must(net.Listen("tcp", c.address))(t)
	c.listener = listener
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go c.carry(near)
		}
	}()
}

func (c *cable) unplug() {
	_ = c.listener.Close()
	c.setCut(true)
}

func (c *cable) carry(near net.Conn) {
	far, err := net.Dial("tcp", c.target)
	if err != nil || !c.add(near, far) {
		_ = near.Close()
		return
	}
	go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
	_, _ = io.Copy(near, far)
	_ = near.Close()
}

func (c *cable) add(ends ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range ends {
		if c.cut {
			_ = end.Close()
			continue
		}
		c.open[end] = true
	}
	return !c.cut
}

func (c *cable) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	if cut {
		for end := range c.open {
			_ = end.Close()
		}
		clear(c.open)
	}
}

// While the provider is away a chain is swapped, the patch changes, objects come, change and go on both sides. All of it
// is made good when it is back, with nothing restarted.
func TestChangesWhileTheProviderIsAway(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.CallTimeout = 2 * time.Second })
	cable := l.throughCable()
	label := func(turn string) chainFunc {
		return func(doc document.Node, env *host.Env) (*host.Outcome, error) {
			patch, _ := env.Context["offloadingPatch"].(map[string]any)
			if err := errors.Join(doc.SetString("metadata.labels.chain", turn), doc.SetString("metadata.labels.patch", fmt.Sprintf("is-%d", len(patch)))); err != nil {
				return nil, err
			}
			return mutateService(doc, env)
		}
	}
	l.chains.swap("Service", host.Outgoing, label("first"))
	for _, name := range []string{"plain", "changed", "deleted", "lost"} {
		l.local.create(t, l.namespace, service(name, ""))
	}
	l.pod("ended")
	l.pod("deleted")
	l.start()
	for _, name := range []string{"plain", "changed", "deleted", "lost"} {
		l.present(l.remote, "Service", l.remoteNS, name, field("metadata.labels/chain", "first"), field("metadata.labels/patch", "is-0"))
	}
	l.runRemote("ended", running(0))
	l.runRemote("deleted", running(0))
	for _, name := range []string{"ended", "deleted"} {
		l.present(l.local, "Pod", l.namespace, name, field("status.phase", "Running"))
	}
	l.settled()

	cable.setCut(true)
	l.chains.swap("Service", host.Outgoing, label("second"))
	l.eventually(func() error {
		if l.manager.Reachable() {
			return errors.New("the provider is still thought to be reachable")
		}
		return nil
	})
	l.local.patchYAML(t, "VirtualNode", l.tenant, l.node, `{spec: {offloadingPatch: {labelsNotReflected: [none]}}}`)
	l.local.patchYAML(t, "Service", l.namespace, "changed", `{spec: {sessionAffinity: ClientIP}}`)
	l.local.create(t, l.namespace, service("new", ""))
	l.local.delete(t, "Service", l.namespace, "deleted")
	l.local.delete(t, "Pod", l.namespace, "deleted")
	l.remote.delete(t, "Service", l.remoteNS, "lost")
	l.remoteStatus("ended", "{phase: Succeeded}")
	l.eventually(func() error {
		if pod := l.manager.Pod(l.namespace, "deleted"); pod == nil || pod.GetDeletionTimestamp() == nil {
			return errors.New("the pod is not known to be going")
		}
		return nil
	})
	l.present(l.local, "Pod", l.namespace, "deleted") // it may still run over there

	cable.setCut(false)
	for _, name := range []string{"plain", "changed", "lost", "new"} {
		l.present(l.remote, "Service", l.remoteNS, name, field("metadata.labels/chain", "second"), field("metadata.labels/patch", "is-1"))
	}
	l.present(l.remote, "Service", l.remoteNS, "changed", field("spec.sessionAffinity", "ClientIP"))
	l.absent(l.remote, "Service", l.remoteNS, "deleted")
	l.absent(l.remote, "ShadowPod", l.remoteNS, "deleted")
	l.absent(l.local, "Pod", l.namespace, "deleted")
	l.present(l.local, "Pod", l.namespace, "ended", field("status.phase", "Succeeded"))
	for _, name := range []string{"plain", "changed", "lost", "new"} {
		if events := l.events(l.namespace, "Service", name); len(events) > 0 {
			t.Errorf("an outage made the Events %q", events)
		}
	}
	l.present(l.remote, "ShadowPod", l.remoteNS, "ended", func(o *unstructured.Unstructured) error {
		if o.GetDeletionTimestamp() != nil {
			return errors.New("it is being deleted")
		}
		return nil
	})
}
