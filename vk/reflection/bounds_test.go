// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/event"
	"github.com/refract-project/refract/vk/reflection/internal/statusdelay"
)

// TestALongMessageOfTheProvider checks that a very long message from the provider is truncated.
func TestALongMessageOfTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.ChainsForPods()
	l.Start()
	l.Pod("web")
	status := strings.Replace(running(0), "{phase: Running,", "{phase: Running, message: "+strings.Repeat("x", 100_000)+",", 1)
	l.RunRemote("web", status)
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), func(o *unstructured.Unstructured) error {
		if message, _, _ := unstructured.NestedString(o.Object, "status", "message"); len(message) > content.MaxMessageBytes {
			return fmt.Errorf("the message has %d bytes", len(message))
		}
		return nil
	})
}

// TestWarningsAreLimited checks that the Warnings of a provider that floods a namespace are shown at once up to the
// burst, and the remaining ones at the limited rate.
func TestWarningsAreLimited(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	_, shadow := l.shadowed("web")
	const flood = 3 * event.WarningsBurst
	begun := time.Now()
	for n := range flood {
		l.say(fmt.Sprintf("flood-%d", n), shadow, "type: Warning, reason: Flood, message: "+strings.Repeat("y", 4000))
	}
	shown := func() (n int) {
		list := reflectiontest.Must(l.Local.Of("Event", l.Namespace).List(l.Context(), metav1.ListOptions{}))(t)
		for i := range list.Items {
			if list.Items[i].Object["reason"] != "Flood" {
				continue
			}
			n++
			if message, _ := list.Items[i].Object["message"].(string); len(message) > content.MaxMessageBytes {
				t.Errorf("a message has %d bytes", len(message))
			}
		}
		return n
	}
	first := -1
	l.Eventually(func() error {
		n := shown()
		if first < 0 && n >= event.WarningsBurst {
			first = n
		}
		if n < flood {
			return fmt.Errorf("%d are shown", n)
		}
		return nil
	})
	// The Warnings beyond the burst must have been shown at the limited rate.
	if took := time.Since(begun); first == flood || took < (flood-2*event.WarningsBurst)/event.WarningsPerSecond*time.Second/2 {
		t.Errorf("%d were there with the burst, all after %s", first, took)
	}
}

// TestAddressesNotAllowed checks that addresses that cannot belong to the provider are not shown and cause a single
// Event, while all other addresses are shown.
func TestAddressesNotAllowed(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.ServiceKind, reflection.IngressKind)
		o.OwnCIDRs, _ = ipmap.ParseRanges("--own-cidrs", []string{"10.96.0.0/12"})
		o.LocalPodCIDRs, _ = ipmap.ParseRanges("--local-podcidr", []string{"10.1.0.0/16"})
		o.ForeignCIDRs, _ = ipmap.ParseRanges("--foreign-cidrs", []string{"10.0.0.0/8", "192.0.2.0/24"})
	})
	l.Start()
	for name, status := range map[string]string{
		"service":  "podIP: 10.96.0.1, podIPs: [{ip: 10.96.0.1}]",
		"pod":      "podIP: 10.1.2.3, podIPs: [{ip: 10.1.2.3}]",
		"loopback": "podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}]",
		"metadata": "podIP: 169.254.169.254, podIPs: [{ip: 169.254.169.254}]",
		"neighbor": "podIP: 172.16.0.1, podIPs: [{ip: 172.16.0.1}]",
		"second":   `podIP: 10.245.0.7, podIPs: [{ip: 10.245.0.7}, {ip: "fe80::1"}]`,
	} {
		l.Pod(name)
		l.RunRemote(name, "{phase: Running, "+status+"}")
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Running"), reflectiontest.Field("status.podIP", ""), reflectiontest.Field("status.podIPs", ""))
		l.Event(l.Namespace, "Pod", name, "Warning", engine.AddressNotAllowedReason, "--own-cidrs")
	}
	l.Pod("good")
	l.RunRemote("good", "{phase: Running, podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}]}")
	l.Present(l.Local, "Pod", l.Namespace, "good", reflectiontest.Field("status.podIP", "10.245.0.9"))

	l.Local.Create(t, l.Namespace, balanced)
	l.Local.Create(t, l.Namespace, ingress)
	for _, kind := range []string{"Service", "Ingress"} {
		l.Present(l.Remote, kind, l.RemoteNS, "web")
		l.Remote.PatchYAML(t, kind, l.RemoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 10.96.0.10}, {ip: 192.0.2.7}, {ip: "::1"}, {ip: 172.16.0.1}]}}}`, "status")
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Addresses("192.0.2.7"))
		l.Event(l.Namespace, kind, "web", "Warning", engine.AddressNotAllowedReason, "10.96.0.10, ::1, 172.16.0.1")
	}
	l.Settled()
	if events := l.Events(l.Namespace, "Pod", "loopback"); len(events) != 1 {
		t.Errorf("one address made the Events %q", events)
	}
}

// TestStatusesArePaced checks that the constantly changing status of a provider's object causes, after the first
// writes, one write per second in this cluster, and that the latest status is shown.
func TestStatusesArePaced(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.ServiceKind)
	})
	l.Start()
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.Local.Create(t, l.Namespace, balanced)
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Settled()
	before, begun := len(l.Local.Writes(t)), time.Now()
	const changes = 60
	for n := range changes {
		l.RemoteStatus("web", running(n+1))
		l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", fmt.Sprintf(`{status: {loadBalancer: {ingress: [{ip: 192.0.2.%d}]}}}`, n+1), "status")
	}
	l.Present(l.Local, "Pod", l.Namespace, "web", restarts(changes))
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses(fmt.Sprintf("192.0.2.%d", changes)))
	most := 2 * (statusdelay.PaceBurst + 1 + int(time.Since(begun).Seconds()))
	if writes := l.Local.Writes(t)[before:]; len(writes) > most {
		t.Errorf("%d changes made %d writes, want at most %d", 2*changes, len(writes), most)
	}
	l.Local.DeleteNow(t, "Pod", l.Namespace, "web")
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Eventually(func() error {
		if l.Manager.Paced(reflection.PodKind) > 0 {
			return errors.New("the pace of a pod that is gone is remembered")
		}
		return nil
	})
}
