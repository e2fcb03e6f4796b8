// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const layersPath = module + "vk/reflection/internal/"

// packageName matches packages in the table of layers. Types and files do not match, because they contain capital
// letters or dots.
var packageName = regexp.MustCompile("`([a-z]+)(?:/\\*)?`")

// TestLayersOfReflection checks that the packages of the reflection engine depend only on lower layers, according to
// docs/architecture.md.
func TestLayersOfReflection(t *testing.T) {
	layers := readLayers(t)
	unused := maps.Clone(layers)
	for _, p := range list(t, nil, "../vk/reflection/internal/...") {
		name := layerName(p.ImportPath)
		if _, ok := layers[name]; !ok {
			t.Errorf("package %s is in no layer of docs/architecture.md", name)
		}
		delete(unused, name)
		for _, d := range violations(layers, p) {
			t.Errorf("%s depends on %s, which is not in a lower layer of docs/architecture.md", p.ImportPath, d)
		}
	}
	for name := range unused {
		t.Errorf("the layers of docs/architecture.md have %s, which is no package", name)
	}
}

// TestLayersBite checks that dependencies within a layer or on higher layers are found, and that permitted dependencies
// are not.
func TestLayersBite(t *testing.T) {
	layers := map[string]int{"kinds": 0, "copies": 1, "objects": 1, "raw": 2}
	for _, c := range []struct {
		of, on string
		found  bool
	}{
		{"copies", "objects", true}, {"raw", "copies", true}, {"copies", "kinds/pod", true}, {"kinds/pod", "unknown", true},
		{"copies", "raw", false}, {"kinds/pod", "raw", false}, {"kinds/pod", "kinds/pod/inner", false}, {"copies", "copies/inner", false},
	} {
		p := listed{ImportPath: layersPath + c.of, Deps: []string{"fmt", module + "host", layersPath + c.on}}
		if found := violations(layers, p); slices.Contains(found, layersPath+c.on) != c.found || len(found) > 1 {
			t.Errorf("a dependency of %s on %s: found %s, want %v", c.of, c.on, found, c.found)
		}
	}
}

// readLayers returns the number of each package's row in the table of layers, counted from the top.
func readLayers(t *testing.T) map[string]int {
	t.Helper()
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Layers of reflection\n")
	_, rows, _ := strings.Cut(section, "|---|---|\n")
	rows, _, _ = strings.Cut(rows, "\n\n")
	layers := map[string]int{}
	for line, row := range strings.Split(rows, "\n") {
		for _, match := range packageName.FindAllStringSubmatch(row, -1) {
			if _, ok := layers[match[1]]; ok {
				t.Errorf("the layers of docs/architecture.md have %s twice", match[1])
			}
			layers[match[1]] = line
		}
	}
	return layers
}

// layerName returns a package's name in the table: the name of its folder below vk/reflection/internal.
func layerName(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, layersPath), "/")
	return name
}

// violations returns the dependencies of a package that are not in a lower layer. If packages are in the same folder of
// a layer, they may depend on each other.
func violations(layers map[string]int, p listed) (bad []string) {
	own := layerName(p.ImportPath)
	for _, d := range p.Deps {
		if !strings.HasPrefix(d, layersPath) || layerName(d) == own {
			continue
		}
		if line, ok := layers[layerName(d)]; !ok || line <= layers[own] {
			bad = append(bad, d)
		}
	}
	return bad
}
