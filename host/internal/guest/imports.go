// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Names of the modules from which plugins import functions.
const (
	moduleRefract = "refract"
	moduleExtism  = "extism:host/env"
	moduleWASI    = "wasi_snapshot_preview1"
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
	f64 = api.ValueTypeF64
)

// hostFunction is a function that the host provides to plugins. As in api.GoFunc, parameters and results are on the
// stack, but the first argument is the instance instead of a context. A panic with an error of this package ends the
// call.
type hostFunction struct {
	params, results []api.ValueType
	call            goFunction
}

// goFunction is an api.GoFunction whose first argument is the instance that makes the call.
type goFunction func(i *Instance, stack []uint64)

// Call implements api.GoFunction. ctx is the instance that was passed to CallWithStack as its context.
func (f goFunction) Call(ctx context.Context, stack []uint64) { f(ctx.(*Instance), stack) }

// Imports contains all host functions, by module and name.
type Imports map[string]map[string]hostFunction

// NewImports returns the functions that every plugin may import.
func NewImports() Imports {
	return Imports{
		moduleRefract: refractFunctions(),
		moduleExtism:  extismFunctions(),
		moduleWASI:    wasiFunctions(),
	}
}

// newHostFunction returns a hostFunction with an optional result and the given parameter types.
func newHostFunction(call func(*Instance, []uint64), result []api.ValueType, params ...api.ValueType) hostFunction {
	return hostFunction{params: params, results: result, call: call}
}

var (
	none  []api.ValueType
	aI32  = []api.ValueType{i32}
	anI64 = []api.ValueType{i64}
	anF64 = []api.ValueType{f64}
)

// Instantiate creates the host modules in a runtime. wazero passes a call's context to host functions unchanged.
// We pass the *Instance as that context, so a host function gets it back with a type assertion.
func (im Imports) Instantiate(ctx context.Context, r wazero.Runtime) error {
	for module, functions := range im {
		b := r.NewHostModuleBuilder(module)
		for name, f := range functions {
			b.NewFunctionBuilder().WithGoFunction(f.call, f.params, f.results).Export(name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// CheckImports returns an error if the module imports a function that the host does not have, or has with other types.
func (im Imports) CheckImports(m wazero.CompiledModule) error {
	for _, def := range m.ImportedFunctions() {
		module, name, _ := def.Import()
		functions, ok := im[module]
		if !ok {
			return fmt.Errorf("it imports %s.%s; a plugin gets %s, %s and %s only", module, name, moduleRefract, moduleExtism, moduleWASI)
		}
		f, ok := functions[name]
		if !ok {
			return fmt.Errorf("it imports %s.%s, which this host does not have", module, name)
		}
		if !slices.Equal(f.params, def.ParamTypes()) || !slices.Equal(f.results, def.ResultTypes()) {
			return fmt.Errorf("it imports %s.%s as %s, which is %s", module, name,
				typeSignature(def.ParamTypes(), def.ResultTypes()), typeSignature(f.params, f.results))
		}
	}
	return nil
}

// CheckExport returns an error unless the module exports a function with these results and without parameters.
func CheckExport(exports map[string]api.FunctionDefinition, name string, results ...api.ValueType) error {
	def, ok := exports[name]
	if !ok {
		return fmt.Errorf("it does not export the function %s", name)
	}
	if got, want := typeSignature(def.ParamTypes(), def.ResultTypes()), typeSignature(nil, results); got != want {
		return fmt.Errorf("it exports %s as %s, which must be %s", name, got, want)
	}
	return nil
}

func typeSignature(params, results []api.ValueType) string {
	names := func(types []api.ValueType) []string {
		out := []string{}
		for _, t := range types {
			out = append(out, api.ValueTypeName(t))
		}
		return out
	}
	return fmt.Sprintf("%v -> %v", names(params), names(results))
}
