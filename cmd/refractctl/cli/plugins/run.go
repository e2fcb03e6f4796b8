// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/printable"
)

// trial contains the flags of "plugin run".
type trial struct {
	object, context, config string
	hook                    string
	fuel                    int64
	diff, chain             bool
	output                  *invocation.Output
}

// NewRunCommand returns the command "plugin run".
func NewRunCommand() *cobra.Command {
	t := &trial{}
	command := &cobra.Command{
		Use:   "run FILE.wasm -f OBJECTS.yaml",
		Short: "Run a plugin on the objects of a file and print the results",
		Long: "Run a plugin on each object of a file, on the real host with its limits and its guard, and print the objects, or\n" +
			"the differences with --diff. Warnings and the fuel used go to the standard error. Options in FILE.yaml beside the\n" +
			"module are used. Objects that the plugin is not for are left out, with a note. With --chain, several modules can be\n" +
			"named: they run together with the default plugins, in the order in which a virtual kubelet runs them.",
		Example: "  refractctl plugin run strip.wasm -f service.yaml --config=config.yaml --diff\n" +
			"  refractctl plugin run strip.wasm -f service.yaml --chain\n" +
			"  kubectl get pod web -o yaml | refractctl plugin run pod.wasm -f -",
		Args: func(cmd *cobra.Command, args []string) error {
			if t.chain && len(args) > 1 {
				return nil
			}
			return oneModule(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
			if t.chain {
				given = nil
			}
			return invocation.CompleteWasm(cmd, given, typed)
		},
		RunE: t.runTrial,
	}
	flags := command.Flags()
	flags.StringVarP(&t.object, "filename", "f", "", "file with one or more objects, YAML or JSON; - is the standard input")
	flags.StringVar(&t.context, "context", "", "file with the plugin's context: IDs, namespaces and settings of the two clusters; by default the IDs are home and cloud, and the namespaces those of the object")
	flags.StringVar(&t.config, "config", "", "file with the plugin's configuration")
	flags.StringVar(&t.hook, "hook", host.Outgoing.String(), "hook to run: outgoing or incoming")
	flags.Int64Var(&t.fuel, "fuel", 0, "fuel of the call; 0 is the plugin's limit, or the default")
	flags.BoolVar(&t.diff, "diff", false, "print the difference instead of the object")
	flags.BoolVar(&t.chain, "chain", false, "run the whole chain: the default plugins of the kinds, unless they are replaced, and the named ones, in the order of a virtual kubelet")
	t.output = invocation.AddOutput(command, "yaml")
	invocation.CompleteFlag(command, "hook", host.Outgoing.String(), host.Incoming.String())
	return command
}

func (t *trial) runTrial(cmd *cobra.Command, args []string) (err error) {
	ctx := cmd.Context()
	hook, err := t.validateFlags(args)
	if err != nil {
		return invocation.UsageError(err)
	}
	objects, err := ReadObjects("filename", t.object, cmd.InOrStdin())
	if err != nil {
		return err
	}
	given, err := readOptional("context", t.context)
	if err != nil {
		return err
	}
	modules, err := t.readModules(args)
	if err != nil {
		return err
	}
	kinds, err := objectKinds(objects)
	if err != nil {
		return err
	}
	chains, err := newTrialChains(ctx, modules, slices.Compact(slices.Sorted(slices.Values(kinds))), hook, t.chain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chains.closeHost(ctx)) }()
	for _, warning := range chains.warnings {
		printWarning(cmd.ErrOrStderr(), warning.plugin, warning.text)
	}
	printer, err := t.output.NewPrinter()
	if err != nil {
		return err
	}
	if err := t.explainUnmatched(cmd.ErrOrStderr(), chains, objects, kinds); err != nil {
		return err
	}
	env := &host.Env{Measure: true, RemapIP: func(ip string) (string, bool) { return ip, true }}
	for n, object := range objects {
		if !t.chain && chains.unmatchedReason(modules[0], kinds[n]) != "" {
			continue
		}
		env.Context = ContextFor(given, object, hook)
		if oneErr := t.runObject(cmd, chains, kinds[n], object, env, printer); oneErr != nil {
			err = errors.Join(err, fmt.Errorf("%s, %w", objectPosition(objects, n), oneErr))
		}
	}
	return err
}

