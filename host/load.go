// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/time/rate"

	"github.com/refract-project/refract/host/fuel"
	"github.com/refract-project/refract/host/internal/guest"
	"github.com/refract-project/refract/host/internal/schema"
)

// Load loads a plugin from a module. The module is
//
//  1. measured and instrumented with fuel and the limits;
//  2. compiled, or found in the cache;
//  3. checked: its imports, its exports and their types;
//  4. started once, within its fuel, to read its ABI version and manifest.
//
// A *LoadError names the stage in which loading has failed. name is the name of the plugin in errors, logs and
// metrics.
func (h *Host) Load(ctx context.Context, name string, wasm []byte, pc PluginConfig) (*Plugin, error) {
	digest := sha256.Sum256(wasm)
	p := &Plugin{
		module: guest.NewModule(name, pc.Config, pc.Limits.WithDefaults(DefaultLimits()), h.logger),
		leaked: rate.Sometimes{First: 1, Interval: leakReportInterval},
		host:   h, digest: "sha256:" + hex.EncodeToString(digest[:]),
		writes: pc.Writes, ignore: pc.IgnoreFailure, fresh: pc.Fresh, capabilities: pc.Capabilities,
		declared: Manifest{Kinds: pc.Kinds, Writes: pc.Writes, Capabilities: pc.Capabilities},
	}
	if err := p.loadModule(ctx, wasm, pc.unmetered); err != nil {
		if p.module.Compiled != nil {
			err = errors.Join(err, p.module.Compiled.Close(ctx))
		}
		return nil, p.addManifest(err)
	}
	return p, nil
}

// addManifest adds the manifest, if it is known, to the error of a module that cannot be loaded.
func (p *Plugin) addManifest(err error) error {
	var refused *LoadError
	if errors.As(err, &refused) {
		refused.Manifest = p.manifest
	}
	return err
}

func (p *Plugin) loadModule(ctx context.Context, wasm []byte, unmetered bool) error {
	for _, step := range []struct {
		stage Stage
		do    func() error
	}{
		{StageSize, func() error { return p.checkSize(wasm) }},
		{StageConfig, func() error { return p.checkConfig() }},
		{StageInstrument, func() (err error) {
			if !unmetered {
				wasm, err = p.instrumentModule(wasm)
			}
			return err
		}},
		{StageCompile, func() error { return p.compileModule(ctx, wasm) }},
		{StageImports, func() error { return p.host.imports.CheckImports(p.module.Compiled) }},
		{StageExports, func() error { return p.checkExports(p.module.Compiled.ExportedFunctions()) }},
	} {
		if err := step.do(); err != nil {
			return &LoadError{Plugin: p.Name(), Stage: step.stage, Err: err}
		}
	}
	return p.startFirst(ctx)
}

func (p *Plugin) checkSize(wasm []byte) error {
	if most := p.module.Limits.ModuleBytes; len(wasm) > most {
		return &LimitError{Plugin: p.Name(), During: "load", Limit: LimitModule, Max: int64(most)}
	}
	return nil
}

func (p *Plugin) checkConfig() error {
	l := p.module.Limits
	if l.Fuel < 0 || l.MemoryPages < 0 || l.MemoryPages > guest.MaxPages || l.CallDepth < 0 ||
		l.OutputBytes < 0 || l.ModuleBytes < 0 || l.Handles < 0 {
		return fmt.Errorf("a limit is negative or above what WebAssembly has: %+v", l)
	}
	if err := checkCapabilities(p.capabilities); err != nil {
		return err
	}
	return checkPaths(p.writes)
}

// instrumentModule inserts fuel and the limits. The memory limit is not inserted: the allocator enforces it, so that
// refused growth can be distinguished from other traps.
func (p *Plugin) instrumentModule(wasm []byte) ([]byte, error) {
	return fuel.Instrument(wasm, fuel.Options{
		Start:       p.module.Limits.Fuel,
		CallDepth:   uint32(p.module.Limits.CallDepth),
		MemoryPages: guest.MaxPages,
	})
}

func (p *Plugin) compileModule(ctx context.Context, wasm []byte) (err error) {
	p.module.Compiled, p.module.Runtime, err = p.host.compiler.Compile(ctx, wasm)
	return err
}

