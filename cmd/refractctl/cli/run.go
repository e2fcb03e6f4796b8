// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/printable"
)

// trial are the flags of "plugin run".
type trial struct {
	object, context, config string
	hook                    string
	fuel                    int64
	diff                    bool
	output                  *output
}

func newRunCommand() *cobra.Command {
	t := &trial{}
	command := &cobra.Command{
		Use:   "run FILE.wasm -f OBJECTS.yaml",
		Short: "Run a plugin on the objects of a file and print the results",
		Long: "Run a plugin on each object of a file, on the real host with its limits and its guard, and print the objects, or\n" +
			"the differences with --diff. Warnings and the fuel used go to the standard error. Options in FILE.yaml beside the\n" +
			"module are used.",
		Example: "  refractctl plugin run strip.wasm -f service.yaml --config=config.yaml --diff\n" +
			"  kubectl get pod web -o yaml | refractctl plugin run pod.wasm -f -",
		Args:              oneModule,
		ValidArgsFunction: completeWasm,
		RunE:              t.run,
	}
	flags := command.Flags()
	flags.StringVarP(&t.object, "filename", "f", "", "file with one or more objects, YAML or JSON; - is the standard input")
	flags.StringVar(&t.context, "context", "", "file with the plugin's context: IDs, namespaces and settings of the two clusters")
	flags.StringVar(&t.config, "config", "", "file with the plugin's configuration")
	flags.StringVar(&t.hook, "hook", host.Outgoing.String(), "hook to run: outgoing or incoming")
	flags.Int64Var(&t.fuel, "fuel", 0, "fuel of the call; 0 is the plugin's limit, or the default")
	flags.BoolVar(&t.diff, "diff", false, "print the difference instead of the object")
	t.output = addOutput(command, "yaml")
	completeFlag(command, "hook", host.Outgoing.String(), host.Incoming.String())
	return command
}

func (t *trial) run(cmd *cobra.Command, args []string) (err error) {
	ctx := cmd.Context()
	hook, err := t.validate()
	if err != nil {
		return usage(err)
	}
	objects, err := readObjects("filename", t.object, cmd.InOrStdin())
	if err != nil {
		return err
	}
	env, config := &host.Env{Measure: true, RemapIP: func(ip string) (string, bool) { return ip, true }}, map[string]any(nil)
	if env.Context, err = readOptional("context", t.context); err != nil {
		return err
	}
	if config, err = readOptional("config", t.config); err != nil {
		return err
	}
	plugin, err := load(ctx, args[0], func(o *source.Options) {
		if config != nil {
			o.Config = config
		}
		if t.fuel > 0 {
			o.Limits.Fuel = t.fuel
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plugin.close(ctx)) }()
	printer, err := t.output.printer()
	if err != nil {
		return err
	}
	for n, object := range objects {
		if oneErr := t.one(cmd, plugin.Plugin, hook, object, env, printer); oneErr != nil {
			if len(objects) > 1 {
				oneErr = fmt.Errorf("object %d of %d (%s), %w", n+1, len(objects), nameOf(object), oneErr)
			}
			err = errors.Join(err, oneErr)
		}
	}
	return err
}

// one runs the plugin on one object and prints what became of it, as a further document behind those written before.
func (t *trial) one(cmd *cobra.Command, plugin *host.Plugin, hook host.Hook, object map[string]any, env *host.Env, printer printers.ResourcePrinter) error {
	doc, outcome, err := cross(cmd.Context(), plugin, hook, object, env)
	printOutcome(cmd.ErrOrStderr(), outcome)
	if err != nil || outcome.Skipped {
		return err
	}
	if t.diff {
		return printDiff(exactly(cmd.OutOrStdout()), cmd.ErrOrStderr(), object, doc.Value())
	}
	return printer.PrintObj(&unstructured.Unstructured{Object: doc.Value()}, exactly(cmd.OutOrStdout()))
}

// nameOf an object, as kubectl writes it.
func nameOf(object map[string]any) string {
	kind, _ := object["kind"].(string)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return strings.ToLower(kind) + "/" + name
}

func (t *trial) validate() (host.Hook, error) {
	if t.object == "" {
		return 0, errors.New("--filename is missing: set it to a file with the object, or - for standard input")
	}
	if err := t.output.validate(); err != nil {
		return 0, err
	}
	if t.fuel < 0 {
		return 0, fmt.Errorf("--fuel is %d: use a positive amount, or 0 for the plugin's limit", t.fuel)
	}
	for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
		if t.hook == hook.String() {
			return hook, nil
		}
	}
	return 0, fmt.Errorf("--hook is %q: use outgoing or incoming", t.hook)
}

