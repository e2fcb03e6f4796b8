// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// MaxClockSkew is the largest accepted difference between the clocks of two clusters. Certificates and leases depend on
// the clock.
const MaxClockSkew = time.Minute

// ClockOffset returns how far the API server's clock is ahead of the local clock. known is false if a proxy has removed
// the Date header.
func (c *Cluster) ClockOffset(ctx context.Context) (offset time.Duration, known bool, err error) {
	httpClient, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return 0, false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Config.Host, "/")+"/version", nil)
	if err != nil {
		return 0, false, err
	}
	begun := time.Now()
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, false, err
	}
	if err := response.Body.Close(); err != nil {
		return 0, false, err
	}
	there, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0, false, nil //nolint:nilerr // there is none
	}
	return there.Sub(begun.Add(time.Since(begun) / 2)), true, nil
}
