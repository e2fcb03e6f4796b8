// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package renewal requests the next client certificate of this cluster from a provider.
package renewal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/controllers/internal/report"
)

const (
	// Timeout limits the requests to a provider in one renewal.
	Timeout = 30 * time.Second
	// pollInterval is the interval at which a Renew is read until its certificate is issued. The provider signs a
	// certificate in less than a second.
	pollInterval = 250 * time.Millisecond
	// tidyTimeout limits the deletion of a Renew after the certificate was issued.
	tidyTimeout = 5 * time.Second
)

// Request sends the Renew to the provider, waits for the certificate (PEM), and deletes the Renew. The caller must
// check the certificate, and limit ctx to Timeout.
func Request(ctx context.Context, provider client.Client, renew *auth.Renew) (signed []byte, err error) {
	name := client.ObjectKeyFromObject(renew)
	// A Renew from an interrupted attempt is useless, because its key may be lost.
	if err := provider.Delete(ctx, renew.DeepCopy()); client.IgnoreNotFound(err) != nil {
		return nil, report.Errorf(report.Provider, "removing the former Renew %s at the provider, %w", name, err)
	}
	// If the response to the creation was lost, the Renew may exist.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
		defer cancel()
		if deleted := client.IgnoreNotFound(provider.Delete(ctx, renew)); deleted != nil && err == nil {
			err = report.Errorf(report.Provider, "removing Renew %s at the provider, %w", name, deleted)
		}
	}()
	if err := provider.Create(ctx, renew); err != nil {
		return nil, report.Errorf(report.Provider, "creating Renew %s at the provider, %w", name, err)
	}
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if err := provider.Get(ctx, name, renew); err != nil {
			return false, fmt.Errorf("reading Renew %s at the provider, %w", name, err)
		}
		if renew.Status.Refusal != "" {
			return false, fmt.Errorf("the provider refused the renewal: %s", renew.Status.Refusal)
		}
		if renew.Status.AuthParams != nil {
			signed = renew.Status.AuthParams.SignedCRT
		}
		return len(signed) > 0, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the provider has not answered Renew %s within %s: its controller manager must run, with authentication.enabled of the chart (%w)", name, Timeout, err)
	}
	if err != nil {
		return nil, report.Errorf(report.Provider, "%w", err)
	}
	return signed, nil
}
