// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
)

// monitored returns the values of a cluster that is both consumer and provider and runs gateways, with all monitoring enabled.
func monitored(t *testing.T) map[string]any {
	t.Helper()
	vals := gatewayValues(t)
	gateways := vals["networking"].(map[string]any)["gateways"].(map[string]any)
	gateways["agent"] = map[string]any{"metrics": map[string]any{"onNodeAddress": true}}
	on := func() map[string]any {
		return map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}}
	}
	vals["metrics"] = map[string]any{"enabled": true, "serviceMonitor": on(), "podMonitor": on(), "prometheusRule": on(), "dashboards": on()}
	return vals
}

func TestMonitoring(t *testing.T) {
	rendered, err := render(t, monitored(t))
	require.NoError(t, err)
	objects, podMonitors := map[string]*unstructured.Unstructured{}, 0
	for _, object := range monitoringObjects(t, rendered) {
		if object.GetKind() == "PodMonitor" {
			podMonitors++
		}
		objects[object.GetKind()] = object
		assert.Equal(t, "prometheus", object.GetLabels()["release"], object.GetKind())
		assert.Equal(t, releaseName, object.GetLabels()["app.kubernetes.io/instance"], object.GetKind())
	}
	require.Len(t, objects, 4)
	assert.Equal(t, 3, podMonitors, "virtual kubelets, gateways and agents")
	assert.Equal(t, "1", objects["ConfigMap"].GetLabels()["grafana_dashboard"])

	metrics, runbooks := read(t, "../docs/metrics.md"), read(t, "../docs/runbooks.md")
	var asked []string // sources of the queries, for error messages
	var expressions []string
	known := func(where, expression string) {
		asked, expressions = append(asked, where), append(expressions, expression)
	}
	groups, _, err := unstructured.NestedSlice(objects["PrometheusRule"].Object, "spec", "groups")
	require.NoError(t, err)
	require.Len(t, groups, 1)
	rules, _, err := unstructured.NestedSlice(groups[0].(map[string]any), "rules")
	require.NoError(t, err)
	for _, rule := range rules {
		fields := rule.(map[string]any)
		name := fields["alert"].(string)
		known(name, fields["expr"].(string))
		annotations := fields["annotations"].(map[string]any)
		assert.Equal(t, "https://github.com/refract-project/refract/blob/main/docs/runbooks.md#"+strings.ToLower(name), annotations["runbook_url"])
		assert.True(t, strings.Contains(runbooks, "\n## "+name+"\n"), "the runbooks have no section for the alert %s", name)
		assert.NotContains(t, annotations["summary"], `{{ "`, "it is Prometheus that fills the labels in")
	}
	assert.Len(t, regexp.MustCompile(`(?m)^## `).FindAllString(runbooks, -1), len(rules))

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	content, _, err := unstructured.NestedString(objects["ConfigMap"].Object, "data", "refract.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(content), &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			known(panel.Title, target.Expr)
		}
	}
	used := map[string]bool{}
	for i, names := range selected(t, expressions...) {
		assert.NotEmpty(t, names, asked[i])
		for _, name := range names {
			used[name] = true
			assert.Contains(t, metrics, "`"+strings.TrimSuffix(name, "_bucket")+"`", "%s asks for %s", asked[i], name)
		}
	}
	var watched int
	for _, row := range gatewayRow.FindAllStringSubmatch(metrics, -1) {
		if strings.TrimSpace(row[2]) != "" {
			watched++
			assert.True(t, used[row[1]], "docs/metrics.md names a reason to investigate %s, but no alert or panel uses it", row[1])
		}
	}
	assert.Greater(t, watched, 10)
}

// gatewayRow matches a row of docs/metrics.md about a metric of gateways: the metric, and when to investigate.
var gatewayRow = regexp.MustCompile("(?m)^\\| `(refract_gateway_[a-z_]+)` \\|[^|]*\\|[^|]*\\|([^|]*)\\|$")

