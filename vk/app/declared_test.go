// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/registrytest"
)

var (
	pluginGVR   = pluginsv1alpha1.GroupVersion.WithResource("reflectionplugins")
	revisionGVR = pluginsv1alpha1.GroupVersion.WithResource("pluginrevisions")
	moduleGVR   = pluginsv1alpha1.GroupVersion.WithResource("pluginmodules")
)

// declaredLab is a lab with the plugin strip, which removes labels from Services.
type declaredLab struct {
	*testing.T
	*lab.Lab
	ctx context.Context //nolint:containedctx // of the test
}

// TestDeclaredPlugins checks a plugin that is declared as a ReflectionPlugin, from its creation to its deletion, with
// the chart's roles and policies. The plugin mutates objects, follows changes to its declaration, continues to run when
// the virtual kubelet is replaced, and is removed when it is deleted. While its module is broken, its objects are not
// reflected.
func TestDeclaredPlugins(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	d := &declaredLab{t, start(ctx, t, lab.Options{DeclaredPlugins: true}), ctx}
	require.NoError(t, d.StartAll(ctx))
	require.NoError(t, d.AwaitNodeReady(ctx))
	offload(ctx, t, d.Lab, "shop")
	d.declare()
	d.run("an active revision mutates objects, also those that were there, and is reported", (*declaredLab).testActive)
	d.run("a change of settings reaches the first object within a moment", (*declaredLab).testLatency)
	d.run("idle, no status is written", (*declaredLab).testIdle)
	d.run("namespaces are selected by labels, which may change", (*declaredLab).testSelectors)
	d.run("swaps lose nothing", (*declaredLab).testSwaps)
	registry := registrytest.New(t, true)
	d.run("a revision from a registry is promoted as soon as its rehearsal is within the limits", func(d *declaredLab) { d.testRehearsal(registry) })
	// The registry is stopped here.
	registry.Close()
	d.run("refractctl goes back to the previous revision without the registry", (*declaredLab).testUserRollBack)
	d.run("a failing revision is rolled back without manager and registry, and the manager rejects it later", (*declaredLab).testRollBack)
	d.run("a replaced virtual kubelet runs stored modules without manager and registry", (*declaredLab).testRestart)
	d.run("a replaced virtual kubelet holds what a broken module should mutate", (*declaredLab).testHeld)
	d.run("a deleted plugin leaves the chain", (*declaredLab).testDeleted)
}

func (d *declaredLab) run(name string, test func(*declaredLab)) {
	d.Run(name, func(t *testing.T) { test(&declaredLab{t, d.Lab, d.ctx}) })
}

func (d *declaredLab) must(err error) {
	d.Helper()
	require.NoError(d, err)
}

// declare applies the ReflectionPlugin, which removes the label one.example.com/x.
func (d *declaredLab) declare() {
	wasm, err := d.ReadModule("examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm")
	d.must(err)
	_, err = d.Consumer.Client.CoreV1().ConfigMaps(lab.SystemNamespace).Create(d.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "strip"}, BinaryData: map[string][]byte{"strip.wasm": wasm},
	}, metav1.CreateOptions{})
	d.must(err)
	d.createService("before")
	d.awaitLabels("before", "one", "two")
	create(d.ctx, d.T, d.Consumer, pluginGVR, "", `
apiVersion: plugins.refract.io/v1alpha1
kind: ReflectionPlugin
metadata: {name: strip}
spec:
  kinds: [Service]
  source: {configMap: {name: strip, key: strip.wasm}}
  config: {labels: [one.example.com/*]}
  rollout: {strategy: Immediate}`)
}

