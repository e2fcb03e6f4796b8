// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"github.com/refract-project/refract/api/wire"
)

func TestRootCAName(t *testing.T) {
	for cluster, want := range map[string]string{
		"rome":         "kube-root-ca.crt.rome",
		"milan-1":      "kube-root-ca.crt.milan",
		"new-york":     "kube-root-ca.crt.new-y",
		"east-west":    "kube-root-ca.crt.east-a",
		"x":            "kube-root-ca.crt.x",
		"9a1b-cluster": "kube-root-ca.crt.9a1b-a",
	} {
		if got := wire.RemoteRootCAConfigMap(cluster); got != want {
			t.Errorf("wire.RemoteRootCAConfigMap(%s) = %s, want %s", cluster, got, want)
		}
	}
}
