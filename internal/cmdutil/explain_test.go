// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil_test

import (
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
		err  error
		want bool
	}{
		"forbidden":                {apierrors.NewForbidden(leases.GroupResource(), "web", errors.New("no role")), true},
		"refused":                  {&url.Error{Op: "Get", URL: "https://home", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, true},
		"does not serve CRDs yet":  {&meta.NoResourceMatchError{PartialResource: leases}, true},
		"does not know a kind yet": {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: leases.Group, Kind: "ShadowPod"}}, true},
		"a flag":                   {errors.New("--tenant-cidrs-of=x is invalid"), false},
		"nothing":                  {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if test.err != nil {
				test.err = fmt.Errorf("preparing, %w", cmdutil.Explain(test.err))
			}
			if got := cmdutil.FromAPIServer(test.err); got != test.want {
				t.Errorf("%v: got %t", test.err, got)
			}
		})
	}
}
