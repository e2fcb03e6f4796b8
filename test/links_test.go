// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	markdownLink   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	markdownCode   = regexp.MustCompile("(?ms)^```.*?^```|^ +```.*?^ +```|`[^`\n]*`")
	markdownAnchor = regexp.MustCompile(`(?m)^#+ (.+)$|<a id="([^"]+)">`)
	notInAnchors   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinksOfPages checks that links between the pages of this repository lead to existing files and headings.
func TestLinksOfPages(t *testing.T) {
	pages := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		pages[path] = string(text)
		return err
	}))
	links := 0
	for page, text := range pages {
		for _, match := range markdownLink.FindAllStringSubmatch(markdownCode.ReplaceAllString(text, "code"), -1) {
			if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
				continue
			}
			links++
			if fault := deadLink(pages, page, match[1]); fault != "" {
				t.Errorf("%s links to %s: %s", strings.TrimPrefix(page, "../"), match[1], fault)
			}
		}
	}
	assert.Greater(t, links, 100)
	for target, want := range map[string]string{"README.md#documentation": "", "nowhere.md": "no such file", "README.md#nowhere": "no such heading", "../api": ""} {
		assert.Equal(t, want, deadLink(pages, "../docs/architecture.md", target), target)
	}
}

var (
	namedTest    = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)[`/]")
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// TestPagesNameTestsThatExist checks that all tests that pages mention exist. Otherwise a page might claim a property
// that is no longer tested.
func TestPagesNameTestsThatExist(t *testing.T) {
	named, exists := map[string]string{}, map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		isPage := filepath.Ext(path) == ".md"
		if err != nil || !isPage && !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range namedTest.FindAllStringSubmatch(string(text), -1) {
			if isPage {
				named[match[1]] = path
			}
		}
		for _, match := range declaredTest.FindAllStringSubmatch(string(text), -1) {
			exists[match[1]] = true
		}
		return err
	}))
	assert.Greater(t, len(named), 100)
	for test, page := range named {
		assert.True(t, exists[test], "%s names %s, which does not exist", page, test)
	}
}

// namedFolder matches a folder or a test in the last cell of a table row.
var namedFolder = regexp.MustCompile("`([a-z][a-z0-9/-]*`|(?:Test|Fuzz)[A-Z]\\w*)")

// TestSecurityNamesTestsWhereTheyAre checks that each test in the tables of docs/security.md is in the folder that
// precedes it in the table. Otherwise a reader who runs the test for a threat might run another test, or none.
func TestSecurityNamesTestsWhereTheyAre(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	tests := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells, folder := strings.Split(line, " | "), ""
		for _, match := range namedFolder.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			if !strings.HasPrefix(match[1], "Test") && !strings.HasPrefix(match[1], "Fuzz") {
				folder = strings.TrimSuffix(match[1], "`")
				continue
			}
			tests++
			assert.True(t, declaresTest(t, folder, match[1]), "docs/security.md names %s in %q", match[1], folder)
		}
	}
	assert.Greater(t, tests, 200)
}

// declaresTest reports whether the package in a folder of this repository declares the test.
func declaresTest(t *testing.T, folder, test string) bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}

// deadLink returns why a link on a page is dead, or "" if it is valid.
func deadLink(pages map[string]string, page, link string) string {
	file, anchor, _ := strings.Cut(link, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(target); err != nil {
		return "no such file"
	}
	if text, isPage := pages[target]; isPage && anchor != "" && !anchors(text)[anchor] {
		return "no such heading"
	}
	return ""
}

// anchors returns a page's link targets: the anchors that GitHub generates from headings, and explicit <a id> anchors.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range markdownAnchor.FindAllStringSubmatch(text, -1) {
		heading := strings.ToLower(notInAnchors.ReplaceAllString(strings.ReplaceAll(match[1], "`", ""), ""))
		found[strings.ReplaceAll(heading, " ", "-")] = true
		found[match[2]] = true
	}
	return found
}

// TestEveryPageIsIndexed fails if docs/README.md does not link to a page.
func TestEveryPageIsIndexed(t *testing.T) {
	index, err := os.ReadFile("../docs/README.md")
	require.NoError(t, err)
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "("+name) {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}