// checkExports determines the tier of the module, and checks that it exports the functions of this tier with the
// right types.
func (p *Plugin) checkExports(exports map[string]api.FunctionDefinition) error {
	_, version := exports["refract_abi_version"]
	_, manifest := exports["refract_manifest"]
	p.module.Portable = !version && !manifest
	if p.module.Portable {
		return p.checkPortable(exports)
	}
	if _, ok := p.module.Compiled.ExportedMemories()["memory"]; !ok {
		return errors.New(`it does not export its memory as "memory"`)
	}
	if err := guest.CheckExport(exports, "refract_abi_version", api.ValueTypeI32); err != nil {
		return err
	}
	return guest.CheckExport(exports, "refract_manifest", api.ValueTypeI64)
}

func (p *Plugin) checkPortable(exports map[string]api.FunctionDefinition) error {
	m := &Manifest{Name: p.Name(), Kinds: p.declared.Kinds, Writes: p.declared.Writes, Capabilities: p.declared.Capabilities}
	for _, hook := range guest.HookNames() {
		def, ok := exports[hook]
		if !ok {
			continue
		}
		if len(def.ResultTypes()) > 0 {
			if err := guest.CheckExport(exports, hook, api.ValueTypeI32); err != nil {
				return err
			}
		} else if err := guest.CheckExport(exports, hook); err != nil {
			return err
		}
		m.Hooks = append(m.Hooks, hook)
	}
	if len(m.Hooks) > 0 {
		if m.Kinds == nil || m.Writes == nil {
			return errors.New("it has no manifest, so its options must say what it is for and what it may change: set kinds and writes ([] is none)")
		}
		p.manifest = m
		return m.checkLimits()
	}
	if _, ok := exports["_start"]; ok {
		return errors.New("it is a command: build it as a reactor (TinyGo and Go: -buildmode=c-shared)")
	}
	return errors.New("it exports neither refract_abi_version and refract_manifest (the SDK) nor outgoing or incoming (an Extism PDK)")
}

// startFirst starts the first instance and reads the manifest.
func (p *Plugin) startFirst(ctx context.Context) error {
	p.live++
	i, err := p.newInstance(ctx)
	if err != nil {
		return &LoadError{Plugin: p.Name(), Stage: StageStart, Err: err}
	}
	i.SaveState()
	// The instance has state from now on, because the following queries run code of the module.
	i.ran = true
	if !p.module.Portable {
		if err = p.introducePlugin(i); err != nil {
			i.Close()
			return err
		}
	}
	p.module.MaySkip = slices.Contains(p.manifest.Capabilities, CapabilitySkip) && (p.capabilities == nil || slices.Contains(p.capabilities, CapabilitySkip))
	p.warnings = append(p.warnings, p.ineffectiveWrites()...)
	p.hot.Store(i)
	return nil
}

func (p *Plugin) introducePlugin(i *instance) error {
	version, err := i.Query("refract_abi_version")
	if err == nil && uint32(version) != guest.ABIVersion {
		err = fmt.Errorf("it speaks version %d, this host %d", uint32(version), guest.ABIVersion)
	}
	if err != nil {
		return &LoadError{Plugin: p.Name(), Stage: StageVersion, Err: err}
	}
	if err := p.readManifest(i); err != nil {
		return &LoadError{Plugin: p.Name(), Stage: StageManifest, Err: err}
	}
	if err := schema.Check(p.manifest.ConfigSchema, p.module.Config); err != nil {
		return &LoadError{Plugin: p.Name(), Stage: StageConfig, Err: err}
	}
	return nil
}

func (p *Plugin) readManifest(i *instance) error {
	packed, err := i.Query("refract_manifest")
	if err != nil {
		return err
	}
	ptr, size := uint32(packed>>32), uint32(packed)
	if size > maxManifestBytes {
		return fmt.Errorf("it has %d bytes, more than %d", size, maxManifestBytes)
	}
	text, ok := i.ReadMemory(ptr, size)
	if !ok {
		return fmt.Errorf("%d bytes at %#x are outside its memory", size, ptr)
	}
	if p.manifest, p.warnings, err = parseManifest(text); err != nil {
		return err
	}
	for _, hook := range p.manifest.Hooks {
		if err := guest.CheckExport(p.module.Compiled.ExportedFunctions(), hook, api.ValueTypeI32); err != nil {
			return err
		}
	}
	return nil
}
