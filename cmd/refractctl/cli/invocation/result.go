// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/refractctl/peering"
)

// Result is the output of a command that changes objects, if -o is set. It is printed at the end. docs/operators.md
// ("Scripts") describes it.
type Result struct {
	// Command is the command without the name of the program and without flags, such as "drain virtualnode".
	Command   string `json:"command"`
	Succeeded bool   `json:"succeeded"`
	// ExitCode is the exit code of the process. If it is not 0, Error is set.
	ExitCode int    `json:"exitCode"`
	Error    string `json:"error,omitempty"`
	// Steps and Warnings are the lines of the command's progress.
	Steps    []string `json:"steps"`
	Warnings []string `json:"warnings"`
	// Objects lists the objects that the command has processed successfully.
	Objects []ResultObject `json:"objects,omitempty"`
	// Removed lists the objects that the command has removed or, in a dry run, would remove. Left lists the objects
	// that it has found but not removed.
	Removed []ResultObject `json:"removed,omitempty"`
	Left    []ResultObject `json:"left,omitempty"`
	// CredentialsExpire is the time at which the consumer's access to the provider ends, in RFC 3339.
	CredentialsExpire string         `json:"credentialsExpire,omitempty"`
	Release           *ResultRelease `json:"release,omitempty"`
	// Manifest is set in a dry run of an installation, and Notes in a real one.
	Manifest string `json:"manifest,omitempty"`
	Notes    string `json:"notes,omitempty"`
	// Kubeconfig is the kubeconfig with an invitation for joining the clusters.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// ResultObject identifies an object of a cluster.
type ResultObject struct {
	// Cluster is the ID of the object's cluster, for commands with two clusters.
	Cluster   string `json:"cluster,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// ResultRelease is the Helm release of an installation.
type ResultRelease struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Revision  int    `json:"revision,omitempty"`
}

type resultKey struct{}

// ResultOf returns the result of the running command. It is printed only if -o is set.
func ResultOf(cmd *cobra.Command) *Result {
	if r, ok := cmd.Context().Value(resultKey{}).(*Result); ok {
		return r
	}
	return &Result{}
}

// WithResult adds the flag -o to a command. If the flag is set, standard output contains only the result.
func WithResult(command *cobra.Command) *cobra.Command {
	output, run := AddOutput(command, "", ""), command.RunE
	command.Flags().Lookup("output").Usage = "print what was done as an object, in the format: " + strings.Join(output.AcceptedFormats(), ", ")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if output.IsTable() {
			return run(cmd, args)
		}
		if err := output.ValidateFormat(); err != nil {
			return err
		}
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		r, out := &Result{Command: name, Steps: []string{}, Warnings: []string{}}, cmd.OutOrStdout()
		cmd.SetContext(context.WithValue(cmd.Context(), resultKey{}, r))
		cmd.SetErr(&recorder{result: r, out: cmd.ErrOrStderr()})
		cmd.SetOut(io.Discard)
		err := run(cmd, args)
		if r.ExitCode = ExitCode(err); r.ExitCode == ExitUsage {
			return err // a usage error; nothing was changed
		}
		if r.Succeeded = err == nil; err != nil {
			r.Error = err.Error()
		}
		if printErr := output.PrintValue(out, "Result", r); printErr != nil {
			return errors.Join(err, printErr)
		}
		return err
	}
	return command
}

// recorder is a writer that records the lines of the progress in the result, and passes them on.
type recorder struct {
	result *Result
	out    io.Writer

	mu   sync.Mutex
	rest []byte
}

func (r *recorder) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, text...)
	for {
		line, rest, complete := bytes.Cut(r.rest, []byte("\n"))
		if !complete {
			return r.out.Write(text)
		}
		r.rest = rest
		r.recordLine(string(line))
	}
}

func (r *recorder) recordLine(line string) {
	if before, after, found := strings.Cut(line, "warning: "); found && (before == "" || strings.HasSuffix(before, ": ")) {
		r.result.Warnings = append(r.result.Warnings, before+after)
		return
	}
	r.result.Steps = append(r.result.Steps, line)
}

func (r *recorder) showWaiting(name, state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordLine(name + ": " + state)
	WriteWaiting(r.out, name, state)
}

// AddObject adds an object that the command has processed successfully.
func (r *Result) AddObject(cluster, kind, namespace, name string) {
	r.Objects = append(r.Objects, ResultObject{cluster, kind, namespace, name})
}

// AddParted adds the objects that were removed and left when a peering ended.
func (r *Result) AddParted(removal *peering.Removal) {
	if removal == nil { // the removal has not begun
		return
	}
	for _, object := range removal.Removed {
		r.Removed = append(r.Removed, ResultObject(object))
	}
	for _, object := range removal.Left {
		r.Left = append(r.Left, ResultObject(object))
	}
}

// AddJoined adds the objects that the command has created on the consumer.
func (r *Result) AddJoined(ctx context.Context, c client.Client, joined *peering.Joined) error {
	if r.Command == "" {
		return nil // the result is not printed
	}
	consumer := joined.Consumer
	key := client.ObjectKey{Namespace: wire.TenantNamespace(joined.Provider), Name: joined.VirtualNode}
	r.AddObject(consumer, "Node", "", joined.VirtualNode)
	r.AddObject(consumer, "VirtualNode", key.Namespace, key.Name)
	vn := &offloading.VirtualNode{}
	if err := c.Get(ctx, key, vn); err != nil {
		return fmt.Errorf("getting VirtualNode %s, %w", key, err)
	}
	if vn.Spec.KubeconfigSecretRef == nil {
		return nil
	}
	key.Name = vn.Spec.KubeconfigSecretRef.Name
	secret := &corev1.Secret{}
	if err := c.Get(ctx, key, secret); err != nil {
		return fmt.Errorf("getting Secret %s, %w", key, err)
	}
	r.AddObject(consumer, "Secret", key.Namespace, key.Name)
	config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		return fmt.Errorf("reading data.%s of Secret %s, %w", wire.KubeconfigSecretKey, key, err)
	}
	if validity := credentials.ValidityOf(config); validity.Known() {
		r.CredentialsExpire = validity.Until.UTC().Format(time.RFC3339)
	}
	return nil
}
