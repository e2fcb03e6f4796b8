// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe contains the program that runs in the pods of a connectivity test. It has a server that returns the
// name of its pod, and a client that sends a request to such a server. The program is part of the controller manager,
// because the image of the controller manager is available in every cluster.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/internal/redirect"
)

// Names of the subcommands, as in controller-manager connectivity serve|get.
const (
	Name  = "connectivity"
	Serve = "serve"
	Get   = "get"
)

// Port is the port of the server. Greeting is the beginning of its responses, and of the line that it logs when it starts. The
// name of the pod follows.
const (
	Port     = 8080
	Greeting = "refract connectivity test, pod "
)

// timeout limits one request between the pods of a test.
const timeout = 5 * time.Second

// NewCommand returns the subcommand of the controller manager. It is hidden in the help.
func NewCommand() *cobra.Command {
	command := &cobra.Command{Use: Name, Short: "Serve and ask, in the pods of refractctl test", Hidden: true, Args: cobra.NoArgs}
	command.AddCommand(
		&cobra.Command{
			Use: Serve, Short: fmt.Sprintf("Answer on port %d with the name of the pod", Port), Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return serveName(cmd.Context(), cmd.OutOrStdout()) },
		},
		&cobra.Command{
			Use: Get + " URL", Short: "Print what a URL answers", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return getURL(cmd.Context(), cmd.OutOrStdout(), args[0])
			},
		},
	)
	return command
}

func serveName(ctx context.Context, out io.Writer) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, Greeting+host)
	server := &http.Server{
		Addr: fmt.Sprintf(":%d", Port), ReadHeaderTimeout: timeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, Greeting+host) }),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func getURL(ctx context.Context, out io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: redirect.Transport(http.DefaultTransport)}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // an error when closing is harmless, because the body was read
	_, err = io.Copy(out, io.LimitReader(response.Body, 1<<10))
	return err
}
