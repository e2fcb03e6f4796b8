// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins the commands that hack/cluster/build.sh builds from this module.
package tools

import (
	_ "github.com/liqotech/liqo/cmd/crd-replicator"
	_ "github.com/liqotech/liqo/cmd/gateway"
	_ "github.com/liqotech/liqo/cmd/gateway/wireguard"
	_ "github.com/liqotech/liqo/cmd/liqo-controller-manager"
	_ "github.com/liqotech/liqo/cmd/liqoctl"
	_ "github.com/liqotech/liqo/cmd/virtual-kubelet"
	_ "github.com/liqotech/liqo/cmd/webhook"
	_ "golang.zx2c4.com/wireguard" // the version of Liqo's image
)