// readModules reads the modules and their options. Flags override the options.
func (t *trial) readModules(files []string) (modules []source.Module, err error) {
	config, err := readOptional("config", t.config)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		module := source.ReadFile(file)
		if module.Err != nil {
			return nil, fmt.Errorf("reading plugin %s, %w", file, module.Err)
		}
		if config != nil {
			module.Options.Config = config
		}
		if t.fuel > 0 {
			module.Options.Limits.Fuel = t.fuel
		}
		modules = append(modules, module)
	}
	return modules, nil
}

// explainUnmatched prints a note for each object that a plugin does not run on. It returns an error if the plugin runs
// on no object at all, unless --chain is set.
func (t *trial) explainUnmatched(out io.Writer, chains *trialChains, objects []map[string]any, kinds []string) error {
	for _, module := range chains.modules {
		notes := []string{}
		for n := range objects {
			if why := chains.unmatchedReason(module, kinds[n]); why != "" {
				notes = append(notes, fmt.Sprintf("%s: %s", objectPosition(objects, n), why))
			}
		}
		if len(notes) == len(objects) && !t.chain {
			return noneMatches(notes)
		}
		for _, note := range notes {
			fmt.Fprintf(out, "note: %s\n", printable.Line(note))
		}
	}
	return nil
}

// noneMatches returns the error for a plugin that runs on no object. It contains the first of the notes about the
// objects.
func noneMatches(notes []string) error {
	if others := len(notes) - 1; others > 0 {
		return fmt.Errorf("%s; nor does it run on the other %d", notes[0], others)
	}
	return errors.New(notes[0])
}

// runObject runs the chain on one object, and prints the result as another document.
func (t *trial) runObject(cmd *cobra.Command, chains *trialChains, kind string, object map[string]any, env *host.Env, printer printers.ResourcePrinter) error {
	doc, outcome, err := chains.runChain(cmd.Context(), kind, object, env)
	printOutcome(cmd.ErrOrStderr(), outcome)
	if err != nil || outcome.Skipped {
		return err
	}
	if t.diff {
		return printDiff(invocation.UnchangedWriter(cmd.OutOrStdout()), cmd.ErrOrStderr(), object, doc.Value())
	}
	return printer.PrintObj(&unstructured.Unstructured{Object: doc.Value()}, invocation.UnchangedWriter(cmd.OutOrStdout()))
}

