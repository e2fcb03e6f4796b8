// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"errors"
	"io"
)

// lastWord is the upgraded connection to the provider, which may have ended while the caller still writes: a command that does not
// read its input has written its output and is gone. ReverseProxy takes the first error of either direction for the end of
// both, and what the provider has sent and nobody has copied yet would be lost: the end of the output, and the exit code.
// So what cannot be written any more is dropped, and the connection ends when everything is read from it.
type lastWord struct {
	io.ReadWriteCloser
	ended bool // used by the one goroutine that writes
}

// Write implements io.Writer. It does not fail.
func (c *lastWord) Write(p []byte) (int, error) {
	if !c.ended {
		_, err := c.ReadWriteCloser.Write(p)
		c.ended = err != nil
	}
	return len(p), nil
}

// CloseWrite says that the caller will write no more, where the connection has a way to. Whether it could be said does not matter
// to who reads.
func (c *lastWord) CloseWrite() error {
	conn, ok := c.ReadWriteCloser.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	if err := conn.CloseWrite(); errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
