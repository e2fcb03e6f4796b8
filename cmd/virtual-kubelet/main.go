// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Virtual-kubelet makes a provider cluster look like a node of this cluster:
// pods bound to the node run on the provider, with the Services and endpoints
// that they need.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	// The roots verify API servers with a certificate of a public CA. The images contain no files with CA certificates.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/vk/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmdutil.SpareGC(ctx)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	command := app.NewCommand(os.Getenv)
	command.SetArgs(app.Tolerate(command, os.Args[1:]))
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "virtual-kubelet:", err)
		os.Exit(1)
	}
}
