// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins the commands that hack/cluster/build.sh builds from this module.
package tools

import (
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
