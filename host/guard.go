// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"slices"
	"strings"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// Guard lists the edits that no plugin may make, whatever its manifest says. Paths have the syntax of the ABI. `*`
// matches any key or element, and a key that ends with `/*` matches all keys with this prefix.
type Guard struct {
	// Immutable paths cannot be set, changed or removed.
	Immutable []string
	// Unforgeable paths may be removed but not set. The reflection engine removes them in any case.
	Unforgeable []string
	// Off lists booleans that must be absent or false in every result. If a plugin sets such a boolean, the result is
	// an error. If such a boolean is already set in the object itself, the guard removes it.
	Off []string
	// KeptBy is the path of a string, such as an annotation. If its value is KeptValue, those booleans of KeptOff
	// that are set in the object stay, although they are in Off. KeptBy should be Unforgeable.
	KeptBy, KeptValue string
	KeptOff           []string
	// AllowedPaths restrict the paths that the plugins of the chain may write. If it is nil, only the manifests and
	// PluginConfig.Writes count. If it is empty, plugins may not write.
	AllowedPaths []string
}

// DefaultGuard protects the identity and ownership of an object, and, as in Liqo's pod offloading, keeps its pods out
// of the provider's host namespaces. kind contains the API group unless it is the core group: "Pod", "Deployment.apps".
// podSpecs are the paths of pod specs in objects of a custom kind, such as "spec.replicaSpecs.*.template.spec".
func DefaultGuard(kind string, podSpecs ...string) Guard {
	g := Guard{
		Immutable: []string{
			"apiVersion", "kind", "metadata.name", "metadata.namespace",
			"metadata.labels[offloading.liqo.io/*]", "metadata.annotations[offloading.liqo.io/*]",
		},
		Unforgeable: []string{
			"metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp",
			"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.ownerReferences",
			"metadata.finalizers", "metadata.managedFields", "metadata.generateName", "metadata.selfLink",
			"metadata.labels[plugins.refract.io/*]", "metadata.annotations[plugins.refract.io/*]",
		},
	}
	if own, ok := podSpecPaths[kind]; ok {
		podSpecs = append([]string{own}, podSpecs...)
	}
	for _, path := range podSpecs {
		g.Off = append(g.Off, path+".hostNetwork", path+".hostPID", path+".hostIPC")
	}
	// These fields stay if the pod's annotation requests them. The provider then decides whether they are allowed:
	// see package tenantlimits.
	if kind == "Pod" {
		g.KeptBy, g.KeptValue = "metadata.annotations[plugins.refract.io/host-namespaces]", "keep"
		g.KeptOff = []string{"spec.hostPID", "spec.hostIPC"}
	}
	return g
}

// podSpecPaths contains the path of the pod spec in each built-in kind that creates pods.
var podSpecPaths = map[string]string{
	"Pod":                   "spec",
	"PodTemplate":           "template.spec",
	"ReplicationController": "spec.template.spec",
	"Deployment.apps":       "spec.template.spec",
	"ReplicaSet.apps":       "spec.template.spec",
	"StatefulSet.apps":      "spec.template.spec",
	"DaemonSet.apps":        "spec.template.spec",
	"Job.batch":             "spec.template.spec",
	"CronJob.batch":         "spec.jobTemplate.spec.template.spec",
}

// guard combines a Guard and the plugins' manifests in a tree of path segments, so that an edit is checked by
// descending once.
type guard struct {
	hook      Hook
	plugins   []*Plugin
	root      *rule
	off       []fieldpath.Path
	keptBy    fieldpath.Path // see Guard.KeptBy
	keptValue string
	kept      []string
}

// maxPlugins is the maximum number of plugins in a chain. It is limited because each plugin has one bit of a uint64.
const maxPlugins = 64

// rule is a node of the tree: one segment of the guarded paths.
type rule struct {
	key         string
	path        fieldpath.Path // path to this node of the tree
	any         bool           // the segment is `*`
	prefix      string         // prefix of the keys that match, instead of key
	immutable   bool
	unforgeable bool
	chain       bool   // the path is listed in AllowedPaths
	manifests   uint64 // bits of the plugins whose manifests list the path in writes
	narrowed    uint64 // bits of the plugins whose PluginConfig.Writes lists the path
	children    []*rule
	// free is used in children of the root: it contains the bits of the plugins that may write the entry and everything
	// below it. It is 0 if a path at or below the entry is protected.
	free uint64
}

func newGuard(hook Hook, g Guard, plugins []*Plugin) (*guard, error) {
	if len(plugins) > maxPlugins {
		return nil, errors.New("a chain has at most 64 plugins")
	}
	out := &guard{hook: hook, plugins: plugins, root: &rule{}}
	add := func(paths []string, mark func(*rule)) error {
		for _, p := range paths {
			if err := out.addRule(p, mark); err != nil {
				return err
			}
		}
		return nil
	}
	err := errors.Join(
		add(g.Immutable, func(r *rule) { r.immutable = true }),
		add(g.Unforgeable, func(r *rule) { r.unforgeable = true }),
		add(orAll(g.AllowedPaths), func(r *rule) { r.chain = true }),
		add(g.Off, func(r *rule) { out.off = append(out.off, r.path) }),
	)
	if g.KeptBy != "" {
		path, failure := fieldpath.Parse(g.KeptBy)
		err = errors.Join(err, failure)
		out.keptBy, out.keptValue, out.kept = path, g.KeptValue, g.KeptOff
	}
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

// setFree computes the free bits. Most edits are allowed because of them, without a descent.
func (r *rule) setFree() {
	if slices.ContainsFunc(r.children, func(c *rule) bool { return c.any || c.prefix != "" }) {
		return
	}
	for _, c := range r.children {
		if (c.chain || r.chain) && !c.protectsAny() {
			c.free = (c.manifests | r.manifests) & (c.narrowed | r.narrowed)
		}
	}
}

// protectsAny reports whether a rule at or below r forbids edits.
func (r *rule) protectsAny() bool {
	return r.immutable || r.unforgeable || slices.ContainsFunc(r.children, (*rule).protectsAny)
}

func orAll(paths []string) []string {
	if paths == nil {
		return []string{"*"}
	}
	return paths
}

// addRule calls mark for the rule at the end of a path, which is created if it is missing. The path "*" is the root.
func (g *guard) addRule(path string, mark func(*rule)) error {
	if path == "*" {
		mark(g.root)
		return nil
	}
	segments, err := fieldpath.Parse(path)
	if err != nil {
		return err
	}
	r := g.root
	for n, s := range segments {
		n = slices.IndexFunc(r.children, func(c *rule) bool { return c.key == s.Key })
		if n < 0 {
			c := &rule{key: s.Key, any: s.Key == "*", path: append(slices.Clone(r.path), s)}
			if prefix, ok := strings.CutSuffix(s.Key, "/*"); ok {
				c.prefix = prefix + "/"
			}
			r.children = append(r.children, c)
			n = len(r.children) - 1
		}
		r = r.children[n]
	}
	mark(r)
	return nil
}
