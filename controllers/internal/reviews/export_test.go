// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reviews

import "time"

// NewHTTPServer exports newHTTPServer for the tests of package reviews_test.
var NewHTTPServer = newHTTPServer

// SetShutdownTimeout changes the shutdown timeout of a server.
func (s *Server) SetShutdownTimeout(timeout time.Duration) { s.shutdownTimeout = timeout }
