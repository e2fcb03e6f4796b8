// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Images builds the container images of the controller manager, the virtual kubelet and the gateway without a container
// runtime. For each platform, an image has a single layer, which contains only the command and an empty /tmp. The same
// sources give the same digests on every machine.
//
//	go run ./build/images --output=dist
//	go run ./build/images --push=registry.example.com/refract --tag=0.2.0
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"github.com/refract-project/refract/charts"
)

// commands lists the commands for which images are built. An image has the name of its command.
var commands = []string{"controller-manager", "virtual-kubelet", "gateway"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		stop()
		os.Exit(1)
	}
}

// options contains the values of the flags.
type options struct {
	source, output, push, tag string
	platforms, only           []string
	plainHTTP                 bool
}

func newCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:           "images",
		Short:         "Build the images of controller-manager, virtual-kubelet and gateway, without a container runtime",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output == "" && o.push == "" {
				return errors.New("no destination for the images: set --output or --push")
			}
			for _, command := range o.only {
				digest, err := o.makeImage(cmd.Context(), command)
				if err != nil {
					return fmt.Errorf("%s: %w", command, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", command, digest)
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.source, "source", ".", "checkout to build from")
	flags.StringVarP(&o.output, "output", "o", "", "directory that gets an OCI archive of each image, NAME.oci.tar")
	flags.StringVar(&o.push, "push", "", "registry, with a path, that the images are pushed to; credentials are those of docker login")
	flags.StringVar(&o.tag, "tag", charts.AppVersion(), "tag of the images; by default the one that the chart asks for")
	flags.StringSliceVar(&o.platforms, "platforms", []string{"linux/amd64", "linux/arm64"}, "operating systems and architectures")
	flags.StringSliceVar(&o.only, "only", commands, "commands to build images of")
	flags.BoolVar(&o.plainHTTP, "plain-http", false, "push without TLS, to a registry on this machine")
	return command
}

// makeImage builds one image for all platforms, and returns its digest.
func (o *options) makeImage(ctx context.Context, command string) (string, error) {
	index, err := o.buildImage(ctx, command)
	if err != nil {
		return "", err
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	if o.output != "" {
		if err := writeArchive(filepath.Join(o.output, command+".oci.tar"), index, o.tag); err != nil {
			return "", fmt.Errorf("writing the archive, %w", err)
		}
	}
	if o.push == "" {
		return digest.String(), nil
	}
	return digest.String(), o.uploadIndex(ctx, command, index)
}

func (o *options) uploadIndex(ctx context.Context, command string, index v1.ImageIndex) error {
	var named []name.Option
	if o.plainHTTP {
		named = append(named, name.Insecure)
	}
	image, err := charts.ImageName(o.push, command)
	if err != nil {
		return fmt.Errorf("--push: %w", err)
	}
	target, err := name.NewTag(image+":"+o.tag, named...)
	if err != nil {
		return fmt.Errorf("--push=%s --tag=%s: %w", o.push, o.tag, err)
	}
	if err := remote.WriteIndex(target, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("pushing %s, %w", target, err)
	}
	return nil
}
