// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/plugin"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/internal/pluginsource"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/wattest"
)

var cluster = controllertest.Cluster{ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &cluster)) }

const installation = metav1.NamespaceDefault

// start starts a manager that has only the permissions that the chart grants.
func start(t *testing.T, change ...func(*plugin.Options)) *controllertest.Manager {
	t.Helper()
	manager := rbac.Manager{Namespace: installation, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, cluster.Grant(t.Context(), manager.Plugins()...))
	return cluster.StartManager(t, func(o *controllers.Options) {
		o.Installation = installation
		o.Plugins = plugin.Options{Enabled: true, Sources: pluginsource.Options{StallTimeout: 20 * time.Second}}
		for _, apply := range change {
			apply(&o.Plugins)
		}
	})
}

// manifest is the manifest of a module for Services.
const manifest = `{"name":"m","version":"1.2.3","kinds":["Service"],"hooks":["outgoing"],"writes":["metadata.labels"],` +
	`"configSchema":{"type":"object","properties":{"size":{"type":"integer"}},"additionalProperties":false}}`

const (
	hook      = `(func (export "outgoing") (result i32) (i32.const 0))`
	unlimited = `(func (export "_initialize") (loop (br 0)))`
	trapping  = `(func (export "_initialize") unreachable)`
)

// assemble returns a module with a manifest, imports and further fields.
func assemble(t *testing.T, manifest, imports, fields string) []byte {
	t.Helper()
	wasm, err := wattest.Assemble(wattest.Plugin(manifest, imports, fields))
	require.NoError(t, err)
	return wasm
}

// configMap creates or updates a ConfigMap with a module.
func configMap(t *testing.T, name string, wasm []byte) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: name}, BinaryData: map[string][]byte{"m.wasm": wasm}}
	if cluster.Client.Create(t.Context(), object) != nil {
		require.NoError(t, cluster.Client.Update(t.Context(), object))
	}
}

// declare creates a plugin whose module is in the ConfigMap of its name.
func declare(t *testing.T, wasm []byte, change func(*plugins.ReflectionPluginSpec)) *plugins.ReflectionPlugin {
	t.Helper()
	name := fmt.Sprintf("p%d", rand.Uint32())
	p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Kinds = []string{"Service"}
	p.Spec.Source.ConfigMap = &plugins.ConfigMapSource{Name: name, Key: "m.wasm"}
	p.Spec.Rollout.Strategy = plugins.ImmediateRollout
	if change != nil {
		change(&p.Spec)
	}
	if wasm != nil {
		configMap(t, name, wasm)
	}
	cluster.Create(t, p)
	t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), p) })
	return p
}

// await waits until a condition of the plugin has a status and a reason.
func await(t *testing.T, p *plugins.ReflectionPlugin, kind string, status metav1.ConditionStatus, reason string) *plugins.ReflectionPlugin {
	t.Helper()
	now := &plugins.ReflectionPlugin{}
	controllertest.Eventually(t, fmt.Sprintf("%s=%s/%s", kind, status, reason), func() error {
		if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(p), now); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(now.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason || now.Status.ObservedGeneration != now.Generation || c.ObservedGeneration != now.Generation {
			return fmt.Errorf("its conditions are %+v", now.Status.Conditions)
		}
		return nil
	})
	return now
}