// objectKinds returns the kind of each object.
func objectKinds(objects []map[string]any) (kinds []string, err error) {
	for n, object := range objects {
		kind, err := kindOf(object)
		if err != nil {
			return nil, fmt.Errorf("%s, %w", objectPosition(objects, n), err)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// objectPosition returns the name of an object for messages. If there are several objects, it includes the object's
// number.
func objectPosition(objects []map[string]any, n int) string {
	if len(objects) == 1 {
		return nameOf(objects[n])
	}
	return fmt.Sprintf("object %d of %d (%s)", n+1, len(objects), nameOf(objects[n]))
}

// nameOf returns the name of an object in kubectl's notation.
func nameOf(object map[string]any) string {
	kind, _ := object["kind"].(string)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return strings.ToLower(kind) + "/" + name
}

func (t *trial) validateFlags(modules []string) (host.Hook, error) {
	if t.object == "" {
		return 0, errors.New("--filename is missing: set it to a file with the object, or - for standard input")
	}
	if err := t.output.ValidateFormat(); err != nil {
		return 0, err
	}
	if t.fuel < 0 {
		return 0, fmt.Errorf("--fuel is %d: use a positive amount, or 0 for the plugin's limit", t.fuel)
	}
	if t.config != "" && len(modules) > 1 {
		return 0, errors.New("--config is for one module: with several, write the configuration of each into the .yaml file beside it")
	}
	for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
		if t.hook == hook.String() {
			return hook, nil
		}
	}
	return 0, fmt.Errorf("--hook is %q: use outgoing or incoming", t.hook)
}

func printWarning(out io.Writer, of, text string) {
	fmt.Fprintf(out, "warning of %s: %s\n", printable.Line(of), printable.Line(text))
}

// printOutcome prints the warnings, and all other effects of the plugins except the resulting object.
func printOutcome(out io.Writer, outcome *host.Outcome) {
	if outcome == nil {
		return
	}
	for _, warning := range outcome.Warnings {
		printWarning(out, cmp.Or(warning.Plugin, "the guard"), warning.Message)
	}
	if outcome.Skipped {
		fmt.Fprintf(out, "skipped by %s: %s\n", printable.Line(outcome.Skipper), printable.Line(outcome.SkipReason))
	}
	for _, call := range outcome.Calls {
		fmt.Fprintf(out, "%s used %d units of fuel in %s\n", printable.Line(call.Plugin), call.Fuel, call.Duration)
	}
}

func printDiff(out, progress io.Writer, before, after map[string]any) error {
	a, err := invocation.EncodeYAML(before)
	if err != nil {
		return err
	}
	b, err := invocation.EncodeYAML(after)
	if err != nil {
		return err
	}
	if bytes.Equal(a, b) {
		_, err := fmt.Fprintln(progress, "no difference")
		return err
	}
	return difflib.WriteUnifiedDiff(out, difflib.UnifiedDiff{
		A: difflib.SplitLines(string(a)), B: difflib.SplitLines(string(b)), FromFile: "before", ToFile: "after", Context: 3,
	})
}

func readOptional(flag, file string) (map[string]any, error) {
	if file == "" {
		return nil, nil
	}
	objects, err := ReadObjects(flag, file, nil)
	if err == nil && len(objects) != 1 {
		err = fmt.Errorf("--%s: %s must hold one object, not %d", flag, file, len(objects))
	}
	if err != nil {
		return nil, err
	}
	return objects[0], nil
}

// ReadObjects reads the documents of a YAML or JSON file. Each document must be a map or empty, and at least one must
// be a map. Whole numbers stay integers. A v1 List is replaced by its items.
func ReadObjects(flag, file string, stdin io.Reader) (objects []map[string]any, err error) {
	in := stdin
	if file != "-" || stdin == nil {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	documents := yamlutil.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("--%s: reading document %d of %s, %w", flag, n, file, err)
		}
		object, err := decodeDocument(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %s, document %d %w", flag, file, n, err)
		}
		if object == nil { // the document is empty, or contains only comments
			continue
		}
		if items, ok := object["items"].([]any); ok && object["kind"] == "List" {
			for i, item := range items {
				one, ok := item.(map[string]any)
				if !ok {
					return nil, fmt.Errorf("--%s: item %d of the List in %s is not an object", flag, i+1, file)
				}
				objects = append(objects, one)
			}
			continue
		}
		objects = append(objects, object)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("--%s: %s holds no object", flag, file)
	}
	return objects, nil
}

func decodeDocument(text []byte) (map[string]any, error) {
	data := text
	// The JSON output of kubectl may contain characters that YAML does not allow.
	if !json.Valid(text) {
		var err error
		if data, err = yaml.YAMLToJSON(text); err != nil {
			return nil, fmt.Errorf("cannot be read as YAML, %w", err)
		}
	}
	var value any
	if err := utiljson.Unmarshal(data, &value); err != nil { // for example because a number is too large
		return nil, fmt.Errorf("cannot be read, %w", err)
	}
	object, isMap := value.(map[string]any)
	if !isMap && value != nil {
		return nil, errors.New("must be an object (a map), not a list or a value")
	}
	return object, nil
}
