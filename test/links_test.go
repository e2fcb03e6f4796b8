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

// TestLinksOfPages follows the links between pages of this repository, to files and to headings.
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

// deadLink returns the reason why a link of a page is dead, or "" if it is not.
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

// anchors returns the anchors of a page, as GitHub generates them from its headings.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range markdownAnchor.FindAllStringSubmatch(text, -1) {
		heading := strings.ToLower(notInAnchors.ReplaceAllString(strings.ReplaceAll(match[1], "`", ""), ""))
		found[strings.ReplaceAll(heading, " ", "-")] = true
		found[match[2]] = true
	}
	return found
}

// TestEveryPageIsIndexed fails for a page without a link in docs/README.md.
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