// message returns the message of a condition.
func message(p *plugins.ReflectionPlugin, kind string) string {
	if c := apimeta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

func modulesOf(t *testing.T, digest string) int {
	t.Helper()
	list := &plugins.PluginModuleList{}
	require.NoError(t, cluster.Client.List(t.Context(), list))
	return len(slices.DeleteFunc(list.Items, func(m plugins.PluginModule) bool { return m.Spec.SHA256 != digest }))
}

// reconciliations returns how often plugins were reconciled in this process.
func reconciliations(t *testing.T) (n float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "controller" && l.GetValue() == "plugin" }) {
				n += metric.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestAModuleIsStoredAndFollowed checks that a module in a ConfigMap becomes a revision with a stored module, that the
// next module replaces it, and that nothing is written while nothing changes.
func TestAModuleIsStoredAndFollowed(t *testing.T) {
	manager := start(t, func(o *plugin.Options) { o.Recheck = 100 * time.Millisecond })
	first := assemble(t, manifest, "", hook)
	p := declare(t, first, func(s *plugins.ReflectionPluginSpec) {
		s.Config = &runtime.RawExtension{Raw: []byte(`{"size": 9007199254740993}`)}
		s.Writes = []string{"metadata.labels.team"}
	})
	p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	assert.Equal(t, "1.2.3", p.Status.Version)
	revision := &plugins.PluginRevision{}
	cluster.Get(t, revision, "", p.Status.ActiveRevision)
	assert.Equal(t, pluginsource.Digest(first), revision.Spec.SHA256)
	assert.Equal(t, "configMap default/"+p.Name+"/m.wasm", revision.Spec.Source)
	assert.JSONEq(t, `{"size": 9007199254740993}`, string(revision.Spec.Config.Raw))
	assert.Equal(t, []string{"metadata.labels"}, revision.Spec.Manifest.Writes)
	assert.EqualValues(t, 1, revision.Spec.Parts)
	assert.Equal(t, 1, modulesOf(t, revision.Spec.SHA256))

	// Further reconciliations without a change must not write anything.
	before, reconciled := len(manager.Writes.About("/plugins.refract.io/")), reconciliations(t)
	controllertest.Eventually(t, "ten more reconciliations", func() error {
		if n := reconciliations(t) - reconciled; n < 10 {
			return fmt.Errorf("there were %v", n)
		}
		return nil
	})
	assert.Len(t, manager.Writes.About("/plugins.refract.io/"), before, "writes of an idle plugin")
	idle := &plugins.ReflectionPlugin{}
	cluster.Get(t, idle, "", p.Name)
	assert.Equal(t, p.ResourceVersion, idle.ResourceVersion)

	configMap(t, p.Name, assemble(t, manifest, "", hook+`(func (export "another"))`))
	controllertest.Eventually(t, "the new module to be active", func() error {
		now := &plugins.ReflectionPlugin{}
		cluster.Get(t, now, "", p.Name)
		if now.Status.ActiveRevision == p.Status.ActiveRevision || now.Status.PreviousRevision != p.Status.ActiveRevision {
			return fmt.Errorf("active is %q, previous %q", now.Status.ActiveRevision, now.Status.PreviousRevision)
		}
		return nil
	})

	// A source that fails leaves the active revision as it is.
	require.NoError(t, cluster.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: p.Name}}))
	now := await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, "NotFound")
	assert.Contains(t, message(now, plugins.FetchedCondition), "next try at")
	assert.NotEmpty(t, now.Status.ActiveRevision)
	assert.Equal(t, "1.2.3", now.Status.Version)
	cluster.AwaitEvent(t, installation, plugins.ReflectionPluginKind, p.Name, "NotFound")

	// spec.revision must have an effect even while the source is missing.
	cluster.Patch(t, now, fmt.Sprintf(`{"spec":{"revision":%q}}`, now.Status.PreviousRevision))
	controllertest.Eventually(t, "the rollback", func() error {
		rolledBack := &plugins.ReflectionPlugin{}
		cluster.Get(t, rolledBack, "", p.Name)
		if rolledBack.Status.ActiveRevision != now.Status.PreviousRevision {
			return fmt.Errorf("active is %q", rolledBack.Status.ActiveRevision)
		}
		return nil
	})

	// When the plugin is deleted, its stored modules must be deleted, too.
	cluster.Delete(t, now)
	controllertest.Eventually(t, "the modules to be gone", func() error {
		if n := modulesOf(t, revision.Spec.SHA256); n > 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// TestWhatIsNotAccepted checks that the condition Accepted describes the problem of a module or of its settings, with
// the path or the name of the invalid part, and the remedy.
func TestWhatIsNotAccepted(t *testing.T) {
	start(t)
	skipping := strings.Replace(manifest, `"writes"`, `"capabilities":["skip"],"writes"`, 1)
	for name, c := range map[string]struct {
		wasm    []byte
		change  func(*plugins.ReflectionPluginSpec)
		reason  string
		message string
		remedy  string
	}{
		"traps": {wasm: assemble(t, manifest, "", hook+trapping), reason: "StartFailed", message: "start", remedy: "before main"},
		"loops": {wasm: assemble(t, manifest, "", hook+unlimited), reason: "StartFailed", message: "fuel", remedy: "raise spec.limits"},
		"imports": {
			wasm:   assemble(t, manifest, `(import "env" "steal" (func))`, hook),
			reason: "UnknownImports", message: "steal", remedy: "with the SDK of this version of Refract",
		},
		"a long name of an import": {
			wasm:   assemble(t, manifest, `(import "env" "`+strings.Repeat("steal", 180)+`" (func))`, hook),
			reason: "UnknownImports", message: "steal", remedy: "with the SDK of this version of Refract",
		},
		"wrong ABI": {wasm: func() []byte {
			wasm, err := wattest.Assemble(strings.Replace(wattest.Plugin(manifest, "", hook), "(i32.const 1))", "(i32.const 99))", 1))
			require.NoError(t, err)
			return wasm
		}(), reason: "WrongABIVersion", message: "99", remedy: "with the SDK of this version of Refract"},
		"no module": {wasm: []byte("a text"), reason: "InvalidModule", message: "format", remedy: "publish a WebAssembly module"},
		"skip": {
			wasm:   assemble(t, skipping, "", hook),
			reason: "CapabilityNotGranted", message: "spec.capabilities", remedy: "add it if you agree",
		},
		"config": {
			wasm:   assemble(t, manifest, "", hook),
			reason: "InvalidConfig", message: "size", remedy: "correct the field, refractctl plugin inspect shows the schema",
			change: func(s *plugins.ReflectionPluginSpec) {
				s.Config = &runtime.RawExtension{Raw: []byte(`{"size": "large"}`)}
			},
		},
		"writes": {
			wasm:   assemble(t, manifest, "", hook),
			reason: "WritesNotDeclared", message: "spec.writes: the module does not write spec.type", remedy: "remove the path",
			change: func(s *plugins.ReflectionPluginSpec) { s.Writes = []string{"metadata.labels", "spec.type"} },
		},
		"kind": {
			wasm: assemble(t, manifest, "", hook), reason: "KindNotDeclared", message: "ConfigMap", remedy: "remove the kind",
			change: func(s *plugins.ReflectionPluginSpec) { s.Kinds = []string{"Service", "ConfigMap"} },
		},
		"all kinds, which do not include Secrets": {
			wasm:   assemble(t, strings.Replace(manifest, "Service", "Secret", 1), "", hook),
			reason: "KindNotDeclared", message: "spec.kinds: * does not include Secrets", remedy: "name Secret instead",
			change: func(s *plugins.ReflectionPluginSpec) { s.Kinds = []string{"*"} },
		},
		"all kinds of a module for one that nobody serves": {
			wasm:   assemble(t, strings.Replace(manifest, "Service", "Widget.example.com", 1), "", hook),
			reason: "UnknownKind", message: "does not serve Widget.example.com", remedy: "install its CustomResourceDefinition",
			change: func(s *plugins.ReflectionPluginSpec) { s.Kinds = []string{"*"} },
		},
		"kind that nobody serves": {
			wasm:   assemble(t, strings.Replace(manifest, "Service", "Widget.example.com", 1), "", hook),
			reason: "UnknownKind", message: "Widget.example.com", remedy: "install its CustomResourceDefinition",
			change: func(s *plugins.ReflectionPluginSpec) { s.Kinds = []string{"Widget.example.com"} },
		},
		"replaces": {
			wasm:   assemble(t, manifest, "", hook),
			reason: "UnknownDefaultPlugin", message: `spec.replaces: there is no default plugin "services"`, remedy: "or remove the field",
			change: func(s *plugins.ReflectionPluginSpec) { s.Replaces = "services" },
		},
		"manifest": {
			wasm:   assemble(t, strings.Replace(manifest, `"name":"m",`, "", 1), "", hook),
			reason: "InvalidManifest", message: "it has no name", remedy: "correct the manifest",
		},
		"exports": {
			wasm: func() []byte {
				wasm, err := wattest.Assemble(`(module (func (export "other")))`)
				require.NoError(t, err)
				return wasm
			}(), reason: "InvalidExports", message: "exports neither", remedy: "as a reactor",
		},
		"size": {
			wasm:   assemble(t, manifest, "", hook),
			reason: "ModuleTooLarge", message: "100 module bytes", remedy: "raise spec.limits.moduleBytes",
			change: func(s *plugins.ReflectionPluginSpec) { s.Limits = &plugins.PluginLimits{ModuleBytes: 100} },
		},
		"selector": {
			wasm:   assemble(t, manifest, "", hook),
			reason: "InvalidSelector", message: "spec.match.objectSelector", remedy: "correct the selector",
			change: func(s *plugins.ReflectionPluginSpec) {
				s.Match = &plugins.PluginMatch{ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := await(t, declare(t, c.wasm, c.change), plugins.AcceptedCondition, metav1.ConditionFalse, c.reason)
			assert.Contains(t, message(p, plugins.AcceptedCondition), c.message)
			assert.Contains(t, message(p, plugins.AcceptedCondition), c.remedy)
			assert.Empty(t, p.Status.ActiveRevision)
			assert.Empty(t, p.Status.CandidateRevision)
			assert.Equal(t, c.reason, apimeta.FindStatusCondition(p.Status.Conditions, plugins.ReadyCondition).Reason)
		})
	}
	t.Run("a pin of a revision for other kinds", func(t *testing.T) {
		p := declare(t, assemble(t, manifest, "", hook), func(s *plugins.ReflectionPluginSpec) { s.Kinds = []string{"ConfigMap"} })
		p = await(t, p, plugins.AcceptedCondition, metav1.ConditionFalse, "KindNotDeclared")
		list := &plugins.PluginRevisionList{}
		require.NoError(t, cluster.Client.List(t.Context(), list))
		i := slices.IndexFunc(list.Items, func(r plugins.PluginRevision) bool { return r.Spec.Plugin == p.Name })
		require.GreaterOrEqual(t, i, 0)
		cluster.Patch(t, p, `{"spec":{"revision":"`+list.Items[i].Name+`"}}`)
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "KindNotDeclared")
		assert.Empty(t, p.Status.ActiveRevision)
	})
	t.Run("the name of a default plugin", func(t *testing.T) {
		p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "service"}}
		p.Spec.Kinds, p.Spec.Source.ConfigMap = []string{"Service"}, &plugins.ConfigMapSource{Name: "service", Key: "m.wasm"}
		configMap(t, "service", assemble(t, manifest, "", hook))
		cluster.Create(t, p)
		t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), p) })
		p = await(t, p, plugins.AcceptedCondition, metav1.ConditionFalse, "NameTaken")
		assert.Contains(t, message(p, plugins.AcceptedCondition), "set spec.replaces to service")
	})
	t.Run("the name of a folder plugin", func(t *testing.T) {
		node := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
		p := declare(t, assemble(t, manifest, "", hook), func(s *plugins.ReflectionPluginSpec) { s.Paused = true })
		text, err := folderplugins.Encode([]folderplugins.Plugin{{Name: p.Name, State: "Loaded", IsRunning: true}})
		require.NoError(t, err)
		annotate := func(text string) {
			cluster.Patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
				fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, folderplugins.Annotation, text))
		}
		annotate(text)
		cluster.Patch(t, p, `{"spec":{"paused":false}}`)
		p = await(t, p, plugins.AcceptedCondition, metav1.ConditionFalse, "NameTaken")
		assert.Contains(t, message(p, plugins.AcceptedCondition), "in the folder (--plugin-dir) of virtual node "+node)
		annotate("")
		await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	})
	t.Run("the consent to skip", func(t *testing.T) {
		p := declare(t, assemble(t, skipping, "", hook), func(s *plugins.ReflectionPluginSpec) { s.Capabilities = []plugins.PluginCapability{"skip"} })
		await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	})
	t.Run("an empty list of capabilities", func(t *testing.T) {
		p := declare(t, assemble(t, manifest, "", hook), func(s *plugins.ReflectionPluginSpec) { s.Paused = true })
		await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "Paused")
		cluster.Patch(t, p, `{"spec":{"capabilities":[],"paused":false}}`)
		await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		cluster.Patch(t, p, `{"spec":{"priority":3}}`) // this triggers another reconciliation
		await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	})
	t.Run("all kinds", func(t *testing.T) {
		for _, kinds := range []string{`["*"]`, `["Service","Secret"]`} {
			wasm := assemble(t, strings.Replace(manifest, `["Service"]`, kinds, 1), "", hook)
			p := declare(t, wasm, func(s *plugins.ReflectionPluginSpec) { s.Kinds = []string{"*"} })
			await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		}
	})
	t.Run("a kind without its group", func(t *testing.T) {
		p := declare(t, assemble(t, strings.Replace(manifest, `["Service"]`, `["Ingress.networking.k8s.io"]`, 1), "", hook), func(s *plugins.ReflectionPluginSpec) { s.Kinds = []string{"Ingress"} })
		await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	})
	t.Run("settings that are corrected", func(t *testing.T) {
		p := declare(t, assemble(t, manifest, "", hook), func(s *plugins.ReflectionPluginSpec) { s.Writes = []string{"spec"} })
		p = await(t, p, plugins.AcceptedCondition, metav1.ConditionFalse, "WritesNotDeclared")
		cluster.Patch(t, p, `{"spec":{"writes":[]}}`)
		p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		revision := &plugins.PluginRevision{}
		controllertest.Eventually(t, "the revision", func() error {
			now := &plugins.ReflectionPlugin{}
			cluster.Get(t, now, "", p.Name)
			return cluster.Client.Get(t.Context(), client.ObjectKey{Name: now.Status.ActiveRevision}, revision)
		})
		assert.NotNil(t, revision.Spec.Writes, "an empty list allows nothing, no list allows what the manifest has")
		assert.Empty(t, revision.Spec.Writes)
	})
}

