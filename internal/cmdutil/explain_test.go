// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/internal/cmdutil"
)

func TestFromAPIServer(t *testing.T) {
	leases := schema.GroupVersionResource{Group: "offloading.liqo.io", Version: "v1beta1", Resource: "shadowpods"}
	for name, test := range map[string]struct {
		err        error
		want, away bool
	}{
		"forbidden":                {apierrors.NewForbidden(leases.GroupResource(), "web", errors.New("no role")), true, false},
		"refused":                  {&url.Error{Op: "Get", URL: "https://home", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, true, true},
		"ends":                     {apierrors.NewServiceUnavailable("shutting down"), true, true},
		"is overloaded":            {apierrors.NewTooManyRequests("later", 1), true, true},
		"is another one":           {&url.Error{Op: "Get", URL: "https://home", Err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}}, true, false},
		"was interrupted":          {&url.Error{Op: "Get", URL: "https://home", Err: context.Canceled}, true, false},
		"does not serve CRDs yet":  {&meta.NoResourceMatchError{PartialResource: leases}, true, false},
		"does not know a kind yet": {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: leases.Group, Kind: "ShadowPod"}}, true, false},
		"a flag":                   {errors.New("--tenant-cidrs-of=x is invalid"), false, false},
		"nothing":                  {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if test.err != nil {
				test.err = fmt.Errorf("preparing, %w", cmdutil.Explain(test.err))
			}
			if got := cmdutil.FromAPIServer(test.err); got != test.want {
				t.Errorf("%v: got %t", test.err, got)
			}
			if got := cmdutil.Away(test.err); got != test.away {
				t.Errorf("%v: away is %t", test.err, got)
			}
		})
	}
}
