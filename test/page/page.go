// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package page reads the command lines in a documentation page, for tests that run them.
package page

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var blocks = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")

// Commands returns the lines of all code blocks without a language, in the order of the page.
func Commands(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return lines(string(text), ""), nil
}

// Variants returns the lines of all shell code blocks, in the order of the page. They are alternatives or additions to
// the lines that Commands returns.
func Variants(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return lines(string(text), "sh"), nil
}

// CommandsOf returns the lines of the code blocks without a language in the section with the given second-level
// heading.
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
	return lines(section, ""), nil
}

func lines(text, language string) (all []string) {
	for _, block := range blocks.FindAllStringSubmatch(text, -1) {
		if block[1] != language {
			continue
		}
		for line := range strings.Lines(strings.TrimSpace(block[2])) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}
