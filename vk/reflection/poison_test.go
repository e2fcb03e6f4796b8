// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// poison makes every evaluation of two ConfigMaps fail: the provider rejects one of them, and the chain panics on the
// other. poison returns the number of failures of each of them.
func (l *lab) poison() (refused, panicked *atomic.Int64) {
	refused, panicked = &atomic.Int64{}, &atomic.Int64{}
	l.Chains.Swap(reflection.ConfigMapKind, host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		mode, _ := doc.At("data.mode")
		switch text, _ := mode.Text(); text {
		case "refuse":
			refused.Add(1)
			return &host.Outcome{}, doc.SetString("data[not a key]", "x")
		case "panic":
			panicked.Add(1)
			panic("poison")
		}
		return &host.Outcome{}, nil
	})
	return refused, panicked
}

// TestAPoisonedObjectDelaysNobody checks that two objects that fail again and again do not delay a thousand other
// objects in the same queue, even with a single worker. Events must report their failures, and the two objects must
// be reflected when the cause is fixed.
func TestAPoisonedObjectDelaysNobody(t *testing.T) {
	t.Parallel()
	const good = 1000
	l := newLab(t, func(o *reflection.Options) {
		o.Kinds, o.Workers = reflectiontest.Kinds(reflection.ConfigMapKind), map[string]int{reflection.ConfigMapKind: 1}
	})
	refused, panicked := l.poison()
	for _, mode := range []string{"refuse", "panic"} {
		l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {mode: %s}}`, mode, mode))
	}
	l.Start()
	failures := func() int64 { return min(refused.Load(), panicked.Load()) }
	l.Eventually(func() error {
		if n := failures(); n < 2 {
			return fmt.Errorf("the poisoned objects have failed %d times", n)
		}
		return nil
	})
	before := failures()
	l.Local.ConfigMaps(t, l.Namespace, good)
	// Each tenth of the objects is awaited separately, because each wait has a timeout.
	for want := good / 10; want <= good; want += good / 10 {
		l.Eventually(func() error {
			crossed := reflectiontest.Must(l.Remote.Core.CoreV1().ConfigMaps(l.RemoteNS).List(t.Context(), metav1.ListOptions{LabelSelector: "offloading.liqo.io/destination=" + l.ID}))(t)
			if n := len(crossed.Items) - 1; n < want { // without the root CA
				return fmt.Errorf("%d of %d objects have crossed", n, good)
			}
			return nil
		})
	}
	if after := failures(); after == before {
		t.Error("nothing failed while they crossed: that shows nothing")
	}
	l.Event(l.Namespace, reflection.ConfigMapKind, "refuse", "Warning", "FailedReflection", "data[not a key]", "Invalid value")
	l.Event(l.Namespace, reflection.ConfigMapKind, "panic", "Warning", "FailedReflection", "internal error", "poison")
	if told := append(l.Events(l.Namespace, reflection.ConfigMapKind, "refuse"), l.Events(l.Namespace, reflection.ConfigMapKind, "panic")...); len(told) != 2 {
		t.Errorf("%d failures made the Events %q", refused.Load()+panicked.Load(), told)
	}
	for _, name := range []string{"refuse", "panic"} {
		l.Local.PatchYAML(t, reflection.ConfigMapKind, l.Namespace, name, `{data: {mode: fast}}`)
		l.Present(l.Remote, reflection.ConfigMapKind, l.RemoteNS, name, reflectiontest.Field("data.mode", "fast"))
	}
}
