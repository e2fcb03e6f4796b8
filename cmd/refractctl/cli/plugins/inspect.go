// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/tetratelabs/wazero"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/printable"
)

// inspection is the output of "plugin inspect" for a module.
type inspection struct {
	File     string         `json:"file"`
	Digest   string         `json:"digest"`
	Bytes    int            `json:"bytes"`
	ABI      string         `json:"abi"`
	Manifest *host.Manifest `json:"manifest"`
	// Options are the options in the .yaml file next to the module. They restrict the manifest.
	Options source.Options `json:"options,omitzero"`
	// Warnings lists options and declarations that have no effect.
	Warnings []string            `json:"warnings,omitempty"`
	Imports  map[string][]string `json:"imports"`
	Exports  []string            `json:"exports"`
	Limits   source.Limits       `json:"limits"`
	// LoadTime is how long it takes to instrument, compile and start the module.
	LoadTime string `json:"loadTime"`
}

// NewInspectCommand returns the command "plugin inspect".
func NewInspectCommand() *cobra.Command {
	var output *invocation.Output
	command := &cobra.Command{
		Use:   "inspect FILE.wasm",
		Short: "Load a plugin and show its manifest and permissions",
		Long: "Load a plugin as a virtual kubelet does: measured, instrumented with fuel, compiled, checked and started\n" +
			"within its fuel. The output shows its manifest and permissions; if it cannot be loaded, the error says why.",
		Args:              oneModule,
		ValidArgsFunction: invocation.CompleteWasm,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := output.ValidateFormat(); err != nil {
				return err
			}
			result, err := inspectPlugin(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !output.IsTable() {
				return output.PrintValue(cmd.OutOrStdout(), "PluginInspection", result)
			}
			return result.printInspection(cmd.OutOrStdout())
		},
	}
	output = invocation.AddOutput(command, "", "")
	return command
}

func inspectPlugin(ctx context.Context, file string) (result *inspection, err error) {
	begun := time.Now()
	plugin, err := loadPlugin(ctx, file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plugin.closeChains(ctx)) }()
	result = &inspection{
		File: file, Digest: plugin.Digest(), Bytes: len(plugin.module.Wasm), ABI: "refract v1",
		Manifest: plugin.Manifest(), Options: plugin.module.Options, Limits: withDefaults(plugin.module.Options.Limits),
		LoadTime: time.Since(begun).Round(time.Millisecond).String(),
	}
	if plugin.Portable() {
		result.ABI = "extism (portable tier: JSON in, JSON out)"
	}
	for _, warning := range plugin.chains.warnings {
		result.Warnings = append(result.Warnings, warning.text)
	}
	return result, result.readSections(ctx, plugin.module.Wasm)
}

// withDefaults returns the limits with missing values set to their defaults.
func withDefaults(l source.Limits) source.Limits {
	d := host.DefaultLimits()
	return source.Limits{
		Fuel: orDefault(l.Fuel, d.Fuel), MemoryPages: orDefault(l.MemoryPages, d.MemoryPages),
		OutputBytes: orDefault(l.OutputBytes, d.OutputBytes), CallDepth: orDefault(l.CallDepth, d.CallDepth),
		ModuleBytes: orDefault(l.ModuleBytes, d.ModuleBytes), Handles: orDefault(l.Handles, d.Handles),
	}
}

func orDefault[N int | int64](n, otherwise N) N {
	if n == 0 {
		return otherwise
	}
	return n
}

// readSections lists the imports and exports of the original module. The module is decoded, not run.
func (r *inspection) readSections(ctx context.Context, wasm []byte) (err error) {
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer func() { err = errors.Join(err, runtime.Close(ctx)) }()
	module, err := runtime.CompileModule(ctx, wasm)
	if err != nil {
		return fmt.Errorf("decoding %s, %w", r.File, err)
	}
	r.Imports = map[string][]string{}
	for _, function := range module.ImportedFunctions() {
		from, name, _ := function.Import()
		r.Imports[from] = append(r.Imports[from], name)
	}
	for _, names := range r.Imports {
		slices.Sort(names)
	}
	r.Exports = slices.Sorted(maps.Keys(module.ExportedFunctions()))
	return nil
}