// monitoringObjects returns the objects for the Prometheus operator and Grafana.
func monitoringObjects(t *testing.T, rendered map[string]string) (found []*unstructured.Unstructured) {
	t.Helper()
	for name, content := range rendered {
		if !strings.HasSuffix(name, "monitoring.yaml") {
			continue
		}
		for _, document := range documents(t, content) {
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.UnmarshalStrict(document, &object.Object), string(document))
			found = append(found, object)
		}
	}
	return found
}

// podMonitor returns the PodMonitor of a name, or nil if the chart does not create it.
func podMonitor(t *testing.T, vals map[string]any, name string) *unstructured.Unstructured {
	t.Helper()
	rendered, err := render(t, vals)
	require.NoError(t, err)
	for _, object := range monitoringObjects(t, rendered) {
		if object.GetKind() == "PodMonitor" && object.GetName() == name {
			return object
		}
	}
	return nil
}

// TestPodMonitorsSelectGateways checks that the PodMonitors select the pods of gateways and agents, and the ports of their metrics.
func TestPodMonitorsSelectGateways(t *testing.T) {
	vals := monitored(t)
	served := maps.Clone(vals)
	served["metrics"] = map[string]any{"enabled": true} // there are no Go types for the objects of the Prometheus operator
	agents := get[*appsv1.DaemonSet](t, objects(t, served), "refract-gateway-agent").Spec.Template
	pods := map[string]corev1.PodTemplateSpec{"refract-gateway-agents": agents}
	server := get[*networking.WgGatewayServerTemplate](t, objects(t, served), "wireguard-server")
	deployment := &appsv1.Deployment{}
	require.NoError(t, json.Unmarshal(server.Spec.Template.Raw, deployment))
	pods["refract-gateways"] = deployment.Spec.Template
	for name, pod := range pods {
		monitor := podMonitor(t, vals, name)
		require.NotNil(t, monitor, name)
		selector, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
		require.NoError(t, err)
		assert.Len(t, selector, 2, name)
		for key, value := range selector {
			assert.Equal(t, value, pod.Labels[key], "%s: %s", name, key)
		}
		endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "podMetricsEndpoints")
		require.NoError(t, err)
		require.Len(t, endpoints, 1)
		var ports []string
		for _, port := range pod.Spec.Containers[0].Ports {
			ports = append(ports, port.Name)
		}
		assert.Contains(t, ports, endpoints[0].(map[string]any)["port"], name)
	}
	everywhere, _, err := unstructured.NestedBool(podMonitor(t, vals, "refract-gateways").Object, "spec", "namespaceSelector", "any")
	require.NoError(t, err)
	assert.True(t, everywhere, "gateways run in tenant namespaces")
	assert.Equal(t, int32(6095), agents.Spec.Containers[0].Ports[0].ContainerPort)
	assert.Contains(t, agents.Spec.Containers[0].Args, "--metrics-address=[$(NODE_IP)]:6095")

	gateways := vals["networking"].(map[string]any)["gateways"].(map[string]any)
	delete(gateways, "agent")
	assert.Nil(t, podMonitor(t, vals, "refract-gateway-agents"), "by default, agents serve their metrics on loopback only")
	agent := get[*appsv1.DaemonSet](t, objects(t, served), "refract-gateway-agent").Spec.Template.Spec.Containers[0]
	assert.Empty(t, agent.Ports)
	assert.NotContains(t, strings.Join(agent.Args, " "), "metrics-address")
	delete(vals, "networking")
	assert.Nil(t, podMonitor(t, vals, "refract-gateways"), "there are no gateways")
	assert.NotNil(t, podMonitor(t, vals, "refract-virtual-kubelets"))
}

