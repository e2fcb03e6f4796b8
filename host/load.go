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

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/time/rate"

	"github.com/refract-project/refract/host/fuel"
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
		lines: rate.NewLimiter(logLinesPerSecond, logBurst), leaked: rate.Sometimes{First: 1, Interval: leakReportInterval},
		host: h, name: name, digest: "sha256:" + hex.EncodeToString(digest[:]),
		config: pc.Config, limits: pc.Limits.withDefaults(DefaultLimits()), writes: pc.Writes, ignore: pc.IgnoreFailure, fresh: pc.Fresh, capabilities: pc.Capabilities,
		declared: Manifest{Kinds: pc.Kinds, Writes: pc.Writes, Capabilities: pc.Capabilities},
	}
	if err := p.loadModule(ctx, wasm, pc.unmetered); err != nil {
		if p.compiled != nil {
			err = errors.Join(err, p.compiled.Close(ctx))
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
		{StageImports, func() error { return p.host.imports.checkImports(p.compiled) }},
		{StageExports, func() error { return p.checkExports(p.compiled.ExportedFunctions()) }},
	} {
		if err := step.do(); err != nil {
			return &LoadError{Plugin: p.name, Stage: step.stage, Err: err}
		}
	}
	return p.startFirst(ctx)
}

func (p *Plugin) checkSize(wasm []byte) error {
	if len(wasm) > p.limits.ModuleBytes {
		return &LimitError{Plugin: p.name, During: "load", Limit: LimitModule, Max: int64(p.limits.ModuleBytes)}
	}
	return nil
}

func (p *Plugin) checkConfig() error {
	if p.limits.Fuel < 0 || p.limits.MemoryPages < 0 || p.limits.MemoryPages > maxPages || p.limits.CallDepth < 0 ||
		p.limits.OutputBytes < 0 || p.limits.ModuleBytes < 0 || p.limits.Handles < 0 {
		return fmt.Errorf("a limit is negative or above what WebAssembly has: %+v", p.limits)
	}
	if err := checkCapabilities(p.capabilities); err != nil {
		return err
	}
	return checkPaths(p.writes)
}

// maxPages is the number of pages in 4 GiB, the address space of 32-bit pointers.
const maxPages = 1 << 16

// instrumentModule inserts fuel and the limits. The memory limit is not inserted: the allocator enforces it, so that
// refused growth can be distinguished from other traps.
func (p *Plugin) instrumentModule(wasm []byte) ([]byte, error) {
	return fuel.Instrument(wasm, fuel.Options{
		Start:       p.limits.Fuel,
		CallDepth:   uint32(p.limits.CallDepth),
		MemoryPages: maxPages,
	})
}

func (p *Plugin) compileModule(ctx context.Context, wasm []byte) (err error) {
	p.compiled, p.runtime, err = p.host.compileModule(ctx, exportStart(wasm))
	return err
}

// checkExports determines the tier of the module, and checks that it exports the functions of this tier with the
// right types.
func (p *Plugin) checkExports(exports map[string]api.FunctionDefinition) error {
	_, version := exports["refract_abi_version"]
	_, manifest := exports["refract_manifest"]
	p.portable = !version && !manifest
	if p.portable {
		return p.checkPortable(exports)
	}
	if _, ok := p.compiled.ExportedMemories()["memory"]; !ok {
		return errors.New(`it does not export its memory as "memory"`)
	}
	if err := checkExport(exports, "refract_abi_version", aI32); err != nil {
		return err
	}
	return checkExport(exports, "refract_manifest", anI64)
}