// cross runs the plugin with the guard that the engine would put behind it.
func cross(ctx context.Context, plugin *host.Plugin, hook host.Hook, object map[string]any, env *host.Env) (*document.Document, *host.Outcome, error) {
	kind, err := crossable(plugin, hook, object)
	if err != nil {
		return nil, nil, err
	}
	chain, err := host.NewChain(hook, host.DefaultGuard(kind), plugin)
	if err != nil {
		return nil, nil, err
	}
	doc := document.New()
	doc.Reset(object)
	outcome, err := chain.Run(ctx, doc, env)
	return doc, outcome, err
}

// crossable returns the kind of the object with its API group, or says why a virtual kubelet would
// not run this plugin on it.
func crossable(plugin *host.Plugin, hook host.Hook, object map[string]any) (string, error) {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group = ""
	}
	manifest := plugin.Manifest()
	switch {
	case kind == "":
		return "", errors.New("--filename: the object has no kind: use a whole object, with apiVersion, kind and metadata")
	case !slices.Contains(manifest.Hooks, hook.String()):
		return "", fmt.Errorf("plugin %s has no hook %s: its manifest says %q", plugin.Name(), hook, manifest.Hooks)
	case !manifest.Matches(kind, group, hook):
		return "", fmt.Errorf("plugin %s is not for the kind %s: its manifest says %q", plugin.Name(), kind, manifest.Kinds)
	}
	if group != "" {
		kind += "." + group
	}
	return kind, nil
}

// printOutcome writes what happened beside the result.
func printOutcome(out io.Writer, outcome *host.Outcome) {
	if outcome == nil {
		return
	}
	for _, warning := range outcome.Warnings {
		fmt.Fprintf(out, "warning of %s: %s\n", printable.Line(cmp.Or(warning.Plugin, "the guard")), printable.Line(warning.Message))
	}
	if outcome.Skipped {
		fmt.Fprintf(out, "skipped by %s: %s\n", printable.Line(outcome.Skipper), printable.Line(outcome.SkipReason))
	}
	for _, call := range outcome.Calls {
		fmt.Fprintf(out, "%s used %d units of fuel in %s\n", printable.Line(call.Plugin), call.Fuel, call.Duration)
	}
}

func printDiff(out, progress io.Writer, before, after map[string]any) error {
	a, err := yaml.Marshal(before)
	if err != nil {
		return err
	}
	b, err := yaml.Marshal(after)
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
	objects, err := readObjects(flag, file, nil)
	if err == nil && len(objects) != 1 {
		err = fmt.Errorf("--%s: %s must hold one object, not %d", flag, file, len(objects))
	}
	if err != nil {
		return nil, err
	}
	return objects[0], nil
}

// readObjects reads the documents of a file, YAML or JSON, each of which is a map; whole numbers stay whole. A v1 List
// stands for its items.
func readObjects(flag, file string, stdin io.Reader) (objects []map[string]any, err error) {
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
		if object == nil { // nothing between two separators, or comments alone
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
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("is not YAML, %w", err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		return nil, errors.New("must be an object (a map), not a list or a value")
	}
	return object, nil
}
