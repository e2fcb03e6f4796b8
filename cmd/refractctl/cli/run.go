// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
)

// trial are the flags of "plugin run".
type trial struct {
	object, context, config string
	hook                    string
	fuel                    int64
	diff                    bool
	output                  string
}

func newRunCommand() *cobra.Command {
	t := &trial{}
	command := &cobra.Command{
		Use:   "run FILE.wasm -f OBJECT.yaml",
		Short: "Run a plugin on one object and print what becomes of it",
		Long: "Run a plugin on one object, on the real host with its limits and its guard, and print the object, or the\n" +
			"difference with --diff. Warnings and the fuel used go to the standard error. Options in FILE.yaml beside the\n" +
			"module are used.",
		Example: "  refractctl plugin run strip.wasm -f service.yaml --config=config.yaml --diff\n" +
			"  kubectl get pod web -o yaml | refractctl plugin run pod.wasm -f -",
		Args:              oneModule,
		ValidArgsFunction: completeWasm,
		RunE:              t.run,
	}
	flags := command.Flags()
	flags.StringVarP(&t.object, "filename", "f", "", "file with the object, YAML or JSON; - is the standard input")
	flags.StringVar(&t.context, "context", "", "file with what the plugin may see of the two clusters")
	flags.StringVar(&t.config, "config", "", "file with the plugin's configuration")
	flags.StringVar(&t.hook, "hook", host.Outgoing.String(), "direction of the crossing: outgoing or incoming")
	flags.Int64Var(&t.fuel, "fuel", 0, "fuel of the call; 0 is the plugin's limit, or the default")
	flags.BoolVar(&t.diff, "diff", false, "print the difference instead of the object")
	flags.StringVarP(&t.output, "output", "o", string(asYAML), "json or yaml")
	completeFlag(command, "output", string(asJSON), string(asYAML))
	completeFlag(command, "hook", host.Outgoing.String(), host.Incoming.String())
	return command
}

func (t *trial) run(cmd *cobra.Command, args []string) (err error) {
	ctx := cmd.Context()
	hook, err := t.validate()
	if err != nil {
		return err
	}
	object, err := readObject("filename", t.object, cmd.InOrStdin())
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
	doc, outcome, err := cross(ctx, plugin.Plugin, hook, object, env)
	tell(cmd.ErrOrStderr(), outcome)
	if err != nil {
		return err
	}
	if outcome.Skipped {
		return nil
	}
	if t.diff {
		return printDiff(cmd.OutOrStdout(), cmd.ErrOrStderr(), object, doc.Value())
	}
	return format(t.output).print(cmd.OutOrStdout(), doc.Value())
}

func (t *trial) validate() (host.Hook, error) {
	if t.object == "" {
		return 0, errors.New("--filename is missing: give a file with the object, or - for the standard input")
	}
	if format(t.output) != asJSON && format(t.output) != asYAML {
		return 0, fmt.Errorf("--output is %q: use json or yaml", t.output)
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
	guard := host.Guard{}
	if hook == host.Outgoing {
		guard = host.DefaultGuard(kind)
	}
	chain, err := host.NewChain(hook, guard, plugin)
	if err != nil {
		return nil, nil, err
	}
	doc := document.New()
	doc.Reset(object)
	outcome, err := chain.Run(ctx, doc, env)
	return doc, outcome, err
}

// crossable returns the kind of the object, or says why a virtual kubelet would
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
		return "", errors.New("--filename: the object has no kind: give a whole object, with apiVersion, kind and metadata")
	case strings.HasSuffix(kind, "List"):
		return "", fmt.Errorf("--filename: this is a %s: give one object", kind)
	case !slices.Contains(manifest.Hooks, hook.String()):
		return "", fmt.Errorf("plugin %s has no hook %s: its manifest says %q", plugin.Name(), hook, manifest.Hooks)
	case !manifest.Matches(kind, group, hook):
		return "", fmt.Errorf("plugin %s is not for the kind %s: its manifest says %q", plugin.Name(), kind, manifest.Kinds)
	}
	return kind, nil
}

// tell writes what happened beside the result.
func tell(out io.Writer, outcome *host.Outcome) {
	if outcome == nil {
		return
	}
	for _, warning := range outcome.Warnings {
		fmt.Fprintf(out, "warning of %s: %s\n", warning.Plugin, warning.Message)
	}
	if outcome.Skipped {
		fmt.Fprintf(out, "skipped by %s: %s\n", outcome.Skipper, outcome.SkipReason)
	}
	for _, call := range outcome.Calls {
		fmt.Fprintf(out, "%s used %d units of fuel in %s\n", call.Plugin, call.Fuel, call.Duration)
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
	return readObject(flag, file, nil)
}

// readObject reads YAML or JSON whose root is a map; whole numbers stay whole.
func readObject(flag, file string, stdin io.Reader) (map[string]any, error) {
	var text []byte
	var err error
	if file == "-" && stdin != nil {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("--%s: %s is not YAML, %w", flag, file, err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil || object == nil {
		return nil, fmt.Errorf("--%s: %s must hold one object (a map), not a list or a value", flag, file)
	}
	return object, nil
}