func (p *Plugin) checkPortable(exports map[string]api.FunctionDefinition) error {
	m := &Manifest{Name: p.name, Kinds: p.declared.Kinds, Writes: p.declared.Writes, Capabilities: p.declared.Capabilities}
	for _, hook := range hookNames {
		def, ok := exports[hook]
		if !ok {
			continue
		}
		if len(def.ResultTypes()) > 0 {
			if err := checkExport(exports, hook, aI32); err != nil {
				return err
			}
		} else if err := checkExport(exports, hook, none); err != nil {
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

func checkExport(exports map[string]api.FunctionDefinition, name string, results []api.ValueType) error {
	def, ok := exports[name]
	if !ok {
		return fmt.Errorf("it does not export the function %s", name)
	}
	if got, want := typeSignature(def.ParamTypes(), def.ResultTypes()), typeSignature(nil, results); got != want {
		return fmt.Errorf("it exports %s as %s, which must be %s", name, got, want)
	}
	return nil
}

// startFirst starts the first instance and reads the manifest.
func (p *Plugin) startFirst(ctx context.Context) error {
	p.live++
	i, err := p.newInstance(ctx)
	if err != nil {
		return &LoadError{Plugin: p.name, Stage: StageStart, Err: err}
	}
	p.initial = i.saveState()
	// The instance has state from now on, because the following queries run code of the module.
	i.ran = true
	if !p.portable {
		if err = p.introducePlugin(i); err != nil {
			_ = i.mod.Close(ctx)
			return err
		}
	}
	p.skips = slices.Contains(p.manifest.Capabilities, CapabilitySkip) && (p.capabilities == nil || slices.Contains(p.capabilities, CapabilitySkip))
	p.warnings = append(p.warnings, p.ineffectiveWrites()...)
	p.hot.Store(i)
	return nil
}

func (p *Plugin) introducePlugin(i *instance) error {
	version, err := i.callQuery("refract_abi_version")
	if err == nil && uint32(version) != abiVersion {
		err = fmt.Errorf("it speaks version %d, this host %d", uint32(version), abiVersion)
	}
	if err != nil {
		return &LoadError{Plugin: p.name, Stage: StageVersion, Err: err}
	}
	if err := p.readManifest(i); err != nil {
		return &LoadError{Plugin: p.name, Stage: StageManifest, Err: err}
	}
	if err := schema.Check(p.manifest.ConfigSchema, p.config); err != nil {
		return &LoadError{Plugin: p.name, Stage: StageConfig, Err: err}
	}
	return nil
}

func (p *Plugin) readManifest(i *instance) error {
	packed, err := i.callQuery("refract_manifest")
	if err != nil {
		return err
	}
	ptr, size := uint32(packed>>32), uint32(packed)
	if size > maxManifestBytes {
		return fmt.Errorf("it has %d bytes, more than %d", size, maxManifestBytes)
	}
	if uint64(ptr)+uint64(size) > uint64(len(i.memory.bytes)) {
		return fmt.Errorf("%d bytes at %#x are outside its memory", size, ptr)
	}
	text := i.memory.bytes[ptr : ptr+size]
	if p.manifest, p.warnings, err = parseManifest(text); err != nil {
		return err
	}
	for _, hook := range p.manifest.Hooks {
		if err := checkExport(p.compiled.ExportedFunctions(), hook, aI32); err != nil {
			return err
		}
	}
	return nil
}

// callQuery calls an export that has no parameters and returns a number. It is not used while a hook runs.
func (i *instance) callQuery(name string) (uint64, error) {
	i.beginCall(name, i.plugin.limits.Fuel)
	if err := i.mod.ExportedFunction(name).CallWithStack(i, i.stack[:]); err != nil {
		return 0, i.classifyError(err)
	}
	i.endLines()
	return i.stack[0], nil
}

// newInstance creates an instance, and runs its start function and _initialize, each with the fuel of one call.
func (p *Plugin) newInstance(ctx context.Context) (_ *instance, err error) {
	i := &instance{
		plugin: p, during: "start", budget: p.limits.Fuel,
		memory: memory{max: uint64(p.limits.MemoryPages) << 16}, generation: generationStep,
	}
	defer func() {
		if r := recover(); r != nil {
			err = i.recoveredError(r)
		}
	}()
	// This context need not be the instance, because instantiation runs no code of the module and therefore calls no
	// host function.
	memory := experimental.WithMemoryAllocator(context.Background(), &i.memory)
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	if i.mod, err = p.runtime.InstantiateModule(memory, p.compiled, config); err != nil {
		return nil, i.classifyError(err)
	}
	if err := i.startModule(); err != nil {
		_ = i.mod.Close(ctx)
		return nil, err
	}
	return i, nil
}

// recoveredError returns the error for a panic during instantiation. The allocator panics if the initial memory is
// too large. No other panics are expected.
func (i *instance) recoveredError(r any) error {
	if err, ok := r.(error); ok && errors.Is(err, errMemoryRefused) {
		return i.limitError(LimitMemory, int(i.memory.max>>16))
	}
	return &TrapError{Plugin: i.plugin.name, During: i.during, Err: panicError("runtime", r)}
}

func (i *instance) startModule() error {
	if g, ok := i.mod.ExportedGlobal(fuel.GlobalName).(api.MutableGlobal); ok {
		i.fuel = g
		i.depth = i.mod.ExportedGlobal(fuel.DepthName)
	}
	i.findGlobals()
	for h, name := range hookNames {
		i.hooks[h] = i.mod.ExportedFunction(name)
	}
	for _, name := range [...]string{startExport, "_initialize"} {
		if err := i.startWith(name); err != nil {
			return err
		}
	}
	return nil
}

func (i *instance) startWith(name string) error {
	f := i.mod.ExportedFunction(name)
	if f == nil {
		return nil
	}
	if def := f.Definition(); len(def.ParamTypes())+len(def.ResultTypes()) > 0 {
		return fmt.Errorf("its %s has parameters or results", name)
	}
	i.beginCall("start", i.plugin.limits.Fuel)
	if err := f.CallWithStack(i, i.stack[:]); err != nil {
		return i.classifyError(err)
	}
	i.endLines()
	return nil
}
