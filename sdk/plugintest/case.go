// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// Case is one run of a hook with its input.
type Case struct {
	Hook    host.Hook
	Object  map[string]any
	Context map[string]any
	Config  map[string]any
	// Remap maps addresses to their translations in the other cluster. If it is nil, addresses are not changed.
	Remap map[string]any
}

// Outcome is the result of a Case. Exactly one of Object, SkipReason and Err is set.
type Outcome struct {
	Object     map[string]any
	SkipReason string
	Err        error
	Warnings   []string
	Fuel       int64
	Memory     int // size of the instance's memory in bytes; it includes growth in earlier cases
}

// failure returns the text of the error that the plugin or the host reported, without the name of the plugin.
func (o Outcome) failure() string {
	if o.Err == nil {
		return ""
	}
	var refused *host.PluginFailedError
	if errors.As(o.Err, &refused) {
		return refused.Reason
	}
	return o.Err.Error()
}

func (c Case) clone() Case {
	c.Object, c.Context, c.Config = cloneMap(c.Object), cloneMap(c.Context), cloneMap(c.Config)
	return c
}

// remapIP translates an address according to Remap.
func (c Case) remapIP(ip string) (string, bool) {
	if c.Remap == nil {
		return ip, true
	}
	mapped, ok := c.Remap[ip].(string)
	return mapped, ok
}

// again returns a case that runs the hook on its own result. In this case, translated addresses are translated to
// themselves, and no restarts are added.
func (c Case) again(object map[string]any) Case {
	c.Object = object
	if c.Context != nil {
		c.Context = cloneMap(c.Context)
		delete(c.Context, "extraRestarts")
	}
	if c.Remap != nil {
		c.Remap = cloneMap(c.Remap)
		for _, mapped := range c.Remap {
			if ip, ok := mapped.(string); ok && c.Remap[ip] == nil {
				c.Remap[ip] = ip
			}
		}
	}
	return c
}

// withLostAnnotations adds annotations that are excluded from reflection to the result of a hook. The hook has removed
// them after they took effect, but they must also take effect when the hook runs on its own result.
func (c Case) withLostAnnotations(result map[string]any) map[string]any {
	patch, _ := c.Context["offloadingPatch"].(map[string]any)
	globs, _ := patch["annotationsNotReflected"].([]any)
	if len(globs) == 0 {
		return result
	}
	metadata, _ := c.Object["metadata"].(map[string]any)
	before, _ := metadata["annotations"].(map[string]any)
	result = cloneMap(result)
	metadata, _ = result["metadata"].(map[string]any)
	after, ok := metadata["annotations"].(map[string]any)
	for key, value := range before {
		filtered := slices.ContainsFunc(globs, func(g any) bool {
			glob, _ := g.(string)
			return document.Match(glob, key)
		})
		if ok && filtered && after[key] == nil {
			after[key] = value
		}
	}
	return result
}

// readCase reads the folder of a case.
func readCase(dir string) (Case, error) {
	var c Case
	for _, file := range []struct {
		name string
		into *map[string]any
	}{
		{"in.yaml", &c.Object}, {"context.yaml", &c.Context}, {"config.yaml", &c.Config}, {"remap.yaml", &c.Remap},
	} {
		text, err := os.ReadFile(filepath.Join(dir, file.name))
		if errors.Is(err, fs.ErrNotExist) && file.name != "in.yaml" {
			continue
		}
		if err == nil {
			*file.into, err = decode(text)
		}
		if err != nil {
			return Case{}, fmt.Errorf("reading %s, %w", filepath.Join(dir, file.name), err)
		}
	}
	if c.Object == nil {
		return Case{}, fmt.Errorf("reading %s, it is empty", filepath.Join(dir, "in.yaml"))
	}
	return c, c.readHook(dir)
}

func (c *Case) readHook(dir string) error {
	switch c.Context["hook"] {
	case nil, host.Outgoing.String():
		c.Hook = host.Outgoing
	case host.Incoming.String():
		c.Hook = host.Incoming
	default:
		return fmt.Errorf("reading %s, hook is outgoing or incoming, not %v", filepath.Join(dir, "context.yaml"), c.Context["hook"])
	}
	return nil
}

// readCases reads all folders of cases below dir.
func readCases(dir string) (map[string]Case, error) {
	inputs, err := filepath.Glob(filepath.Join(dir, "*", "in.yaml"))
	if err != nil {
		return nil, err
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%s has no case: make a folder in it with an in.yaml, and run the test with -update", dir)
	}
	cases := make(map[string]Case, len(inputs))
	for _, input := range inputs {
		name := filepath.Base(filepath.Dir(input))
		if cases[name], err = readCase(filepath.Dir(input)); err != nil {
			return nil, err
		}
	}
	return cases, nil
}

func joinLines(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}
