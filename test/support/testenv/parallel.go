// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"flag"
	"fmt"
	"strconv"
)

// SetParallel sets how many tests run in parallel, unless the flag -parallel is set. It is for a TestMain. The
// default of Go is one test for each CPU, which leaves CPUs idle if the tests mostly wait.
func SetParallel(tests int) {
	const name = "test.parallel"
	if !flag.Parsed() {
		flag.Parse()
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, strconv.Itoa(tests)); err != nil {
		panic(fmt.Sprintf("setting -%s: %v", name, err)) // package testing registers the flag
	}
}
