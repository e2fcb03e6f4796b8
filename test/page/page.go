// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package page reads the command lines of a page of the documentation, for tests that run them.
package page

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var blocks = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")

// Commands returns the lines of all code blocks without a language, in their order.
func Commands(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return commands(string(text)), nil
}

// CommandsOf returns those in the section with a heading of the second level, without what is in other sections.
func CommandsOf(path, heading string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		return nil, fmt.Errorf("%s has no section %q", path, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return commands(section), nil
}

func commands(text string) (lines []string) {
	for _, block := range blocks.FindAllStringSubmatch(text, -1) {
		if language, text := block[1], block[2]; language == "" {
			for line := range strings.Lines(strings.TrimSpace(text)) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return lines
}
