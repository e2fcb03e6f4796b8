// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// alertCase is an alert and the series that it is evaluated for. The field names are those of hack/promql/evaluate.
type alertCase struct {
	Series []string `json:"series"`
	Expr   string   `json:"expr"`
	For    string   `json:"for"`

	name, alert string
	// fires contains the labels with which the alert fires. It is nil if it does not fire.
	fires map[string]string
}

// TestGatewayAlertsFire evaluates each alert about gateways for series with which it fires, and for similar ones with which it does not.
// There is a sample a minute, and "stale" is the end of a target.
func TestGatewayAlertsFire(t *testing.T) {
	const (
		gateway = `{namespace="liqo-tenant-milan",peer="milan",pod="a"} `
		other   = `{namespace="liqo-tenant-milan",peer="milan",pod="b"} `
		agent   = `{namespace="liqo",pod="agent"} `
		// consumer is a pod of a consumer, who chooses the metrics of its own pods.
		consumer = `{namespace="shop-rome",pod="a"} `

		active, connected = "refract_gateway_active", "refract_gateway_connected"
		answered          = "refract_gateway_answered_probes_total"
		missing           = "refract_gateway_vxlan_missing_ends"
		refused, refusals = "refract_gateway_refused", "refract_gateway_refusals_total"
		repairs           = "refract_gateway_repairs_total"
		foreign           = "refract_gateway_refused_probes_total"
		path, tunnel      = "refract_gateway_path_mtu_bytes", "refract_gateway_tunnel_mtu_bytes"
		available         = `kube_deployment_status_replicas_available{namespace="liqo-tenant-milan",deployment="gw-milan"} `
		replicas          = `kube_deployment_spec_replicas{namespace="liqo-tenant-milan",deployment="gw-milan"} `
		failures          = `refract_gateway_failures_total{namespace="liqo",pod="agent",part="network"} `
		writeFailures     = `refract_gateway_connection_writes_total{namespace="liqo-tenant-milan",peer="milan",pod="a",result="failure"} `
		lost              = `refract_gateway_takeovers_total{namespace="liqo-tenant-milan",peer="milan",pod="a",reason="lost"} `
		leaving           = `refract_gateway_takeovers_total{namespace="liqo-tenant-milan",peer="milan",pod="a",reason="leaving"} `
	)
	milan := map[string]string{"namespace": "liqo-tenant-milan", "peer": "milan"}
	tenant := map[string]string{"namespace": "liqo-tenant-milan"}
	one := func(alert, name string, fires map[string]string, series ...string) alertCase {
		return alertCase{Series: series, alert: alert, name: name, fires: fires}
	}
	cases := []alertCase{
		one("RefractGatewayNotConnected", "the peer does not answer", milan,
			active+gateway+"1x10", connected+gateway+"0x10", active+other+"0x10", connected+other+"0x10"),
		one("RefractGatewayNotConnected", "connected", nil,
			active+gateway+"1x10", connected+gateway+"1x10", active+other+"0x10", connected+other+"0x10"),
		one("RefractGatewayNotConnected", "lost for three minutes", nil, active+gateway+"1x10", connected+gateway+"1x7 0x2"),
		one("RefractGatewayNotConnected", "no pod is active, which is another alert", nil, active+gateway+"0x10", connected+gateway+"0x10"),
		one("RefractGatewayNotConnected", "an agent", nil, active+agent+"0x10", connected+agent+"0x10"),
		one("RefractGatewayNotConnected", "a pod of a consumer", nil, active+consumer+"1x10", connected+consumer+"0x10"),

		one("RefractGatewayDown", "two on standby", tenant, active+gateway+"0x10", active+other+"0x10"),
		one("RefractGatewayDown", "all pods are gone", tenant, active+gateway+"1x3 stale _x10"),
		one("RefractGatewayDown", "no pod ever ran", tenant, available+"0x10", replicas+"2x10"),
		one("RefractGatewayDown", "one active", nil, active+gateway+"1x10", active+other+"0x10", available+"2x10", replicas+"2x10"),
		one("RefractGatewayDown", "another pod has taken over", nil, active+gateway+"1x3 stale _x6", active+other+"0x3 1x6"),
		one("RefractGatewayDown", "paused on purpose", nil, available+"0x10", replicas+"0x10"),
		one("RefractGatewayDown", "an agent", nil, active+agent+"0x10"),

		one("RefractGatewaySplit", "two active", milan, active+gateway+"1x10", active+other+"1x10"),
		one("RefractGatewaySplit", "a takeover", nil, active+gateway+"1x5 0x4", active+other+"0x4 1x5"),

		one("RefractGatewayWithoutStandby", "one of two is available", tenant, available+"1x20", replicas+"2x20"),
		one("RefractGatewayWithoutStandby", "probes are blocked", tenant,
			active+gateway+"1x30", active+other+"0x30", answered+gateway+"7x30", answered+other+"0x30"),
		one("RefractGatewayWithoutStandby", "both are available", nil, available+"2x30", replicas+"2x30",
			active+gateway+"1x30", active+other+"0x30", answered+gateway+"0+60x30", answered+other+"0x30"),
		one("RefractGatewayWithoutStandby", "a gateway of one pod", nil,
			available+"1x30", replicas+"1x30", active+gateway+"1x30", answered+gateway+"0x30"),

		one("RefractGatewayTakeovers", "a takeover every ten minutes", milan, lost+"0x9 1x9 2x9 3x9 4x9"),
		one("RefractGatewayTakeovers", "one node died", nil, lost+"0x20 1x20"),
		one("RefractGatewayTakeovers", "rolling updates", nil, leaving+"0+1x40"),

		one("RefractNodesUnreachable", "two nodes", milan, missing+gateway+"2x15", missing+other+"0x15"),
		one("RefractNodesUnreachable", "a node that restarts", nil, missing+gateway+"0x10 1x3"),
		one("RefractNodesUnreachable", "an agent without gateways", nil, missing+agent+"1x15"),

		one("RefractPeeringRefused", "a gateway", milan, refused+gateway+"1x15", refused+other+"1x15"),
		one("RefractPeeringRefused", "an agent", map[string]string{"namespace": "liqo"}, refused+agent+"1x15"),
		one("RefractPeeringRefused", "objects that change back and forth", milan,
			refused+gateway+"0 1 0 1 0 1 0x40", refusals+gateway+"0+1x45"),
		one("RefractPeeringRefused", "a new peering", nil, refused+gateway+"0x10 1x4", refusals+gateway+"0x10 1x4"),

		one("RefractGatewayFails", "an agent", map[string]string{"namespace": "liqo", "part": "network"}, failures+"0+2x40"),
		one("RefractGatewayFails", "a Connection",
			map[string]string{"namespace": "liqo-tenant-milan", "peer": "milan", "part": "Connection"}, writeFailures+"0+12x40"),
		one("RefractGatewayFails", "one failure", nil, failures+"0x20 1x5", writeFailures+"0x20 1x5"),

		one("RefractGatewayRepairs", "an agent", map[string]string{"namespace": "liqo", "pod": "agent"}, repairs+agent+"0+1x60"),
		one("RefractGatewayRepairs", "a restart of the network plugin", nil, repairs+gateway+"0x20 3x20"),

		one("RefractGatewayForeignProbes", "another pod sends", milan, foreign+gateway+"0+1x40"),
		one("RefractGatewayForeignProbes", "a few packets", nil, foreign+gateway+"0x20 3x5"),

		one("RefractPathMTUReduced", "shorter packets", milan,
			path+gateway+"1280x20", tunnel+gateway+"1340x20", path+other+"0x20", tunnel+other+"0x20"),
		one("RefractPathMTUReduced", "the MTU of the tunnel", nil, path+gateway+"1340x20", tunnel+gateway+"1340x20"),
		one("RefractPathMTUReduced", "nothing is measured", nil, path+gateway+"0x20", tunnel+gateway+"1340x20"),
	}
	alerts := alertsOf(t, monitored(t))
	tried := map[string][2]bool{}
	for i := range cases {
		c := &cases[i]
		rule := alerts[c.alert]
		require.NotNil(t, rule, c.alert)
		c.Expr, c.For = rule["expr"].(string), rule["for"].(string)
		outcomes := tried[c.alert]
		tried[c.alert] = [2]bool{outcomes[0] || c.fires != nil, outcomes[1] || c.fires == nil}
	}
	for i, firing := range evaluated(t, cases) {
		var expected []map[string]string
		if cases[i].fires != nil {
			expected = append(expected, cases[i].fires)
		}
		assert.ElementsMatch(t, expected, firing, "%s: %s", cases[i].alert, cases[i].name)
	}
	for name, rule := range alerts {
		if strings.Contains(rule["expr"].(string), "refract_gateway_") {
			assert.Equal(t, [2]bool{true, true}, tried[name], "%s is tried with series with which it fires, and with others", name)
		}
	}
}

// evaluated returns the labels with which the alert of each case fires after its last sample.
func evaluated(t *testing.T, cases []alertCase) (firing [][]map[string]string) {
	t.Helper()
	input, err := json.Marshal(cases)
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), "go", "run", "./evaluate")
	command.Dir, command.Stdin = "../hack/promql", bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	require.NoError(t, command.Run(), stderr.String)
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &firing))
	require.Len(t, firing, len(cases))
	return firing
}