// TestAlertsAreSettable checks that operators can change single alerts, and add labels to all alerts.
func TestAlertsAreSettable(t *testing.T) {
	vals := monitored(t)
	rule := vals["metrics"].(map[string]any)["prometheusRule"].(map[string]any)
	rule["alertLabels"] = map[string]any{"team": "platform"}
	rule["alerts"] = map[string]any{
		"RefractNetworkDown":       map[string]any{"enabled": false},
		"RefractCredentialsExpire": map[string]any{"severity": "critical", "for": "6h", "labels": map[string]any{"team": "security"}},
	}
	alerts := alertsOf(t, vals)
	assert.NotContains(t, alerts, "RefractNetworkDown")
	assert.Equal(t, map[string]any{"severity": "critical", "team": "security"}, alerts["RefractCredentialsExpire"]["labels"])
	assert.Equal(t, "6h", alerts["RefractCredentialsExpire"]["for"])
	assert.Equal(t, map[string]any{"severity": "warning", "team": "platform"}, alerts["RefractPluginRefused"]["labels"])
	assert.Contains(t, alerts, "RefractControllerManagerDown")

	schema := read(t, "refract/values.schema.json")
	for name := range alertsOf(t, monitored(t)) {
		assert.Contains(t, schema, fmt.Sprintf("%q: { \"$ref\": \"#/definitions/alert\" }", name))
	}
	rule["alerts"] = map[string]any{"RefractNetworkDown": map[string]any{"for": "soon"}}
	mustFail(t, vals, "alerts/RefractNetworkDown/for")
	rule["alerts"] = map[string]any{"RefractNetworkUp": map[string]any{}}
	mustFail(t, vals, "RefractNetworkUp")
}

// alertsOf returns the alerts of the chart by name.
func alertsOf(t *testing.T, vals map[string]any) map[string]map[string]any {
	t.Helper()
	rendered, err := render(t, vals)
	require.NoError(t, err)
	found := map[string]map[string]any{}
	for _, object := range monitoringObjects(t, rendered) {
		groups, _, err := unstructured.NestedSlice(object.Object, "spec", "groups")
		require.NoError(t, err)
		for _, group := range groups {
			for _, alert := range group.(map[string]any)["rules"].([]any) {
				found[alert.(map[string]any)["alert"].(string)] = alert.(map[string]any)
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

// TestLabelClusterIsFree checks that no query of the chart uses the label cluster, because many Prometheus
// installations set this label to the cluster from which a sample comes.
func TestLabelClusterIsFree(t *testing.T) {
	for _, file := range []string{"refract/files/monitoring/alerts.yaml", "refract/files/monitoring/dashboard.json"} {
		for line := range strings.Lines(read(t, file)) {
			if strings.Contains(line, "expr") || strings.Contains(line, "legendFormat") || strings.Contains(line, "$labels") {
				assert.NotRegexp(t, `\(cluster\b|\bcluster *[,)=!}]|labels\.cluster\b`, line, file)
			}
		}
	}
}

// selected returns the metrics that each PromQL expression selects. It runs Prometheus' own parser, which is in a
// separate Go module.
func selected(t *testing.T, expressions ...string) (metrics [][]string) {
	t.Helper()
	out, said, err := parsed(t, expressions...)
	require.NoError(t, err, said)
	for line := range strings.Lines(out) {
		metrics = append(metrics, strings.Fields(line))
	}
	require.Len(t, metrics, len(expressions))
	return metrics
}

// parsed returns the standard output of the parser, and the messages of the parser and the Go command.
func parsed(t *testing.T, expressions ...string) (out, said string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "run", ".")
	command.Dir, command.Stdin = "../hack/promql", strings.NewReader(strings.Join(expressions, "\n"))
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

func TestWrongPromQL(t *testing.T) {
	for _, wrong := range []string{"sum by (cluster (refract_up)", "rate(refract_up)", "refract_up == "} {
		_, said, err := parsed(t, wrong)
		assert.Error(t, err, wrong)
		assert.Contains(t, said, "promql: "+wrong)
	}
	assert.Equal(t, [][]string{{"refract_a", "refract_b_total"}}, selected(t, `max by (le) (refract_a) / rate({__name__="refract_b_total"}[5m]) > 0`))
}

func TestMonitoringNeedsMetrics(t *testing.T) {
	vals := monitored(t)
	vals["metrics"].(map[string]any)["enabled"] = false
	mustFail(t, vals, "set metrics.enabled=true")
	vals = monitored(t)
	vals["metrics"].(map[string]any)["podMonitor"] = map[string]any{"enabled": true, "interval": "often"}
	mustFail(t, vals, "interval")
}
