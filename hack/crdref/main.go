// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Crdref prints the reference of the custom resources in Markdown, generated from their Go types:
//
//	go run ./hack/crdref api >docs/crds.md
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdref FOLDER, such as api")
		os.Exit(2)
	}
	kinds, err := readKinds(os.Args[1])
	if err == nil {
		_, err = os.Stdout.WriteString(reference(kinds))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crdref:", err)
		os.Exit(1)
	}
}
