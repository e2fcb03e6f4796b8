// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OutputVersion is the apiVersion of printed results that are not objects of a cluster.
const OutputVersion = "cli.refract.io/v1alpha1"

// Wide is the output format -o wide of commands that print tables.
const Wide = "wide"

// Output is the flag -o. It has the same formats as in kubectl.
type Output struct {
	flags  *genericclioptions.PrintFlags
	tables []string // formats that are tables, including "" if the command prints a table by default
}

// AddOutput adds the flag -o to a command. tables are the formats that the command itself prints.
func AddOutput(command *cobra.Command, byDefault string, tables ...string) *Output {
	o := &Output{flags: genericclioptions.NewPrintFlags("").WithDefaultOutput(byDefault), tables: tables}
	o.flags.AddFlags(command)
	formats := o.AcceptedFormats()
	for _, name := range []string{"allow-missing-template-keys", "show-managed-fields", "template"} {
		markFromKubectl(command.Flags().Lookup(name))
	}
	command.Flags().Lookup("output").Usage = "output format, one of: " + strings.Join(formats, ", ")
	CompleteFlag(command, "output", formats...)
	return o
}

// AcceptedFormats lists the valid values of -o.
func (o *Output) AcceptedFormats() []string {
	formats := o.flags.AllowedFormats()
	for _, table := range o.tables {
		if table != "" {
			formats = append(formats, table)
		}
	}
	slices.Sort(formats)
	return formats
}

// IsTable reports whether the command prints a table.
func (o *Output) IsTable() bool { return slices.Contains(o.tables, o.GivenFormat()) }

// GivenFormat returns the value of -o.
func (o *Output) GivenFormat() string { return *o.flags.OutputFormat }

// ValidateFormat returns an error if the format is unknown or lacks its template.
func (o *Output) ValidateFormat() error {
	if o.IsTable() {
		return nil
	}
	_, err := o.NewPrinter()
	return UsageError(err)
}

// NewPrinter returns a printer for a sequence of objects.
func (o *Output) NewPrinter() (printers.ResourcePrinter, error) {
	printer, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("--output is %q: use one of %s", o.GivenFormat(), strings.Join(o.AcceptedFormats(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	if o.GivenFormat() == "yaml" {
		return newYAMLPrinter(o.flags.JSONYamlPrintFlags.ShowManagedFields), nil
	}
	return printer, nil
}

// PrintValue writes a value that is not an object of a cluster, with the given kind.
func (o *Output) PrintValue(out io.Writer, kind string, value any) error {
	printer, err := o.NewPrinter()
	if err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return fmt.Errorf("encoding the output, %w", err)
	}
	fields["apiVersion"], fields["kind"] = OutputVersion, kind
	return printer.PrintObj(&unstructured.Unstructured{Object: fields}, UnchangedWriter(out))
}

// ManifestOf returns obj as a user would write it: with its kind, but without the fields that only the server sets.
func ManifestOf(obj client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %s, %w", obj.GetName(), err)
	}
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return &unstructured.Unstructured{Object: content}, nil
}
