// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command gateway carries packets between the pods of two clusters. "gateway run" runs in the gateway pod of each
// peering, and "gateway agent" runs on each node.
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

	"github.com/refract-project/refract/cmd/gateway/app"
	"github.com/refract-project/refract/internal/cmdutil"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmdutil.SpareGC(ctx, cmdutil.GatewayMemoryShare)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := app.NewCommand(os.Getenv).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		stop()
		os.Exit(1)
	}
}
