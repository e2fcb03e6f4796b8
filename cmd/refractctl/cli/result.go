// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

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

// result is the output of a command that changes objects, if -o is set. It is printed at the end. docs/operators.md
// ("Scripts") describes it.
type result struct {
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
	Objects []resultObject `json:"objects,omitempty"`
	// Removed lists the objects that the command has removed or, in a dry run, would remove. Left lists the objects
	// that it has found but not removed.
	Removed []resultObject `json:"removed,omitempty"`
	Left    []resultObject `json:"left,omitempty"`
	// CredentialsExpire is the time at which the consumer's access to the provider ends, in RFC 3339.
	CredentialsExpire string         `json:"credentialsExpire,omitempty"`
	Release           *resultRelease `json:"release,omitempty"`
	// Manifest is set in a dry run of an installation, and Notes in a real one.
	Manifest string `json:"manifest,omitempty"`
	Notes    string `json:"notes,omitempty"`
	// Kubeconfig is the kubeconfig with an invitation for joining the clusters.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// resultObject identifies an object of a cluster.
type resultObject struct {
	// Cluster is the ID of the object's cluster, for commands with two clusters.
	Cluster   string `json:"cluster,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

type resultRelease struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Revision  int    `json:"revision,omitempty"`
}

type resultKey struct{}

// resultOf returns the result of the running command. It is printed only if -o is set.
func resultOf(cmd *cobra.Command) *result {
	if r, ok := cmd.Context().Value(resultKey{}).(*result); ok {
		return r
	}
	return &result{}
}

// withResult adds the flag -o to a command. If the flag is set, standard output contains only the result.
func withResult(command *cobra.Command) *cobra.Command {
	output, run := addOutput(command, "", ""), command.RunE
	command.Flags().Lookup("output").Usage = "print what was done as an object, in the format: " + strings.Join(output.acceptedFormats(), ", ")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if output.isTable() {
			return run(cmd, args)
		}
		if err := output.validateFormat(); err != nil {
			return err
		}
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		r, out := &result{Command: name, Steps: []string{}, Warnings: []string{}}, cmd.OutOrStdout()
		cmd.SetContext(context.WithValue(cmd.Context(), resultKey{}, r))
		cmd.SetErr(&recorder{result: r, out: cmd.ErrOrStderr()})
		cmd.SetOut(io.Discard)
		err := run(cmd, args)
		if r.ExitCode = exitCode(err); r.ExitCode == exitUsage {
			return err // a usage error; nothing was changed
		}
		if r.Succeeded = err == nil; err != nil {
			r.Error = err.Error()
		}
		if printErr := output.printValue(out, "Result", r); printErr != nil {
			return errors.Join(err, printErr)
		}
		return err
	}
	return command
}

// recorder is a writer that records the lines of the progress in the result, and passes them on.
type recorder struct {
	result *result
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
	writeWaiting(r.out, name, state)
}

// addObject adds an object that the command has processed successfully.
func (r *result) addObject(cluster, kind, namespace, name string) {
	r.Objects = append(r.Objects, resultObject{cluster, kind, namespace, name})
}

// addParted adds the objects that were removed and left when a peering ended.
func (r *result) addParted(removal *peering.Removal) {
	if removal == nil { // the removal has not begun
		return
	}
	for _, object := range removal.Removed {
		r.Removed = append(r.Removed, resultObject(object))
	}
	for _, object := range removal.Left {
		r.Left = append(r.Left, resultObject(object))
	}
}

// addJoined adds the objects that the command has created on the consumer.
func (r *result) addJoined(ctx context.Context, c client.Client, joined *peering.Joined) error {
	if r.Command == "" {
		return nil // the result is not printed
	}
	consumer := joined.Consumer
	key := client.ObjectKey{Namespace: wire.TenantNamespace(joined.Provider), Name: joined.VirtualNode}
	r.addObject(consumer, "Node", "", joined.VirtualNode)
	r.addObject(consumer, "VirtualNode", key.Namespace, key.Name)
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
	r.addObject(consumer, "Secret", key.Namespace, key.Name)
	config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		return fmt.Errorf("reading data.%s of Secret %s, %w", wire.KubeconfigSecretKey, key, err)
	}
	if validity := credentials.ValidityOf(config); validity.Known() {
		r.CredentialsExpire = validity.Until.UTC().Format(time.RFC3339)
	}
	return nil
}
