// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/serverversion"
)

const (
	// versionInterval is how often the provider's version is read. With a longer interval, the label is outdated for
	// longer after an upgrade that interrupts no connection.
	versionInterval = 10 * time.Minute
	// versionRetryDelay is the delay after the version could not be read. An unreachable provider is reported by the
	// pinger.
	versionRetryDelay = 30 * time.Second
)

// providerVersion contains the version of the provider's API server, which is shown in a label of the Node. It is safe
// for concurrent use.
type providerVersion struct{ last, labelled atomic.Pointer[string] }

// pollVersion reads the provider's version until ctx ends, and calls changed after each change.
func (v *providerVersion) pollVersion(ctx context.Context, config *Config, changed func()) error {
	for {
		wait := versionInterval
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		found, err := config.ProviderVersion(bounded)
		cancel()
		switch last := v.last.Load(); {
		case err != nil:
			wait = versionRetryDelay
			log.FromContext(ctx).V(1).Info("The version of the provider is not known", "err", err)
		case last == nil || *last != found:
			log.FromContext(ctx).Info("The provider has this version", "version", found)
			v.last.Store(&found)
			changed()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-config.Clock.After(wait):
		}
	}
}

// setLabel sets the version label on the desired Node. If the version is not known yet, it keeps the label that an
// earlier process has set.
func (v *providerVersion) setLabel(desired, actual *corev1.Node) {
	if actual != nil {
		label := actual.Labels[wire.ProviderVersionLabel]
		v.labelled.Store(&label)
	}
	switch last, labelled := v.last.Load(), v.labelled.Load(); {
	case last != nil:
		desired.Labels[wire.ProviderVersionLabel] = serverversion.LabelValue(*last)
	case labelled != nil && *labelled != "":
		desired.Labels[wire.ProviderVersionLabel] = *labelled
	default:
		delete(desired.Labels, wire.ProviderVersionLabel)
	}
}
