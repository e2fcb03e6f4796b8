// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command virtual-kubelet makes a provider cluster appear as a node of this cluster. Pods that are bound to the node
// run on the provider, with the Services and endpoints that they need.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	// The images contain no CA certificates. With this package, the program can verify API servers whose certificate
	// was issued by a public CA.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/vk/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmdutil.SpareGC(ctx, cmdutil.MemoryShare)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	command := app.NewCommand(os.Getenv)
	command.SetArgs(app.Tolerate(command, os.Args[1:]))
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "virtual-kubelet:", err)
		os.Exit(1)
	}
}
