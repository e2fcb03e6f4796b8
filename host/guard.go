// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"slices"
	"strings"

	"github.com/refract-project/refract/host/document"
)

// Guard is what no plugin may do to an object, whatever its manifest says. Paths are as in the ABI; `*` stands for any key
// or element.
type Guard struct {
	// Immutable paths are neither changed nor removed.
	Immutable []string
	// Unforgeable paths may be removed but not set: the engine drops them anyway.
	Unforgeable []string
	// Off are booleans that are absent or false in every result. Setting one is an error; one that the object had is
	// removed.
	Off []string
	// AllowedPaths narrow what all plugins of the chain may write. Empty = what their manifests say.
	AllowedPaths []string
}

// DefaultGuard protects what an object is and whose it is, and for pods keeps them out of the provider's host namespaces
// (Liqo: pod offloading). The kind may carry its API group: "Pod", "Ingress.networking.k8s.io".
func DefaultGuard(kind string) Guard {
	g := Guard{
		Immutable: []string{
			"apiVersion", "kind", "metadata.name", "metadata.namespace",
			"metadata.labels[offloading.liqo.io/origin]", "metadata.labels[offloading.liqo.io/destination]",
			"metadata.labels[offloading.liqo.io/nodename]",
		},
		Unforgeable: []string{
			"metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp",
			"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.ownerReferences",
			"metadata.finalizers", "metadata.managedFields", "metadata.generateName", "metadata.selfLink",
			"metadata.annotations[plugins.refract.io/applied-hash]",
		},
	}
	if k, _, _ := strings.Cut(kind, "."); k == "Pod" {
		g.Off = []string{"spec.hostNetwork", "spec.hostPID", "spec.hostIPC"}
	}
	return g
}

// guard is a Guard with the plugins' manifests, as a tree of path segments: an edit is checked on one way down.
type guard struct {
	hook    Hook
	plugins []*Plugin
	all     uint64 // plugins
	root    *rule
	off     []string
}

// maxPlugins of a chain, one bit each.
const maxPlugins = 64

// rule is one segment of the guarded paths.
type rule struct {
	key         string
	path        string // when it ends here
	any         bool   // `*`
	immutable   bool
	unforgeable bool
	chain       bool   // AllowedPaths has it
	manifests   uint64 // plugins whose manifest has it
	narrowed    uint64 // plugins whose PluginConfig.Writes has it
	children    []*rule
	free        uint64 // of the root's children: plugins that may write it and all below, which nothing protects
}

func newGuard(hook Hook, g Guard, plugins []*Plugin) (*guard, error) {
	if len(plugins) > maxPlugins {
		return nil, errors.New("a chain has at most 64 plugins")
	}
	out := &guard{hook: hook, plugins: plugins, all: 1<<len(plugins) - 1, root: &rule{}, off: g.Off}
	add := func(paths []string, mark func(*rule)) error {
		for _, p := range paths {
			if err := out.add(p, mark); err != nil {
				return err
			}
		}
		return nil
	}
	err := errors.Join(
		add(g.Immutable, func(r *rule) { r.immutable = true }),
		add(g.Unforgeable, func(r *rule) { r.unforgeable = true }),
		add(orAll(g.AllowedPaths), func(r *rule) { r.chain = true }),
		add(g.Off, func(*rule) {}),
	)
	for n, p := range plugins {
		err = errors.Join(err, add(p.manifest.Writes, func(r *rule) { r.manifests |= 1 << n }))
		writes := p.writes
		if writes == nil {
			writes = []string{"*"}
		}
		err = errors.Join(err, add(writes, func(r *rule) { r.narrowed |= 1 << n }))
	}
	out.root.setFree()
	return out, err
}

// setFree finds what most edits are, those that need no walk.
func (r *rule) setFree() {
	if slices.ContainsFunc(r.children, func(c *rule) bool { return c.any }) {
		return
	}
	for _, c := range r.children {
		if (c.chain || r.chain) && !c.protects() {
			c.free = (c.manifests | r.manifests) & (c.narrowed | r.narrowed)
		}
	}
}

// protects tells whether a rule at or below it is more than a permission.
func (r *rule) protects() bool {
	return r.immutable || r.unforgeable || slices.ContainsFunc(r.children, (*rule).protects)
}

func orAll(paths []string) []string {
	if len(paths) == 0 {
		return []string{"*"}
	}
	return paths
}

// add marks the end of a path. "*" alone is the root: everything.
func (g *guard) add(path string, mark func(*rule)) error {
	if path == "*" {
		mark(g.root)
		return nil
	}
	segments, err := document.ParsePath(path)
	if err != nil {
		return err
	}
	r := g.root
	for n, s := range segments {
		n = slices.IndexFunc(r.children, func(c *rule) bool { return c.key == s.Key })
		if n < 0 {
			r.children = append(r.children, &rule{key: s.Key, any: s.Key == "*"})
			n = len(r.children) - 1
		}
		r = r.children[n]
	}
	r.path = path
	mark(r)
	return nil
}