// createService creates a Service in the namespace shop with one label of each of two domains, one and two. Every test
// uses its own Service, because reflection pauses for a Service that changes back and forth within a minute.
func (d *declaredLab) createService(name string) {
	d.Helper()
	_, err := d.Consumer.Client.CoreV1().Services("shop").Create(d.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"one.example.com/x": "1", "two.example.com/x": "2"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	d.must(err)
}

// domains returns the domains of the labels of a reflected Service.
func (d *declaredLab) domains(name string) ([]string, error) {
	copied, err := d.Provider.Client.CoreV1().Services("shop-"+lab.ConsumerID).Get(d.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	found := []string{}
	for label := range copied.Labels {
		if domain, ok := strings.CutSuffix(label, ".example.com/x"); ok {
			found = append(found, domain)
		}
	}
	slices.Sort(found)
	return found, nil
}

// awaitLabels waits until the labels of a reflected Service have exactly the given domains.
func (d *declaredLab) awaitLabels(name string, domains ...string) {
	d.Helper()
	d.must(d.Wait(d.ctx, fmt.Sprintf("%s to have the labels %v", name, domains), func(context.Context) (string, error) {
		found, err := d.domains(name)
		if err != nil || !slices.Equal(found, domains) {
			return fmt.Sprintf("it has %v, %v", found, err), nil
		}
		return "", nil
	}))
}

// patch patches the spec of the ReflectionPlugin.
func (d *declaredLab) patch(spec string) {
	d.Helper()
	_, err := d.Consumer.Dynamic.Resource(pluginGVR).Patch(d.ctx, "strip", types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	d.must(err)
}

// active returns the active PluginRevision.
func (d *declaredLab) active() (*pluginsv1alpha1.PluginRevision, error) {
	plugin, err := d.Consumer.Dynamic.Resource(pluginGVR).Get(d.ctx, "strip", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	name, _, _ := unstructured.NestedString(plugin.Object, "status", "activeRevision")
	if name == "" {
		return nil, fmt.Errorf("no revision is active: %v", plugin.Object["status"])
	}
	object, err := d.Consumer.Dynamic.Resource(revisionGVR).Get(d.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	revision := &pluginsv1alpha1.PluginRevision{}
	return revision, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, revision)
}

// awaitState waits until the active revision reports the state and the reason for the virtual node. No other revision
// may have an entry for the node, except for a revision that was rolled back.
func (d *declaredLab) awaitState(state pluginsv1alpha1.PluginState, reason string) (message string) {
	d.Helper()
	d.must(d.Wait(d.ctx, fmt.Sprintf("the state %s/%s", state, reason), func(context.Context) (string, error) {
		revision, err := d.active()
		if err != nil {
			return err.Error(), nil
		}
		all, err := d.Consumer.Dynamic.Resource(revisionGVR).List(d.ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error(), nil
		}
		for _, other := range all.Items {
			entries, _, _ := unstructured.NestedSlice(other.Object, "status", "virtualNodes")
			isRolledBack := len(entries) == 1 && entries[0].(map[string]any)["state"] == string(pluginsv1alpha1.RolledBackPlugin)
			if other.GetName() != revision.Name && len(entries) > 0 && !isRolledBack {
				return fmt.Sprintf("%s, which is not active, has %v", other.GetName(), entries), nil
			}
		}
		entries := revision.Status.VirtualNodes
		if len(entries) != 1 || entries[0].Name != lab.NodeName || entries[0].State != state || entries[0].Reason != reason {
			return fmt.Sprintf("it has %+v", entries), nil
		}
		message = entries[0].Message
		return "", nil
	}))
	return message
}

func (d *declaredLab) testActive() {
	d.awaitLabels("before", "two")
	d.createService("after")
	d.awaitLabels("after", "two")
	assert.Contains(d, d.awaitState(pluginsv1alpha1.ActivePlugin, "Running"), "Service")
	revision, err := d.active()
	d.must(err)
	metrics, err := d.KubeletMetrics(d.ctx)
	d.must(err)
	found := false
	for _, m := range metrics["refract_plugin_info"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		found = found || labels["plugin"] == "strip" && labels["origin"] == "declared" && labels["revision"] == revision.Name && labels["digest"] == "sha256:"+revision.Spec.SHA256
		assert.Equal(d, labels["plugin"] != "strip", labels["origin"] == "default", "%v", labels)
	}
	assert.True(d, found, "refract_plugin_info does not show the plugin: %v", metrics["refract_plugin_info"])
}

// testLatency prints the time from a change to the plugin's settings to the first object that is mutated with the new
// settings.
func (d *declaredLab) testLatency() {
	for n, round := range []struct{ remove, left string }{{"two", "one"}, {"one", "two"}, {"two", "one"}, {"one", "two"}} {
		name := fmt.Sprintf("latency-%d", n)
		d.createService(name)
		d.awaitLabels(name, round.remove)
		copies, err := d.Provider.Client.CoreV1().Services("shop-"+lab.ConsumerID).Watch(d.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		d.must(err)
		declared, err := d.Consumer.Dynamic.Resource(pluginGVR).Watch(d.ctx, metav1.ListOptions{})
		d.must(err)
		before, err := d.active()
		d.must(err)
		applied, promoted, mutated := time.Now(), time.Time{}, time.Time{}
		d.patch(`{"config":{"labels":["` + round.remove + `.example.com/*"]}}`)
		for mutated.IsZero() {
			select {
			case event := <-declared.ResultChan():
				name, _, _ := unstructured.NestedString(event.Object.(*unstructured.Unstructured).Object, "status", "activeRevision")
				if promoted.IsZero() && name != before.Name {
					promoted = time.Now()
				}
			case event := <-copies.ResultChan():
				labels := event.Object.(*corev1.Service).Labels
				if labels[round.remove+".example.com/x"] == "" && labels[round.left+".example.com/x"] != "" {
					mutated = time.Now()
				}
			case <-d.ctx.Done():
				d.Fatalf("%s is not removed", round.remove)
			}
		}
		copies.Stop()
		declared.Stop()
		d.Logf("from the change to the first object mutated by it: %s, of it in the virtual kubelet: %s", mutated.Sub(applied).Round(time.Millisecond), mutated.Sub(promoted).Round(time.Millisecond))
	}
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")
}

func (d *declaredLab) testIdle() {
	d.must(d.Wait(d.ctx, "the plugin to be ready", func(context.Context) (string, error) {
		plugin, err := d.Consumer.Dynamic.Resource(pluginGVR).Get(d.ctx, "strip", metav1.GetOptions{})
		if err != nil {
			return err.Error(), nil
		}
		if nodes, _, _ := unstructured.NestedString(plugin.Object, "status", "nodes"); nodes != "1/1" {
			return fmt.Sprintf("it runs on %q", nodes), nil
		}
		return "", nil
	}))
	// The processes may still be reacting to the last change, so the test first waits until nothing about plugins was
	// written for three seconds.
	quiet := time.Now()
	d.must(d.Wait(d.ctx, "writes about plugins to end", func(context.Context) (string, error) {
		if writes, err := d.pluginWrites(); err != nil || len(writes) > 0 {
			quiet = time.Now()
			return fmt.Sprintf("the last are %+v", writes), err
		}
		if time.Since(quiet) < 3*time.Second {
			return "they may go on", nil
		}
		return "", nil
	}))
	time.Sleep(20 * time.Second) //nolint:forbidigo // the absence of writes cannot be awaited
	writes, err := d.pluginWrites()
	d.must(err)
	assert.Empty(d, writes)
}

// pluginWrites returns the writes to declared plugins since the last call.
func (d *declaredLab) pluginWrites() ([]lab.Write, error) {
	writes, err := d.Consumer.Journal.Next()
	return slices.DeleteFunc(writes, func(w lab.Write) bool {
		return !slices.Contains([]string{"pluginrevisions", "reflectionplugins", "pluginmodules"}, w.Resource)
	}), err
}

// labelNamespace sets the label that the plugin's namespaceSelector requires, or removes it if value is empty.
func (d *declaredLab) labelNamespace(value string) {
	d.Helper()
	_, err := d.Consumer.Client.CoreV1().Namespaces().Patch(d.ctx, "shop", types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":`+value+`}}}`), metav1.PatchOptions{})
	d.must(err)
}

func (d *declaredLab) testSelectors() {
	d.patch(`{"match":{"namespaceSelector":{"matchLabels":{"tier":"web"}},"objectSelector":{"matchExpressions":[{"key":"keep","operator":"DoesNotExist"}]}}}`)
	d.must(d.Wait(d.ctx, "the revision", func(context.Context) (string, error) {
		if revision, err := d.active(); err != nil || revision.Spec.Match == nil || len(revision.Status.VirtualNodes) == 0 {
			return fmt.Sprintf("it is %+v, %v", revision, err), nil
		}
		return "", nil
	}))
	d.createService("selected")
	d.createService("kept")
	d.awaitLabels("selected", "one", "two")
	d.labelNamespace(`"web"`)
	d.awaitLabels("selected", "two")
	d.awaitLabels("kept", "two")
	_, err := d.Consumer.Client.CoreV1().Services("shop").Patch(d.ctx, "kept", types.MergePatchType, []byte(`{"metadata":{"labels":{"keep":"true"}}}`), metav1.PatchOptions{})
	d.must(err)
	d.awaitLabels("kept", "one", "two")
	d.labelNamespace("null")
	d.awaitLabels("selected", "one", "two")
	// The plugin no longer applies to this provider, so the labels must be kept.
	d.patch(`{"match":{"namespaceSelector":null,"objectSelector":null,"providers":["milan"]}}`)
	d.must(d.Wait(d.ctx, "the entry to be removed", func(context.Context) (string, error) {
		revision, err := d.active()
		if err != nil || len(revision.Status.VirtualNodes) > 0 || revision.Spec.Match == nil || len(revision.Spec.Match.Providers) == 0 {
			return fmt.Sprintf("it has %+v, %v", revision, err), nil
		}
		return "", nil
	}))
	d.createService("elsewhere")
	d.awaitLabels("elsewhere", "one", "two")
	d.patch(`{"match":{"providers":["milan","` + lab.ProviderID + `"]}}`)
	d.awaitLabels("elsewhere", "two")
}

func (d *declaredLab) testSwaps() {
	const many = 60
	for n := range many {
		d.createService(fmt.Sprintf("many-%d", n))
		if n%6 == 0 {
			// No Service has such a label, so these changes only replace the running plugin. The change after the loop
			// must take effect.
			d.patch(fmt.Sprintf(`{"config":{"labels":["swap-%d.example.com/*"]}}`, n))
		}
	}
	d.patch(`{"config":{"labels":["one.example.com/*"]}}`)
	for n := range many {
		d.awaitLabels(fmt.Sprintf("many-%d", n), "two")
	}
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")
}

// testRehearsal configures an image as the source of the plugin. The revision of the image would change more objects
// than permitted at first. It becomes active without an approval when this number of changes is permitted.
func (d *declaredLab) testRehearsal(registry *registrytest.Registry) {
	wasm, err := d.ReadModule("examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm")
	d.must(err)
	registry.Push(d.T, "plugins/strip:1", registrytest.ModuleImage(d.T, wasm))
	_, err = d.Consumer.Client.CoreV1().Secrets(lab.SystemNamespace).Create(d.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Data: map[string][]byte{"ca.crt": registry.Authorities()},
	}, metav1.CreateOptions{})
	d.must(err)
	before, err := d.active()
	d.must(err)
	d.patch(fmt.Sprintf(`{"source":{"configMap":null,"oci":{"image":"%s/plugins/strip:1","interval":"1m","caSecret":{"name":"registry"}}},
		"config":{"labels":["one.example.com/*","two.example.com/*"]},
		"rollout":{"strategy":"Rehearse","rehearsal":{"maxChangedPercent":0}}}`, registry.Host()))
	message := d.awaitCondition(pluginsv1alpha1.RehearsedCondition, metav1.ConditionFalse, "WaitingForApproval")
	assert.Contains(d, message, "(100 %, limit 0 %)")
	d.createService("unchanged")
	d.awaitLabels("unchanged", "two")
	now, err := d.active()
	d.must(err)
	assert.Equal(d, before.Name, now.Name)

	d.patch(`{"rollout":{"rehearsal":{"maxChangedPercent":100}}}`)
	d.awaitCondition(pluginsv1alpha1.RehearsedCondition, metav1.ConditionTrue, "Rehearsed")
	d.must(d.Wait(d.ctx, "the promotion of the rehearsed revision", func(context.Context) (string, error) {
		if active, err := d.status("activeRevision"); err != nil || active == before.Name {
			return fmt.Sprintf("%s is active, %v", active, err), nil
		}
		return "", nil
	}))
	now, err = d.active()
	d.must(err)
	assert.Contains(d, now.Spec.Source, registry.Host()+"/plugins/strip@sha256:")
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")
	d.createService("rehearsed")
	d.awaitLabels("rehearsed")
	d.patch(`{"config":{"labels":["one.example.com/*"]},"rollout":{"strategy":"Immediate","rehearsal":null}}`)
	d.must(d.Wait(d.ctx, "the revision for the tests that follow", func(context.Context) (string, error) {
		if active, err := d.status("activeRevision"); err != nil || active == now.Name {
			return fmt.Sprintf("%s is active, %v", active, err), nil
		}
		return "", nil
	}))
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")
}

// awaitCondition waits until a condition of the ReflectionPlugin has the status and the reason, and returns its message.
func (d *declaredLab) awaitCondition(conditionType string, status metav1.ConditionStatus, reason string) (message string) {
	d.Helper()
	d.must(d.Wait(d.ctx, fmt.Sprintf("the condition %s=%s/%s", conditionType, status, reason), func(context.Context) (string, error) {
		object, err := d.Consumer.Dynamic.Resource(pluginGVR).Get(d.ctx, "strip", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		plugin := &pluginsv1alpha1.ReflectionPlugin{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, plugin); err != nil {
			return "", err
		}
		found := apimeta.FindStatusCondition(plugin.Status.Conditions, conditionType)
		if found == nil || found.Status != status || found.Reason != reason || found.ObservedGeneration != plugin.Generation {
			return fmt.Sprintf("it has %+v", plugin.Status.Conditions), nil
		}
		message = found.Message
		return "", nil
	}))
	return message
}

// replaceKubelet stops the virtual kubelet, calls change, and starts another virtual kubelet with empty folders, as
// in a new pod.
func (d *declaredLab) replaceKubelet(change func()) {
	d.Helper()
	d.must(d.StopKubelet(d.ctx))
	change()
	cache := filepath.Join(d.TempDir(), "plugin-cache")
	d.must(os.Mkdir(cache, 0o700))
	d.SetKubeletArgs("--plugin-cache-dir=" + cache)
	d.must(d.StartKubelet(d.ctx))
}

// status returns a field of the status of the ReflectionPlugin.
func (d *declaredLab) status(field string) (string, error) {
	plugin, err := d.Consumer.Dynamic.Resource(pluginGVR).Get(d.ctx, "strip", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedString(plugin.Object, "status", field)
	return value, err
}

// awaitRollBack waits until the virtual node reports that it has rolled back the active revision.
func (d *declaredLab) awaitRollBack(failing string) (message string) {
	d.Helper()
	d.must(d.Wait(d.ctx, "the rollback of "+failing, func(context.Context) (string, error) {
		revision, err := d.active()
		if err != nil {
			return err.Error(), nil
		}
		entries := revision.Status.VirtualNodes
		if revision.Name != failing || len(entries) != 1 || entries[0].State != pluginsv1alpha1.RolledBackPlugin {
			return fmt.Sprintf("%s is active, with %+v", revision.Name, entries), nil
		}
		message = entries[0].Message
		return "", nil
	}))
	return message
}

// testUserRollBack makes another revision active, and rolls back to the previous one with refractctl. The controller
// manager is restarted before the rollback, so that it has no state in memory, and cannot reach the registry.
func (d *declaredLab) testUserRollBack() {
	first, err := d.active()
	d.must(err)
	d.must(d.StopConsumerManager(d.ctx))
	d.must(d.StartConsumerManager(d.ctx))
	d.awaitCondition(pluginsv1alpha1.FetchedCondition, metav1.ConditionFalse, "Unavailable")
	d.patch(`{"config":{"labels":["two.example.com/*"]}}`)
	d.awaitActive(func(name string) bool { return name != first.Name })
	d.createService("before-rollback")
	d.awaitLabels("before-rollback", "one")
	bad, err := d.status("activeRevision")
	d.must(err)
	previous, err := d.status("previousRevision")
	d.must(err)

	_, err = d.Refractctl(d.ctx, "plugin", "rollback", "strip")
	d.must(err)
	d.awaitActive(func(name string) bool { return name == previous })
	d.createService("after-rollback")
	d.awaitLabels("after-rollback", "two")
	d.awaitLabels("before-rollback", "two")
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")

	// Without the pin, the settings decide again.
	_, err = d.Refractctl(d.ctx, "plugin", "unpin", "strip")
	d.must(err)
	d.awaitActive(func(name string) bool { return name == bad })
	d.patch(`{"config":{"labels":["one.example.com/*"]}}`)
	d.awaitActive(func(name string) bool { return name == first.Name })
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")
}

// awaitActive waits until a revision with a wanted name is active.
func (d *declaredLab) awaitActive(isWanted func(name string) bool) {
	d.Helper()
	d.must(d.Wait(d.ctx, "another active revision", func(context.Context) (string, error) {
		if active, err := d.status("activeRevision"); err != nil || !isWanted(active) {
			return fmt.Sprintf("%s is active, %v", active, err), nil
		}
		return "", nil
	}))
}

func (d *declaredLab) testRollBack() {
	before, err := d.active()
	d.must(err)
	copies := d.watchCopies()
	defer copies.Stop()
	d.must(d.StopKubelet(d.ctx))
	d.patch(`{"limits":{"handles":1}}`) // every call of the plugin fails
	d.must(d.Wait(d.ctx, "the promotion of the failing revision", func(context.Context) (string, error) {
		active, err := d.status("activeRevision")
		if err != nil || active == before.Name {
			return fmt.Sprintf("%s is active, %v", active, err), nil
		}
		return "", nil
	}))
	failing, err := d.status("activeRevision")
	d.must(err)
	previous, err := d.status("previousRevision")
	d.must(err)
	d.must(d.StopConsumerManager(d.ctx))
	d.replaceKubelet(func() { d.createService("tried") })
	assert.Contains(d, d.awaitRollBack(failing), "goes back to revision "+previous)
	d.awaitLabels("tried", "two")

	// The failing revision must not come back after a restart of the virtual kubelet or the controller manager.
	d.replaceKubelet(func() { d.createService("again") })
	d.awaitLabels("again", "two")
	d.awaitRollBack(failing)
	d.must(d.StartConsumerManager(d.ctx))
	d.must(d.Wait(d.ctx, "the rejection", func(context.Context) (string, error) {
		active, err := d.status("activeRevision")
		rejected, rejectedErr := d.status("rejectedRevision")
		if err != nil || rejectedErr != nil || active != previous || rejected != failing {
			return fmt.Sprintf("%s is active, %s is rejected", active, rejected), nil
		}
		return "", nil
	}))
	// A controller manager that has just started resolves the tag again, which fails.
	d.awaitCondition(pluginsv1alpha1.FetchedCondition, metav1.ConditionFalse, "Unavailable")
	d.createService("rejected")
	d.awaitLabels("rejected", "two")
	d.neverUnmutated(copies, "tried", "again", "rejected")
	d.patch(`{"limits":null}`)
	d.must(d.Wait(d.ctx, "the corrected revision", func(context.Context) (string, error) {
		if active, err := d.status("activeRevision"); err != nil || active != before.Name {
			return fmt.Sprintf("%s is active, %v", active, err), nil
		}
		return "", nil
	}))
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")
}

func (d *declaredLab) testRestart() {
	d.must(d.StopConsumerManager(d.ctx))
	copies := d.watchCopies()
	defer copies.Stop()
	d.replaceKubelet(func() { d.createService("meanwhile") })
	d.awaitLabels("meanwhile", "two")
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")

	// The change was not promoted, so objects are mutated as before.
	before, err := d.active()
	d.must(err)
	d.patch(`{"config":{"labels":["two.example.com/*"]}}`)
	d.createService("unpromoted")
	d.awaitLabels("unpromoted", "two")
	now, err := d.active()
	d.must(err)
	assert.Equal(d, before.Name, now.Name)
	d.patch(`{"config":{"labels":["one.example.com/*"]}}`)
	d.neverUnmutated(copies, "meanwhile", "unpromoted")
}

// watchCopies starts a watch that reports every version of the copies of Services.
func (d *declaredLab) watchCopies() watch.Interface {
	d.Helper()
	copies, err := d.Provider.Client.CoreV1().Services("shop-"+lab.ConsumerID).Watch(d.ctx, metav1.ListOptions{})
	d.must(err)
	return copies
}

// neverUnmutated checks all versions of the copies of the named Services that a watch has reported: the label that the
// plugin removes must be missing in each of them. The last of the Services must have been created last.
func (d *declaredLab) neverUnmutated(copies watch.Interface, names ...string) {
	d.Helper()
	for {
		select {
		case event := <-copies.ResultChan():
			copied, ok := event.Object.(*corev1.Service)
			require.True(d, ok, "%+v", event.Object)
			if slices.Contains(names, copied.Name) {
				assert.Empty(d, copied.Labels["one.example.com/x"], copied.Name)
			}
			if copied.Name == names[len(names)-1] {
				return
			}
		case <-d.ctx.Done():
			d.Fatal("the copy was not reported")
		}
	}
}

// replaceModule changes the only part of the active module, as a client with write access to etcd could.
func (d *declaredLab) replaceModule(change func(*pluginsv1alpha1.PluginModule)) {
	d.Helper()
	config, err := d.Consumer.ConfigFor(lab.ManagerUser, "system:serviceaccounts", "system:authenticated")
	d.must(err)
	manager, err := dynamic.NewForConfig(config)
	d.must(err)
	revision, err := d.active()
	d.must(err)
	name := pluginsv1alpha1.PluginModuleName(revision.Spec.SHA256, 0)
	object, err := d.Consumer.Dynamic.Resource(moduleGVR).Get(d.ctx, name, metav1.GetOptions{})
	d.must(err)
	module := &pluginsv1alpha1.PluginModule{}
	d.must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, module))
	change(module)
	d.must(manager.Resource(moduleGVR).Delete(d.ctx, name, metav1.DeleteOptions{}))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pluginsv1alpha1.PluginModule{
		TypeMeta: module.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: module.Spec,
	})
	d.must(err)
	_, err = manager.Resource(moduleGVR).Create(d.ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	d.must(err)
}

func (d *declaredLab) testHeld() {
	d.createService("copied")
	d.awaitLabels("copied", "two")
	var intact []byte
	wasCreated := metav1.Time{}
	d.replaceKubelet(func() {
		d.replaceModule(func(m *pluginsv1alpha1.PluginModule) {
			intact = slices.Clone(m.Spec.Data)
			m.Spec.Data[len(m.Spec.Data)/2] ^= 1
		})
		copied, err := d.Provider.Client.CoreV1().Services("shop-"+lab.ConsumerID).Get(d.ctx, "copied", metav1.GetOptions{})
		d.must(err)
		wasCreated = copied.CreationTimestamp
		d.createService("unmutated")
		_, err = d.Consumer.Client.CoreV1().Services("shop").Patch(d.ctx, "copied", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"true"}}}`), metav1.PatchOptions{})
		d.must(err)
	})
	message := d.awaitState(pluginsv1alpha1.FailedPlugin, "DigestMismatch")
	assert.Contains(d, message, "nothing is written or deleted for objects of Service")
	d.awaitEvent("ReflectionPlugin", "strip", "DigestMismatch")
	d.awaitEvent("Service", "unmutated", "PluginHeld")
	metrics, err := d.KubeletMetrics(d.ctx)
	d.must(err)
	held := metrics["refract_plugin_held"].GetMetric()
	require.Len(d, held, 1)
	assert.Equal(d, 1.0, held[0].GetGauge().GetValue())

	// Objects of other kinds must still be reflected.
	_, err = d.Consumer.Client.CoreV1().ConfigMaps("shop").Create(d.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	d.must(err)
	d.must(d.Wait(d.ctx, "another kind", func(ctx context.Context) (string, error) {
		if _, err := d.Provider.Client.CoreV1().ConfigMaps("shop-"+lab.ConsumerID).Get(ctx, "other", metav1.GetOptions{}); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}))
	d.awaitEvent("Service", "copied", "PluginHeld")
	copied, err := d.Provider.Client.CoreV1().Services("shop-"+lab.ConsumerID).Get(d.ctx, "copied", metav1.GetOptions{})
	d.must(err)
	assert.Equal(d, wasCreated, copied.CreationTimestamp)
	assert.NotContains(d, copied.Labels, "changed")
	_, err = d.domains("unmutated")
	assert.Error(d, err, "an object has crossed without the plugin")

	// When the original module is restored, the failure must end without a restart.
	d.replaceModule(func(m *pluginsv1alpha1.PluginModule) { m.Spec.Data = intact })
	d.awaitLabels("unmutated", "two")
	d.awaitLabels("copied", "two")
	d.awaitState(pluginsv1alpha1.ActivePlugin, "Running")
	metrics, err = d.KubeletMetrics(d.ctx)
	d.must(err)
	assert.Empty(d, metrics["refract_plugin_held"].GetMetric())
}

// awaitEvent waits for an Event about an object.
func (d *declaredLab) awaitEvent(kind, name, reason string) {
	d.Helper()
	d.must(d.Wait(d.ctx, fmt.Sprintf("the Event %s about %s %s", reason, kind, name), func(ctx context.Context) (string, error) {
		events, err := d.Consumer.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err.Error(), nil
		}
		var found []string
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == kind && e.Reason == reason {
				return "", nil
			}
			found = append(found, e.Reason+": "+e.Message)
		}
		return fmt.Sprintf("there are %q", found), nil
	}))
}

func (d *declaredLab) testDeleted() {
	d.must(d.Consumer.Dynamic.Resource(pluginGVR).Delete(d.ctx, "strip", metav1.DeleteOptions{}))
	d.awaitLabels("copied", "one", "two")
}
