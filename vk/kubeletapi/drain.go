// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"errors"
	"io"
)

// drainingStream is an upgraded connection to the provider that delivers all of its output, even if the command ends while the caller is
// still sending input. ReverseProxy closes both directions on the first error of either, so a failed write of that input would
// cut off output that has not been copied yet, and the exit code with it. Input that can no longer be delivered is therefore
// dropped, and the stream ends once the provider's side has been read to its end.
type drainingStream struct {
	io.ReadWriteCloser
	ended bool // accessed only by the goroutine that writes
}

// Write implements io.Writer. It never fails.
func (c *drainingStream) Write(p []byte) (int, error) {
	if !c.ended {
		_, err := c.ReadWriteCloser.Write(p)
		c.ended = err != nil
	}
	return len(p), nil
}

// CloseWrite shuts down the sending side. Only a connection that does not support this is an error: any other failure must not end
// the reading side.
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
