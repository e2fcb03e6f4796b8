// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package guest runs the instances of a module: it provides the functions that a module may import, charges their fuel,
// limits what a call may use, and turns the end of a call into a typed error.
//
// A Module has what all instances of a plugin's module share. Package host compiles the module, reads its manifest and
// keeps a pool of its instances. An Instance is started by Module.NewInstance, serves one call at a time with RunHook,
// and is reset with Reset. It does not know chains, guards or other plugins.
//
// The functions of the import module "refract" are in abi*.go; docs/abi.md is their reference. Those of Extism's
// modules are in extism.go and portable*.go, and WASI's in wasi*.go. A function that gets an invalid argument, or
// reaches a limit, panics with an error. The panic ends the call, and classifyError returns the error to the host.
package guest
