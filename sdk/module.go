// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

package sdk

import (
	"unsafe"

	pdk "github.com/extism/go-pdk"
)

// abiVersion is the version of the ABI; see docs/abi.md.
const abiVersion = 1

// manifestJSON keeps a reference to the manifest, so that the garbage collector does not free it while the host reads
// it.
var manifestJSON []byte

//go:wasmexport refract_abi_version
func exportVersion() int32 { return abiVersion }

//go:wasmexport refract_manifest
func exportManifest() int64 {
	if registered == nil {
		panic("the module registers no plugin: call sdk.Register in a package-level variable")
	}
	manifestJSON = registered.json()
	address := uintptr(unsafe.Pointer(unsafe.SliceData(manifestJSON)))
	return int64(address)<<32 | int64(len(manifestJSON))
}

//go:wasmexport outgoing
func exportOutgoing() int32 { return serve(HookOutgoing) }

//go:wasmexport incoming
func exportIncoming() int32 { return serve(HookIncoming) }

// serve runs a hook and reports its outcome to the host.
func serve(hook Hook) int32 {
	scratch.reset()
	f := registered.hooks[hook]
	if f == nil {
		return end(noHook(hook))
	}
	err := f(Context{root: contextRoot, config: configRoot}, Object{Node{objectRoot}})
	if err == nil {
		return 0
	}
	return end(outcomeOf(err))
}

// end reports a skip or a failure to the host. It is a separate function, so that calls without a skip or failure need
// no stack space for it.
//
//go:noinline
func end(out outcome) int32 {
	if out.skipped {
		hostSkip(address(out.reason), size(out.reason))
	}
	if !out.failed {
		return 0
	}
	hostFail(address(out.reason), size(out.reason))
	pdk.SetErrorString(out.reason)
	return 1
}
