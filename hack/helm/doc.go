// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package helm lints and renders the chart with Helm's own library and checks what comes out.
//
// It is a module of its own because Helm's requirements are many; `go test`
// here takes the place of `helm lint` and `helm template` in CI.
package helm
