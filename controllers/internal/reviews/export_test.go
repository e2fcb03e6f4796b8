// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reviews

// NewHTTPServer exports newHTTPServer for the tests of package reviews_test.
var NewHTTPServer = newHTTPServer
