// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/event"
)

// A provider says more than anybody reads: the message is cut, the object stays small.
func TestALongMessageOfTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.chainsForPods()
	l.start()
	l.pod("web")
	status := strings.Replace(running(0), "{phase: Running,", "{phase: Running, message: "+strings.Repeat("x", 100_000)+",", 1)
	l.runRemote("web", status)
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"), func(o *unstructured.Unstructured) error {
		if message, _, _ := unstructured.NestedString(o.Object, "status", "message"); len(message) > engine.MaxMessageBytes {
			return fmt.Errorf("the message has %d bytes", len(message))
		}
		return nil
	})
}

// A provider that floods a namespace with Warnings is heard, and then one after another.
func TestWarningsAreLimited(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind)).start()
	_, shadow := l.shadowed("web")
	const flood = 3 * event.WarningsBurst
	for n := range flood {
		l.say(fmt.Sprintf("flood-%d", n), shadow, "type: Warning, reason: Flood, message: "+strings.Repeat("y", 4000))
	}
	shown := func() (n int) {
		list := must(l.local.of("Event", l.namespace).List(l.Context(), metav1.ListOptions{}))(t)
		for i := range list.Items {
			if list.Items[i].Object["reason"] != "Flood" {
				continue
			}
			n++
			if message, _ := list.Items[i].Object["message"].(string); len(message) > engine.MaxMessageBytes {
				t.Errorf("a message has %d bytes", len(message))
			}
		}
		return n
	}
	begun := time.Now()
	first := -1
	l.eventually(func() error {
		n := shown()
		if first < 0 && n >= event.WarningsBurst {
			first = n
		}
		if n < flood {
			return fmt.Errorf("%d are shown", n)
		}
		return nil
	})
	// Those beyond the burst came one after another.
	if took := time.Since(begun); first == flood || took < (flood-2*event.WarningsBurst)/event.WarningsPerSecond*time.Second/2 {
		t.Errorf("%d were there with the burst, all after %s", first, took)
	}
}

// Addresses that nothing of the provider can have are not shown, which is said once; all others are.
func TestStrangeAddressesOfTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t), func(o *Options) {
		o.Kinds = kinds(PodKind, ServiceKind, IngressKind)
		o.OwnCIDRs, _ = ipmap.ParseRanges("--own-cidrs", []string{"10.96.0.0/12"})
		o.LocalPodCIDRs, _ = ipmap.ParseRanges("--local-podcidr", []string{"10.1.0.0/16"})
		o.ForeignCIDRs, _ = ipmap.ParseRanges("--foreign-cidrs", []string{"10.0.0.0/8", "192.0.2.0/24"})
	})
	l.start()
	for name, status := range map[string]string{
		"service":  "podIP: 10.96.0.1, podIPs: [{ip: 10.96.0.1}]",
		"pod":      "podIP: 10.1.2.3, podIPs: [{ip: 10.1.2.3}]",
		"loopback": "podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}]",
		"metadata": "podIP: 169.254.169.254, podIPs: [{ip: 169.254.169.254}]",
		"neighbor": "podIP: 172.16.0.1, podIPs: [{ip: 172.16.0.1}]",
		"second":   `podIP: 10.245.0.7, podIPs: [{ip: 10.245.0.7}, {ip: "fe80::1"}]`,
	} {
		l.pod(name)
		l.runRemote(name, "{phase: Running, "+status+"}")
		l.present(l.local, "Pod", l.namespace, name, field("status.phase", "Running"), field("status.podIP", ""), field("status.podIPs", ""))
		l.event(l.namespace, "Pod", name, "Warning", engine.StrangeAddressReason, "--own-cidrs")
	}
	l.pod("good")
	l.runRemote("good", "{phase: Running, podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}]}")
	l.present(l.local, "Pod", l.namespace, "good", field("status.podIP", "10.245.0.9"))

	l.local.create(t, l.namespace, balanced)
	l.local.create(t, l.namespace, ingress)
	for _, kind := range []string{"Service", "Ingress"} {
		l.present(l.remote, kind, l.remoteNS, "web")
		l.remote.patchYAML(t, kind, l.remoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 10.96.0.10}, {ip: 192.0.2.7}, {ip: "::1"}, {ip: 172.16.0.1}]}}}`, "status")
		l.present(l.local, kind, l.namespace, "web", addresses("192.0.2.7"))
		l.event(l.namespace, kind, "web", "Warning", engine.StrangeAddressReason, "10.96.0.10, ::1, 172.16.0.1")
	}
	l.settled()
	if events := l.events(l.namespace, "Pod", "loopback"); len(events) != 1 {
		t.Errorf("one address made the Events %q", events)
	}
}

// A provider that changes a status all the time costs this cluster one write a second after the first ones, and the latest is shown.
func TestStatusesArePaced(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t), func(o *Options) { o.Kinds = kinds(PodKind, ServiceKind) })
	l.start()
	l.pod("web")
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	l.local.create(t, l.namespace, balanced)
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.settled()
	before, begun := len(l.local.writes(t)), time.Now()
	const changes = 60
	for n := range changes {
		l.remoteStatus("web", running(n+1))
		l.remote.patchYAML(t, "Service", l.remoteNS, "web", fmt.Sprintf(`{status: {loadBalancer: {ingress: [{ip: 192.0.2.%d}]}}}`, n+1), "status")
	}
	l.present(l.local, "Pod", l.namespace, "web", restarts(changes))
	l.present(l.local, "Service", l.namespace, "web", addresses(fmt.Sprintf("192.0.2.%d", changes)))
	most := 2 * (engine.StatusBurst + 1 + int(time.Since(begun).Seconds()))
	if writes := l.local.writes(t)[before:]; len(writes) > most {
		t.Errorf("%d changes made %d writes, want at most %d", 2*changes, len(writes), most)
	}
	l.local.deleteNow(t, "Pod", l.namespace, "web")
	l.absent(l.remote, "ShadowPod", l.remoteNS, "web")
	l.eventually(func() error {
		if l.manager.Paced(PodKind) > 0 {
			return errors.New("the pace of a pod that is gone is remembered")
		}
		return nil
	})
}