// TestOrphanedRevisionsAreDeleted checks that revisions that are left when a plugin is deleted do not prevent another
// plugin with the same name, and that they are deleted if there is no such plugin.
func TestOrphanedRevisionsAreDeleted(t *testing.T) {
	manager := start(t)
	wasm := assemble(t, manifest, "", hook+`(func (export "orphan"))`)
	p := declare(t, wasm, nil)
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	left := &plugins.PluginRevision{}
	cluster.Get(t, left, "", p.Status.ActiveRevision)
	manager.Stop(t)
	orphan := func() {
		require.NoError(t, cluster.Client.Delete(t.Context(), p, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
		cluster.AwaitGone(t, p.DeepCopy())
		cluster.Get(t, &plugins.PluginRevision{}, "", left.Name)
	}
	orphan()
	another := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: p.Spec}
	cluster.Create(t, another)
	t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), another) })
	manager = start(t)
	p = await(t, another, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	now := &plugins.PluginRevision{}
	cluster.Get(t, now, "", p.Status.ActiveRevision)
	assert.Equal(t, left.Name, now.Name)
	assert.NotEqual(t, left.UID, now.UID)
	manager.Stop(t)
	orphan()
	start(t)
	cluster.AwaitGone(t, now)
	controllertest.Eventually(t, "its module to be gone", func() error {
		if n := modulesOf(t, now.Spec.SHA256); n > 0 {
			return fmt.Errorf("there are %d parts", n)
		}
		return nil
	})
}