func (r *inspection) printInspection(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, printable.Shorten(printable.Line(fmt.Sprintf(format, args...)), invocation.MostCell))
	}
	grant := func(name string, entries []string) {
		fmt.Fprintf(table, "%s\t%s\n", name, grantOf(entries))
	}
	row("Plugin", "%s %s", r.Manifest.Name, r.Manifest.Version)
	row("File", "%s, %d bytes", r.File, r.Bytes)
	row("Digest", "%s", r.Digest)
	row("ABI", "%s", r.ABI)
	grant("Kinds", r.Manifest.Kinds)
	grant("Hooks", r.Manifest.Hooks)
	grant("Writes", r.Manifest.Writes)
	grant("Capabilities", r.Manifest.Capabilities)
	for _, list := range []struct {
		name    string
		entries []string
	}{{"Only kinds", r.Options.Kinds}, {"Only writes", r.Options.Writes}, {"Only capabilities", r.Options.Capabilities}} {
		if list.entries != nil { // an empty list excludes everything
			grant(list.name, list.entries)
		}
	}
	for _, option := range r.optionRows() {
		row(option[0], "%s", option[1])
	}
	for _, warning := range r.Warnings {
		row("Warning", "%s", warning)
	}
	for _, module := range slices.Sorted(maps.Keys(r.Imports)) {
		row("Imports", "%s: %s", module, strings.Join(r.Imports[module], ", "))
	}
	row("Exports", "%s", strings.Join(r.Exports, ", "))
	row("Limits", "fuel %d, %d memory pages, %d output bytes, call depth %d, %d handles",
		r.Limits.Fuel, r.Limits.MemoryPages, r.Limits.OutputBytes, r.Limits.CallDepth, r.Limits.Handles)
	row("Loaded in", "%s (instrumented with fuel, compiled, started)", r.LoadTime)
	if err := table.Flush(); err != nil {
		return err
	}
	return r.printSchema(out)
}

// optionRows returns a row for each option that is set and not already shown in another row.
func (r *inspection) optionRows() (rows [][2]string) {
	o := r.Options
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}
	add("Replaces", o.Replaces)
	if o.Priority != 0 {
		add("Priority", strconv.Itoa(o.Priority))
	}
	if o.Fresh {
		add("Fresh", "memory is reset before each call")
	}
	if o.IgnoreFailure {
		add("Failures", "ignored, with a warning")
	}
	return rows
}

// grantOf lists all permissions in entries, the broadest first. No permission is left out, because the reader may have
// to decide whether to trust the module.
func grantOf(entries []string) string {
	if len(entries) == 0 {
		return "none"
	}
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b string) int { return cmp.Compare(entryNarrowness(a), entryNarrowness(b)) })
	return printable.Line(strings.Join(entries, ", "))
}

// entryNarrowness returns the sort key of an entry of a manifest: the entry for everything comes first, followed by the
// paths in the order of their depth.
func entryNarrowness(entry string) int {
	if entry == "*" {
		return -1
	}
	return strings.Count(entry, ".") + strings.Count(entry, "[")
}

// printSchema prints the configuration schema as YAML below a title. The author of the plugin has written the text of
// the schema.
func (r *inspection) printSchema(out io.Writer) error {
	if len(r.Manifest.ConfigSchema) == 0 {
		_, err := fmt.Fprintln(out, "Config schema: none, any configuration is accepted")
		return err
	}
	text, err := yaml.Marshal(r.Manifest.ConfigSchema)
	if err != nil {
		return fmt.Errorf("encoding the config schema, %w", err)
	}
	_, err = fmt.Fprintf(out, "Config schema:\n  %s\n", printable.Indented(strings.TrimSuffix(string(text), "\n")))
	return err
}
