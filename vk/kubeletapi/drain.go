// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"errors"
	"io"
)

// drainingStream is an upgraded connection to the provider that delivers all of its output, even if the command ends
// while the caller is still sending input. ReverseProxy closes both directions after the first error in one direction.
// A failed write of input would therefore cut off the remaining output and the exit code. To avoid this, input that can
// no longer be delivered is dropped, and the stream ends when all output of the provider has been read.
type drainingStream struct {
	io.ReadWriteCloser
	ended bool // accessed only by the goroutine that calls Write
}

// Write implements io.Writer. It never fails: input that cannot be delivered is dropped.
func (c *drainingStream) Write(p []byte) (int, error) {
	if !c.ended {
		_, err := c.ReadWriteCloser.Write(p)
		c.ended = err != nil
	}
	return len(p), nil
}

// CloseWrite shuts down the sending side of the connection. It fails only if the connection cannot be half closed.
// Other errors are ignored, because they must not end the reading side.
func (c *drainingStream) CloseWrite() error {
	conn, ok := c.ReadWriteCloser.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	if err := conn.CloseWrite(); errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