// TestHistoryAndPause checks that old revisions are deleted together with their modules, except for the active and the
// previous revision and as many more as revisionHistoryLimit permits, and that a paused plugin keeps its active module.
func TestHistoryAndPause(t *testing.T) {
	start(t)
	version := func(n int) []byte {
		return assemble(t, manifest, "", hook+fmt.Sprintf(`(func (export "v%d"))`, n))
	}
	p := declare(t, version(0), func(s *plugins.ReflectionPluginSpec) { s.RevisionHistoryLimit = 1 })
	active := func(n int) *plugins.ReflectionPlugin {
		now := &plugins.ReflectionPlugin{}
		controllertest.Eventually(t, fmt.Sprintf("version %d to be active", n), func() error {
			cluster.Get(t, now, "", p.Name)
			revision := &plugins.PluginRevision{}
			if err := cluster.Client.Get(t.Context(), client.ObjectKey{Name: now.Status.ActiveRevision}, revision); err != nil {
				return err
			}
			if revision.Spec.SHA256 != pluginsource.Digest(version(n)) {
				return fmt.Errorf("%s is active", now.Status.ActiveRevision)
			}
			return nil
		})
		return now
	}
	active(0)
	for n := 1; n < 5; n++ {
		configMap(t, p.Name, version(n))
		active(n)
	}
	controllertest.Eventually(t, "three revisions to be left", func() error {
		list := &plugins.PluginRevisionList{}
		require.NoError(t, cluster.Client.List(t.Context(), list))
		left := slices.DeleteFunc(list.Items, func(r plugins.PluginRevision) bool { return r.Spec.Plugin != p.Name })
		if len(left) != 3 {
			return fmt.Errorf("there are %d", len(left))
		}
		return nil
	})
	for n, want := range []int{0, 0, 1, 1, 1} {
		controllertest.Eventually(t, fmt.Sprintf("%d modules of version %d", want, n), func() error {
			if got := modulesOf(t, pluginsource.Digest(version(n))); got != want {
				return fmt.Errorf("there are %d", got)
			}
			return nil
		})
	}
	now := active(4)
	cluster.Patch(t, now, `{"spec":{"paused":true}}`)
	await(t, now, plugins.ReadyCondition, metav1.ConditionTrue, "Paused")
	configMap(t, p.Name, version(5))
	cluster.Patch(t, now, `{"spec":{"priority":7}}`) // this change is observed after the change to the ConfigMap
	await(t, now, plugins.ReadyCondition, metav1.ConditionTrue, "Paused")
	active(4)
	cluster.Patch(t, now, `{"spec":{"paused":false,"rollout":{"strategy":"Rehearse","rehearsal":{"approval":"Manual"}}}}`)
	waiting := await(t, now, plugins.RehearsedCondition, metav1.ConditionFalse, "WaitingForApproval")
	active(4)
	cluster.Patch(t, now, fmt.Sprintf(`{"spec":{"rollout":{"rehearsal":{"approved":%q}}}}`, waiting.Status.CandidateRevision))
	active(5)
}

