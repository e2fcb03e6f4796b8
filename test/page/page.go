// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package page reads the command lines of a page of the documentation, for tests that run them.
package page

import (
	"os"
	"regexp"
	"strings"
)

var blocks = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// Commands returns the lines of all code blocks without a language, in their order.
func Commands(path string) ([]string, error) { return lines(path, "") }

// Variants returns the lines of all code blocks of a shell, in their order: what can be done instead of, or besides, what Commands has.
func Variants(path string) ([]string, error) { return lines(path, "sh") }

func lines(path, language string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
		if block[1] == language {
			lines = append(lines, strings.Split(strings.TrimSpace(block[2]), "\n")...)
		}
	}
	return lines, nil
}
