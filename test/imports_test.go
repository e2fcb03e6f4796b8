// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/refract-project/refract/"

// rule restricts the direct and indirect dependencies of the packages in a folder.
type rule struct {
	in     string   // folder of the packages
	except []string // subfolders to which the rule does not apply
	// only lists the permitted imports from outside the standard library. If it is nil, all imports are permitted.
	only []string
	// never lists dependencies that are forbidden, both directly and indirectly.
	never []string
	// permitted lists exceptions to never. They apply only on the platform of the tests.
	permitted []string
	// apart is true if the packages must not depend on each other.
	apart bool
	why   string
}

var kubernetes = []string{"k8s.io/", "sigs.k8s.io/controller-runtime"}

var rules = []rule{
	{
		in: "sdk", except: []string{"sdk/plugintest"}, only: []string{module + "sdk", "github.com/extism/go-pdk"},
		never: append([]string{module + "host"}, kubernetes...),
		// The native build of the SDK, which is used in tests of plugins, has these dependencies.
		permitted: []string{module + "host/document", module + "host/document/fieldpath", "sigs.k8s.io/json"},
		why:       "what a plugin imports must compile with TinyGo, and small",
	},
	{
		in: "plugins", only: []string{module + "plugins", module + "sdk", module + "api/wire", "github.com/extism/go-pdk"},
		never:     append([]string{module + "host", module + "sdk/plugintest"}, kubernetes...),
		permitted: []string{module + "host/document", module + "host/document/fieldpath"}, // the native build of the SDK imports these packages
		why:       "the default plugins have no privileges: what they import any author can (api/wire is names only)",
	},
	{
		in: "host", never: append([]string{module + "vk", module + "controllers", module + "api", module + "cmd"}, kubernetes...),
		why: "the host knows documents and modules, never clusters",
	},
	{
		in: "api", except: []string{"api/crds"}, only: []string{module + "api", "k8s.io/apimachinery", "k8s.io/api/", "k8s.io/utils"},
		never: []string{"k8s.io/client-go/kubernetes", module + "host", module + "vk", module + "controllers"},
		why:   "types without logic, for everybody to import",
	},
	{
		in: "api/wire", only: []string{}, never: []string{"k8s.io/"},
		why: "plugins import it: names only",
	},
	{
		in: "vk", except: []string{"vk/reflection/reflectiontest", "vk/reflection/internal/kinds/kindtest"},
		never: []string{module + "controllers", module + "cmd", module + "test/support"},
		why:   "the virtual kubelet and the controllers are different processes, in different clusters",
	},
	{
		in: "vk/reflection/internal/kinds", apart: true,
		why: "what a kind needs of another one is an interface that it declares",
	},
	{
		in: "vk/reflection/internal/clients", never: []string{module + "vk/reflection/internal/queue", module + "vk/reflection/internal/evaluation", module + "vk/reflection/internal/content"},
		why: "a call to a cluster knows neither the object nor why it is made",
	},
	{
		in: "", except: []string{"test/support/wattest"}, never: []string{module + "test/support/wattest"},
		why: "the assembler is for tests",
	},
	{
		in: "controllers", except: []string{"controllers/internal/controllertest"},
		never: []string{module + "vk", module + "cmd", module + "test/support"},
		why:   "the controllers and the virtual kubelet are different processes, in different clusters",
	},
	{
		in: "gateway", never: []string{module + "controllers", module + "vk", module + "cmd", module + "test/support",
			"sigs.k8s.io/controller-runtime", "k8s.io/client-go"},
		why: "a gateway compiles objects into a configuration: it neither reads nor writes them",
	},
	{
		in: "gateway/netstate", never: []string{module + "api", "k8s.io/"},
		why: "the configuration of a host is the same with or without Kubernetes",
	},
	{
		in: "internal", except: []string{"internal/refractctl/peeringtest"}, never: []string{module + "controllers", module + "vk", module + "cmd", module + "test/support"},
		why: "libraries know neither the processes that use them nor their tests",
	},
	{
		in: "cmd", never: []string{module + "test/support"},
		why: "what is installed contains nothing of the tests",
	},
	{
		in: "cmd/virtual-kubelet", never: []string{"testing", "helm.sh/"},
		why: "what runs in clusters contains nothing of the tests, and no installer",
	},
	{
		in: "cmd/controller-manager", never: []string{"testing", "helm.sh/"},
		why: "what runs in clusters contains nothing of the tests, and no installer",
	},
	{
		in: "cmd/gateway", never: []string{"testing", "helm.sh/"},
		why: "what runs in clusters contains nothing of the tests, and no installer",
	},
}

