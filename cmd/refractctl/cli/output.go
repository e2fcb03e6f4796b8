// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

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

// outputVersion is the apiVersion of printed results that are not objects of a cluster.
const outputVersion = "cli.refract.io/v1alpha1"

// wide is the output format -o wide of commands that print tables.
const wide = "wide"

// output is the flag -o. It has the same formats as in kubectl.
type output struct {
	flags  *genericclioptions.PrintFlags
	tables []string // formats that are tables, including "" if the command prints a table by default
}

// addOutput adds the flag -o to a command. tables are the formats that the command itself prints.
func addOutput(command *cobra.Command, byDefault string, tables ...string) *output {
	o := &output{flags: genericclioptions.NewPrintFlags("").WithDefaultOutput(byDefault), tables: tables}
	o.flags.AddFlags(command)
	formats := o.acceptedFormats()
	for _, name := range []string{"allow-missing-template-keys", "show-managed-fields", "template"} {
		markFromKubectl(command.Flags().Lookup(name))
	}
	command.Flags().Lookup("output").Usage = "output format, one of: " + strings.Join(formats, ", ")
	completeFlag(command, "output", formats...)
	return o
}

// acceptedFormats lists the valid values of -o.
func (o *output) acceptedFormats() []string {
	formats := o.flags.AllowedFormats()
	for _, table := range o.tables {
		if table != "" {
			formats = append(formats, table)
		}
	}
	slices.Sort(formats)
	return formats
}

// isTable reports whether the command prints a table.
func (o *output) isTable() bool { return slices.Contains(o.tables, o.givenFormat()) }

func (o *output) givenFormat() string { return *o.flags.OutputFormat }

// validateFormat returns an error if the format is unknown or lacks its template.
func (o *output) validateFormat() error {
	if o.isTable() {
		return nil
	}
	_, err := o.newPrinter()
	return usageError(err)
}

// newPrinter returns a printer for a sequence of objects.
func (o *output) newPrinter() (printers.ResourcePrinter, error) {
	printer, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("--output is %q: use one of %s", o.givenFormat(), strings.Join(o.acceptedFormats(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	if o.givenFormat() == "yaml" {
		return newYAMLPrinter(o.flags.JSONYamlPrintFlags.ShowManagedFields), nil
	}
	return printer, nil
}

// printValue writes a value that is not an object of a cluster, with the given kind.
func (o *output) printValue(out io.Writer, kind string, value any) error {
	printer, err := o.newPrinter()
	if err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return fmt.Errorf("encoding the output, %w", err)
	}
	fields["apiVersion"], fields["kind"] = outputVersion, kind
	return printer.PrintObj(&unstructured.Unstructured{Object: fields}, unchangedWriter(out))
}

// manifestOf returns obj as a user would write it: with its kind, but without the fields that only the server sets.
func manifestOf(obj client.Object) (*unstructured.Unstructured, error) {
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