// TestOnlyTheManagerWritesRevisions checks that only the controller manager may create, change and delete revisions and
// modules.
func TestOnlyTheManagerWritesRevisions(t *testing.T) {
	start(t)
	p := declare(t, assemble(t, manifest, "", hook), nil)
	await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	now := await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	const user = "platform-admin"
	require.NoError(t, cluster.Grant(t.Context(), rbac.Manager{Prefix: "other", Namespace: installation, Subject: rbac.User(user)}.Plugins()...))
	config, err := cluster.ConfigFor(user)
	require.NoError(t, err)
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	other, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	revision := &plugins.PluginRevision{}
	cluster.Get(t, revision, "", now.Status.ActiveRevision)
	const says = "Only the controller manager"
	require.ErrorContains(t, other.Delete(t.Context(), revision), says)
	copied := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: revision.Spec}
	require.ErrorContains(t, other.Create(t.Context(), copied), says)
	module := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: plugins.PluginModuleName(revision.Spec.SHA256, 0)}}
	require.ErrorContains(t, other.Delete(t.Context(), module), says)
	const promotes = `{"status":{"activeRevision":"mine"}}`
	err = other.Status().Patch(t.Context(), now, client.RawPatch(types.MergePatchType, []byte(promotes)))
	require.ErrorContains(t, err, "Only the controller manager of Refract changes the status of ReflectionPlugins")
	// Not even an administrator can change the content of modules and revisions, although the policy in this test
	// exempts administrators.
	cluster.Get(t, module, "", module.Name)
	module.Spec.Data = []byte("something else")
	require.ErrorContains(t, cluster.Client.Update(t.Context(), module), "a module is never changed")
	revision.Spec.SHA256 = strings.Repeat("0", 64)
	require.ErrorContains(t, cluster.Client.Update(t.Context(), revision), "a revision is never changed")
}
