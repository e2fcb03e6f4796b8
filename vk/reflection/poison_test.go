// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// poison makes the evaluation of some ConfigMaps fail for as long as they have poison in them, each time again: the provider
// refuses one, the chain panics about another. It returns how often that has happened.
func (l *lab) poison() (refused, panicked *atomic.Int64) {
	refused, panicked = &atomic.Int64{}, &atomic.Int64{}
	l.chains.swap(ConfigMapKind, host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
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

// Two objects that fail over and over do not delay the thousand behind them in the same queue, not even when one worker has
// to do it all. They have their Events, and cross when they are mended.
func TestAPoisonedObjectDelaysNobody(t *testing.T) {
	t.Parallel()
	const good = 1000
	l := newLab(t, func(o *Options) {
		o.Kinds, o.Workers = kinds(ConfigMapKind), map[string]int{ConfigMapKind: 1}
	})
	refused, panicked := l.poison()
	for _, mode := range []string{"refuse", "panic"} {
		l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {mode: %s}}`, mode, mode))
	}
	l.start()
	failures := func() int64 { return min(refused.Load(), panicked.Load()) }
	l.eventually(func() error {
		if n := failures(); n < 2 {
			return fmt.Errorf("the poisoned objects have failed %d times", n)
		}
		return nil
	})
	before := failures()
	l.local.configMaps(t, l.namespace, good)
	for want := good / 10; want <= good; want += good / 10 { // each tenth in its own time
		l.eventually(func() error {
			crossed := must(l.remote.core.CoreV1().ConfigMaps(l.remoteNS).List(t.Context(), metav1.ListOptions{LabelSelector: "offloading.liqo.io/destination=" + l.id}))(t)
			if n := len(crossed.Items) - 1; n < want { // one is the root CA
				return fmt.Errorf("%d of %d objects have crossed", n, good)
			}
			return nil
		})
	}
	if after := failures(); after == before {
		t.Error("nothing failed while they crossed: that shows nothing")
	}
	l.event(l.namespace, ConfigMapKind, "refuse", "Warning", "FailedReflection", "data[not a key]", "Invalid value")
	l.event(l.namespace, ConfigMapKind, "panic", "Warning", "FailedReflection", "internal error", "poison")
	if told := append(l.events(l.namespace, ConfigMapKind, "refuse"), l.events(l.namespace, ConfigMapKind, "panic")...); len(told) != 2 {
		t.Errorf("%d failures made the Events %q", refused.Load()+panicked.Load(), told)
	}
	for _, name := range []string{"refuse", "panic"} {
		l.local.patchYAML(t, ConfigMapKind, l.namespace, name, `{data: {mode: fast}}`)
		l.present(l.remote, ConfigMapKind, l.remoteNS, name, field("data.mode", "fast"))
	}
}
