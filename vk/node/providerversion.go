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
	// versionInterval is the period at which the provider's version is read. With a longer period, upgrades that
	// interrupt no connection are shown later.
	versionInterval = 10 * time.Minute
	// versionRetry is the delay after an error. The pinger reports whether the provider is unreachable.
	versionRetry = 30 * time.Second
)

// providerVersion is the version of the provider's API server, which is a label of the Node. It is safe for concurrent
// use.
type providerVersion struct{ last, labelled atomic.Pointer[string] }

// pollVersion reads the version until ctx ends, and calls changed after each change.
func (v *providerVersion) pollVersion(ctx context.Context, config *Config, changed func()) error {
	for {
		wait := versionInterval
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		found, err := config.ProviderVersion(bounded)
		cancel()
		switch last := v.last.Load(); {
		case err != nil:
			wait = versionRetry
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

// setLabel sets the label on the desired Node. Until the version is known, it keeps the label that an earlier process set.
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
