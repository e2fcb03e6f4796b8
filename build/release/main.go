// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Release creates the files of a release, and pushes the images and the chart:
//
//	go run ./build/release --output=dist --push=registry.example.com/refract
//
// docs/releasing.md describes the release process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/charts"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// release contains the settings of a run.
type release struct {
	source, output, push string
	platforms, images    []string
	plainHTTP, snapshot  bool

	version  string
	progress io.Writer
}

func newCommand() *cobra.Command {
	r := &release{version: charts.AppVersion()}
	command := &cobra.Command{
		Use:           "release",
		Short:         "Make the images, the chart, the binaries, the plugin modules, the SBOMs and the checksums of a release",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.progress = cmd.ErrOrStderr()
			return r.makeRelease(cmd.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&r.source, "source", ".", "checkout to build from")
	flags.StringVarP(&r.output, "output", "o", "dist", "directory for the files; it must be empty or missing")
	flags.StringVar(&r.push, "push", "", "registry, with a path, for the images and the chart; credentials are those of docker login")
	flags.StringSliceVar(&r.platforms, "platforms", []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}, "operating systems and architectures of refractctl")
	flags.StringSliceVar(&r.images, "image-platforms", []string{"linux/amd64", "linux/arm64"}, "operating systems and architectures of the images")
	flags.BoolVar(&r.plainHTTP, "plain-http", false, "push without TLS, to a registry on this machine")
	flags.BoolVar(&r.snapshot, "snapshot", false, "do not require a tagged commit, a clean checkout and a section of the changelog")
	return command
}

// makeRelease creates all files of the release. The images are pushed after the files that do not depend on them, and
// the chart is pushed last.
func (r *release) makeRelease(ctx context.Context) error {
	if r.snapshot && r.push != "" && !r.plainHTTP {
		return errors.New("--snapshot: only the files of a release are pushed, since a push overwrites the images of that version; to try it, push to a registry on this machine with --plain-http")
	}
	if !r.snapshot {
		if err := r.checkVersion(ctx); err != nil {
			return err
		}
	}
	if err := r.prepareOutput(); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"refractctl", r.packBinaries},
		{"plugin modules", r.packPlugins},
		{"chart", r.packChart},
		{"SBOMs", r.writeSBOMs},
		{"images", r.makeImages},
		{"checksums", r.writeChecksums},
		{"push of the chart", r.pushChart},
	} {
		fmt.Fprintf(r.progress, "%s\n", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// prepareOutput creates the output directory. An existing directory must be empty, so that SHA256SUMS does not contain
// files of an earlier release.
func (r *release) prepareOutput() error {
	if err := os.MkdirAll(r.output, 0o755); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	entries, err := os.ReadDir(r.output)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("--output=%s is not empty: remove it, or name another directory", r.output)
	}
	return nil
}

// filePath returns the path of a file in the output directory.
func (r *release) filePath(name string) string { return filepath.Join(r.output, name) }

// errNoPlugins is returned if the checkout has no compiled plugin modules.
var errNoPlugins = errors.New("the checkout has no plugins/NAME/NAME.wasm: run make plugins")
