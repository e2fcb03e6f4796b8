// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Durations prints a page in Markdown that lists the durations in the Go sources of the product: the defaults of flags,
// and constants that no flag can change:
//
//	go run ./hack/durations . >docs/durations.md
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: durations FOLDER, the root of the sources")
		os.Exit(2)
	}
	found, err := readDurations(os.Args[1])
	if err == nil {
		_, err = os.Stdout.WriteString(page(found))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "durations:", err)
		os.Exit(1)
	}
}