// listed is the output of go list for one package.
type listed struct {
	ImportPath    string
	Imports, Deps []string
}

// TestImports checks the rules, for the platform of the tests and for the platform of the plugins.
func TestImports(t *testing.T) {
	for name, env := range map[string][]string{"host": nil, "wasm": {"GOOS=wasip1", "GOARCH=wasm"}} {
		t.Run(name, func(t *testing.T) {
			patterns := []string{"../..."}
			if env != nil {
				patterns = []string{"../sdk/...", "../plugins/..."}
			}
			packages := list(t, env, patterns...)
			for _, p := range packages {
				for _, r := range rules {
					if env != nil {
						r.permitted = nil
					}
					for _, bad := range r.broken(p) {
						t.Errorf("%s depends on %s: %s", p.ImportPath, bad, r.why)
					}
				}
			}
			if len(packages) < 2 {
				t.Errorf("only %d packages found", len(packages))
			}
		})
	}
}

// TestRulesBite checks that each rule applies to existing packages, and that it finds violations.
func TestRulesBite(t *testing.T) {
	packages := list(t, nil, "../...")
	for _, r := range rules {
		if !slices.ContainsFunc(packages, r.applies) {
			t.Errorf("no package is in %s", r.in)
		}
		forbidden := slices.Clone(r.never)
		if r.apart {
			forbidden = append(forbidden, path.Join(module, r.in, "y"))
		}
		p := listed{ImportPath: path.Join(module, r.in, "x"), Deps: forbidden}
		if found := r.broken(p); len(forbidden) == 0 || !slices.Equal(found, forbidden) {
			t.Errorf("the rule of %s finds %s, want %s", r.in, found, forbidden)
		}
		p = listed{ImportPath: path.Join(module, r.in, "x"), Imports: []string{"example.org/y"}}
		if r.only != nil && len(r.broken(p)) == 0 {
			t.Errorf("the rule of %s does not find an import of something else", r.in)
		}
	}
}

func (r rule) applies(p listed) bool {
	return below(p.ImportPath, path.Join(module, r.in)) &&
		!slices.ContainsFunc(r.except, func(e string) bool { return below(p.ImportPath, module+e) })
}

// broken lists the dependencies of a package that violate the rule.
func (r rule) broken(p listed) (bad []string) {
	if !r.applies(p) {
		return nil
	}
	for _, d := range p.Deps {
		if slices.Contains(r.permitted, d) {
			continue
		}
		if slices.ContainsFunc(r.never, func(prefix string) bool { return strings.HasPrefix(d, prefix) }) || r.apart && r.isSibling(p, d) {
			bad = append(bad, d)
		}
	}
	for _, i := range p.Imports {
		first, _, _ := strings.Cut(i, "/")
		standard := !strings.Contains(first, ".")
		if r.only != nil && !standard && !slices.Contains(r.permitted, i) && !slices.ContainsFunc(r.only, func(prefix string) bool { return strings.HasPrefix(i, prefix) }) {
			bad = append(bad, i)
		}
	}
	return bad
}

// isSibling reports whether dependency is below another subfolder of the rule's folder than p.
func (r rule) isSibling(p listed, dependency string) bool {
	folder := path.Join(module, r.in) + "/"
	own, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, folder), "/")
	return strings.HasPrefix(dependency, folder) && !below(dependency, folder+own)
}

func below(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func list(t *testing.T, env []string, patterns ...string) (packages []listed) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, patterns...)...)
	cmd.Env = append(os.Environ(), env...)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing packages: %v\n%s", err, problem.String())
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
