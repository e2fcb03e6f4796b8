// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/refract-project/refract/host/fuel"
	"github.com/refract-project/refract/host/internal/compiler"
)

// Query calls an export that has no parameters and returns a number. It is not used while a hook runs.
func (i *Instance) Query(name string) (uint64, error) {
	i.beginCall(name, i.module.Limits.Fuel)
	if err := i.mod.ExportedFunction(name).CallWithStack(i, i.stack[:]); err != nil {
		return 0, i.classifyError(err)
	}
	i.endLines()
	return i.stack[0], nil
}

// NewInstance creates an instance, and runs its start function and _initialize, each with the fuel of one call.
func (m *Module) NewInstance(ctx context.Context) (_ *Instance, err error) {
	i := &Instance{
		module: m, during: "start", budget: m.Limits.Fuel,
		memory: memory{max: uint64(m.Limits.MemoryPages) << 16}, generation: generationStep,
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
	if i.mod, err = m.Runtime.InstantiateModule(memory, m.Compiled, config); err != nil {
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
func (i *Instance) recoveredError(r any) error {
	if err, ok := r.(error); ok && errors.Is(err, errMemoryRefused) {
		return i.limitError(LimitMemory, int(i.memory.max>>16))
	}
	return &TrapError{Plugin: i.module.Name, During: i.during, Err: compiler.NewPanicError("runtime", r)}
}

func (i *Instance) startModule() error {
	if g, ok := i.mod.ExportedGlobal(fuel.GlobalName).(api.MutableGlobal); ok {
		i.fuel = g
		i.depth = i.mod.ExportedGlobal(fuel.DepthName)
	}
	i.findGlobals()
	for h, name := range hookNames {
		i.hooks[h] = i.mod.ExportedFunction(name)
	}
	for _, name := range [...]string{compiler.StartExport, "_initialize"} {
		if err := i.startWith(name); err != nil {
			return err
		}
	}
	return nil
}

func (i *Instance) startWith(name string) error {
	f := i.mod.ExportedFunction(name)
	if f == nil {
		return nil
	}
	if def := f.Definition(); len(def.ParamTypes())+len(def.ResultTypes()) > 0 {
		return fmt.Errorf("its %s has parameters or results", name)
	}
	i.beginCall("start", i.module.Limits.Fuel)
	if err := f.CallWithStack(i, i.stack[:]); err != nil {
		return i.classifyError(err)
	}
	i.endLines()
	return nil
}
