// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow to four times what is live before it is collected. Our processes keep caches of some tens of
// megabytes and make garbage fast while objects cross: memory for fewer collections is a good trade there.
const gcPercent = 300

// SpareGC trades memory for time unless the environment variable GOGC says otherwise. Call it once, at the start.
func SpareGC() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
}
