// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"

	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	utilexec "k8s.io/utils/exec"
)

// worker returns a kubelet of the provider. Its containers are commands on this machine, so that they have exit codes
// and notice the end of stdin.
func worker() http.Handler {
	return vkapi.PodHandler(vkapi.PodHandlerConfig{
		StreamIdleTimeout: time.Minute, StreamCreationTimeout: time.Minute,
		RunInContainer: func(ctx context.Context, _, _, _ string, command []string, streams vkapi.AttachIO) error {
			if streams.TTY() { // the first size is the initial size of the terminal, which the container prints
				// All input must be read before the connection is closed. If it was closed earlier, the connection
				// would be reset, and output could be lost on every hop, including the API server.
				if _, err := io.Copy(io.Discard, streams.Stdin()); err != nil {
					return err
				}
				size := <-streams.Resize()
				_, err := fmt.Fprintf(streams.Stdout(), "%dx%d", size.Width, size.Height)
				return err
			}
			return runCommand(ctx, command, streams)
		},
		AttachToContainer: func(_ context.Context, _, _, _ string, streams vkapi.AttachIO) error {
			_, err := io.Copy(streams.Stdout(), streams.Stdin())
			return err
		},
		GetContainerLogs: func(ctx context.Context, namespace, pod, container string, options vkapi.ContainerLogOpts) (io.ReadCloser, error) {
			if !options.Follow {
				return io.NopCloser(strings.NewReader(fmt.Sprintf("logs of %s/%s/%s, tail %d\n", namespace, pod, container, options.Tail))), nil
			}
			reader, writer := io.Pipe()
			go func() {
				fmt.Fprintln(writer, "first line")
				<-ctx.Done() // the context ends when the caller has disconnected
				writer.CloseWithError(ctx.Err())
				followersGone <- struct{}{}
			}()
			return reader, nil
		},
		PortForward: func(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
			defer stream.Close()
			fmt.Fprintf(stream, "port %d says ", port)
			line := make([]byte, 64)
			n, err := stream.Read(line)
			if err == nil {
				_, err = stream.Write(bytes.ToUpper(line[:n]))
			}
			return err
		},
	}, false)
}

// followersGone receives one value when a client that follows logs disconnects.
var followersGone = make(chan struct{}, 10)

func runCommand(ctx context.Context, command []string, streams vkapi.AttachIO) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	if streams.Stdin() != nil {
		c.Stdin = streams.Stdin()
	}
	if streams.Stdout() != nil {
		c.Stdout = streams.Stdout()
	}
	if streams.Stderr() != nil {
		c.Stderr = streams.Stderr()
	}
	var exit *exec.ExitError
	if err := c.Run(); errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	} else if err != nil {
		return err
	}
	return nil
}
