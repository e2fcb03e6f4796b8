// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/tunnel"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/test/support/figures"
	"github.com/refract-project/refract/test/support/netlab"
	"github.com/refract-project/refract/test/support/short"
	"github.com/refract-project/refract/test/support/testenv"
)

// `make bench-network` sets these flags. By default, tests only check that everything can be measured.
var (
	rounds = flag.Int("rounds", 1, "rounds of TestCosts, whose median counts; one round is short and means nothing")
	judge  = flag.Bool("judge", false, "fail if a figure misses its goal")
	slack  = flag.Float64("slack", 1, "factor by which figures may miss their goals, for machines that are busy")
)

// costs contains the figures of TestCosts, and how long it measures them.
type costs struct {
	table figures.Table
	// period is how long each value is measured, and pods the number of pods whose start is measured.
	period time.Duration
	pods   int
}

func newCosts() *costs {
	c := &costs{table: figures.Table{Slack: *slack}, period: 100 * time.Millisecond, pods: 20}
	if *rounds > 1 {
		c.period, c.pods = 2*time.Second, 1000
	}
	return c
}

// TestCosts measures the cost of the network between clusters. Values that depend on the machine are ratios to plain WireGuard over the
// same hops in the same round.
func TestCosts(t *testing.T) {
	netlab.Need(t)
	short.NeedTime(t, "time to measure")
	ctrllog.SetLogger(logr.Discard()) // a library requires a logger
	c := newCosts()
	c.addMachine(t)
	t.Run("wireguard-go", func(t *testing.T) { c.measurePath(t, tunnel.Userspace) })
	hasKernel := hasKernelWireGuard(t)
	if hasKernel {
		t.Run("kernel", func(t *testing.T) { c.measurePath(t, tunnel.Kernel) })
	} else {
		c.table.Add("pod to pod with kernel WireGuard", "not measured: no kernel WireGuard")
	}
	if *rounds > 1 {
		t.Run("gateways", c.measureElectingGateways)
		t.Run("client of Liqo", c.measureLiqoClient)
	} // else TestTakeover and TestLiqoClient measure them, with their clusters
	if hasKernel {
		t.Run("memory", c.measureKernelMemory)
	} else {
		c.table.Add("memory of a gateway, kernel WireGuard", "not measured: no kernel WireGuard")
	}
	t.Run("200 peers", c.measureApply)
	var text bytes.Buffer
	err := c.table.Print(&text)
	if !*judge {
		err = nil
	}
	_, _ = text.WriteTo(os.Stdout)
	require.NoError(t, err)
}

// progress writes a line to standard error while figures are judged, because this takes minutes.
func progress(format string, args ...any) {
	if *rounds > 1 {
		fmt.Fprintf(os.Stderr, "… "+format+"\n", args...)
	}
}

// addMachine adds a description of this machine.
func (c *costs) addMachine(t *testing.T) {
	t.Helper()
	var name unix.Utsname
	require.NoError(t, unix.Uname(&name))
	load, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	processor := "unknown processor"
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(cpuinfo)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			processor = strings.TrimSpace(value)
			break
		}
	}
	c.table.Add("machine", "%d cores (%s), Linux %s, load %s before", runtime.NumCPU(), processor, unix.ByteSliceToString(name.Release[:]),
		strings.Fields(string(load))[0])
	c.table.Add("rounds", "%d of %s for each value, medians", *rounds, c.period)
}

// limitMemory gives the gateways that start later the memory limit of the chart.
func limitMemory(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../charts/refract/values.yaml")
	require.NoError(t, err)
	var chart struct {
		Networking struct {
			Gateways struct{ Resources corev1.ResourceRequirements }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &chart))
	limit := chart.Networking.Gateways.Resources.Limits.Memory().Value()
	require.Positive(t, limit)
	t.Setenv(cmdutil.MemoryLimitVariable, strconv.FormatInt(limit, 10))
}

func hasKernelWireGuard(t *testing.T) bool {
	t.Helper()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = plainLink
	return netlab.NewHost(t, "probe").Links().LinkAdd(&netlink.Wireguard{LinkAttrs: attributes}) == nil
}

// values are the measured values of a line, one for each round.
type values struct{ throughput, latency, connections, gateways, machine []float64 }

// measurePath measures the path between two pods, once with VXLAN and translated addresses, and once with WireGuard alone.
func (c *costs) measurePath(t *testing.T, implementation tunnel.Implementation) {
	t.Setenv(wireGuardVariable, string(implementation))
	limitMemory(t)
	rome, milan := newClusters(t)
	plainRome, plainMilan := newPlainClusters(t)
	ours := newLine(t, rome.pod, milan.pod, podIP, "10.61.1.10", rome.gateway.command.Process.Pid, milan.gateway.command.Process.Pid)
	plain := newLine(t, plainRome.pod, plainMilan.pod, plainRomeIP, plainMilanIP, plainRome.gateway.command.Process.Pid,
		plainMilan.gateway.command.Process.Pid)
	lines, found := []*line{ours, plain}, map[*line]*values{ours: {}, plain: {}}
	for _, l := range lines {
		listen(t, l.to)
		awaitLine(t, l)
	}
	for round := range *rounds {
		progress("round %d of %d with WireGuard in %s", round+1, *rounds, implementation)
		// Each value of both lines is measured one directly after the other, because the machine may become faster or slower meanwhile.
		for _, measure := range []func(*line, *values){
			func(l *line, v *values) {
				sent := l.sendBulk(t, 1, c.period)
				v.throughput = append(v.throughput, sent.gbit/sent.seconds)
				v.gateways = append(v.gateways, sent.gateways/sent.gbit)
				v.machine = append(v.machine, sent.machine/sent.gbit)
			},
			func(l *line, v *values) {
				v.latency = append(v.latency, float64(l.roundTrip(t, c.period).Microseconds()))
			},
			func(l *line, v *values) { v.connections = append(v.connections, l.connectRate(t, c.period)) },
		} {
			for i := range lines {
				l := lines[(i+round)%len(lines)]
				measure(l, found[l])
			}
		}
	}
	a, b := found[ours], found[plain]
	what := map[tunnel.Implementation]string{tunnel.Userspace: "wireguard-go", tunnel.Kernel: "kernel WireGuard"}[implementation]
	c.table.Add("pod to pod, ranges remapped, against plain "+what+" over the same hops:", "")
	add := func(name string, ours, plain []float64, format string, judge func(what string, ratio float64)) {
		c.table.Add("   "+name, format+" (plain "+format+")", median(ours), median(plain))
		judge("      ratio", medianRatio(ours, plain))
	}
	atMost := func(goal float64) func(string, float64) {
		return func(what string, ratio float64) { c.table.AtMost(what, ratio, goal, "") }
	}
	atLeast := func(goal float64) func(string, float64) {
		return func(what string, ratio float64) { c.table.AtLeast(what, ratio, goal, "") }
	}
	noGoal := func(what string, ratio float64) { c.table.Add(what, "%.2f", ratio) }
	add("TCP throughput, Gbit/s", a.throughput, b.throughput, "%.2f", atLeast(0.85))
	if implementation == tunnel.Kernel {
		atMost = func(float64) func(string, float64) { return noGoal }
		atLeast = atMost
	}
	add("median round trip of a request, µs", a.latency, b.latency, "%.0f", atMost(1.3))
	add("new connections/s", a.connections, b.connections, "%.0f", atLeast(0.9))
	add("processor time of the machine, s/Gbit", a.machine, b.machine, "%.2f", atMost(1.2))
	add("processor time of both gateways, s/Gbit", a.gateways, b.gateways, "%.2f", noGoal)
}

// awaitLine waits until a connection can be opened.
func awaitLine(t *testing.T, l *line) {
	t.Helper()
	await(t, func() error { return expect(connectsFrom(l.from, l.source, l.address+":"+echoTCPPort), true) })
}

// medianRatio returns the median of the ratios of the rounds.
func medianRatio(values, others []float64) float64 {
	var ratios []float64
	for i := range values {
		ratios = append(ratios, values[i]/others[i])
	}
	return median(ratios)
}

// measureElectingGateways measures two gateways of two pods.
func (c *costs) measureElectingGateways(t *testing.T) {
	t.Setenv(wireGuardVariable, string(tunnel.Userspace))
	limitMemory(t)
	begun := time.Now()
	rome, milan, pods := newElectingSites(t, agentsGroup, gatewaysGroup)
	for _, s := range []*site{rome, milan} {
		pods[s].awaitRoles()
	}
	listen(t, milan.pod)
	c.measureMemory(t, rome, milan, pods, "memory of a gateway, wireguard-go, while 8 connections send", 150)
	c.measureGateways(t, rome, milan, pods)
	c.measureWrites(t, rome, begun)
}

// measureGateways measures the command gateway with its objects on real API servers: interruptions of a TCP connection, and the detection
// of a dead peer. The pod of milan listens.
func (c *costs) measureGateways(t *testing.T, rome, milan *site, pods map[*site]*gatewayPods) {
	t.Helper()
	connection, _ := dial(t, rome.pod, "10.61.1.10:"+echoTCPPort)
	flow := startFlow(t, connection)
	flow.await(t)
	var killed, rolled, rotated, detected []time.Duration
	folders := map[*site][2]string{}
	for _, s := range []*site{rome, milan} {
		folders[s] = [2]string{s.keysDir, s.alternateKeysDir}
	}
	for round := range *rounds {
		progress("round %d of %d with killed, updated and unreachable gateways", round+1, *rounds)
		s, peer := rome, milan
		if round%2 == 1 {
			s, peer = milan, rome
		}
		killed = append(killed, interrupt(t, pods[s], flow, func(active *command) { active.kill() }))
		rolled = append(rolled, interrupt(t, pods[s], flow, func(active *command) {
			require.NoError(t, active.process.Process.Signal(unix.SIGTERM))
			require.NoError(t, active.process.Wait())
		}))
		flow.longestGap()
		s.rotate(t, peer, folders[s][0], folders[s][1], func() {})
		folders[s] = [2]string{folders[s][1], folders[s][0]}
		flow.await(t)
		rotated = append(rotated, flow.longestGap())
		detected = append(detected, detectDeath(t, rome, milan))
		flow.await(t)
	}
	add := func(what string, found []time.Duration, goal float64) {
		c.table.AtMost(what, median(found).Seconds(), goal, " s")
		c.table.Add("   of all rounds", "%s", found)
	}
	add("longest gap of an established TCP connection, gateway killed", killed, 2)
	add("longest gap of an established TCP connection, planned update", rolled, 0.5)
	add("longest gap of an established TCP connection, keys replaced", rotated, 0.5)
	add("dead peer until its Connection is not Connected", detected, 1.5)
}

// interrupt ends the active pod of a gateway, and returns the longest gap of the flow. The pod is a standby afterwards.
func interrupt(t *testing.T, pods *gatewayPods, flow *echoes, end func(active *command)) time.Duration {
	t.Helper()
	active, standby := pods.awaitRoles()
	flow.await(t)
	flow.longestGap()
	end(active)
	await(t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
	flow.await(t)
	gap := flow.longestGap()
	active.start()
	pods.awaitRoles()
	return gap
}

// detectDeath drops the packets of rome to the gateway of milan, and returns how long the Connection in rome stays Connected.
func detectDeath(t *testing.T, rome, milan *site) time.Duration {
	t.Helper()
	rome.awaitConnection(t, networking.Connected)
	watch, err := rome.client.Watch(t.Context(), &networking.ConnectionList{}, client.InNamespace(rome.tenant))
	require.NoError(t, err)
	defer watch.Stop()
	dropAt(t, milan.gatewayNode, nftables.ChainHookForward, tunnelPort)
	begun, timeout := time.Now(), time.After(time.Minute)
	for {
		select {
		case event := <-watch.ResultChan():
			if found, ok := event.Object.(*networking.Connection); !ok || found.Status.Value == networking.Connected {
				continue
			}
			took := time.Since(begun)
			allowPorts(t, milan.gatewayNode)
			rome.awaitConnection(t, networking.Connected)
			milan.awaitConnection(t, networking.Connected)
			return took.Round(time.Millisecond)
		case <-timeout:
			t.Fatal("the Connection of rome stays Connected")
		}
	}
}

// measureMemory sends from rome to milan, and adds the memory of the active gateway that needs more.
func (c *costs) measureMemory(t *testing.T, rome, milan *site, pods map[*site]*gatewayPods, what string, goal float64) {
	t.Helper()
	l := newLine(t, rome.pod, milan.pod, podIP, "10.61.1.10")
	awaitLine(t, l)
	l.sendBulk(t, 8, c.period*2)
	peak := int64(0)
	for _, p := range pods {
		active, _ := p.awaitRoles()
		usage, err := testenv.ProcessUsage(active.process.Process.Pid)
		require.NoError(t, err)
		peak = max(peak, usage.PeakRSS)
	}
	c.table.AtMost(what, float64(peak)/1e6, goal, " MB")
}

func (c *costs) measureKernelMemory(t *testing.T) {
	t.Setenv(wireGuardVariable, string(tunnel.Kernel))
	limitMemory(t)
	rome, milan, pods := newElectingSites(t)
	listen(t, milan.pod)
	c.measureMemory(t, rome, milan, pods, "memory of a gateway, kernel WireGuard, while 8 connections send", 40)
}

// measureWrites starts pods in rome, and counts the writes of gateways meanwhile, and those of agents since begun. Pods are started by
// writing their status, as a kubelet does.
func (c *costs) measureWrites(t *testing.T, rome *site, begun time.Time) {
	t.Helper()
	progress("%d pods start", c.pods)
	config := rome.control.Config()
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	start := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(10)
	for i := range c.pods {
		group.Go(func() error {
			noToken := false
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: fmt.Sprint("pod-", i)},
				Spec: corev1.PodSpec{NodeName: "node", AutomountServiceAccountToken: &noToken,
					Containers: []corev1.Container{{Name: "c", Image: "image"}}}}
			created, err := clients.CoreV1().Pods(installation).Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			created.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.1.%d.%d", 100+i/250, i%250+1),
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
			_, err = clients.CoreV1().Pods(installation).UpdateStatus(ctx, created, metav1.UpdateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
	time.Sleep(c.period) // a write that is caused by the last pod
	writes, refreshes := rome.countWrites(t, "gateway", start)
	c.table.AtMost(fmt.Sprintf("writes of gateways while %d pods start", c.pods), writes, 0, "")
	c.table.Add("   refreshes of Connections meanwhile, one in 10 s", "%.0f in %s", refreshes, time.Since(start).Round(time.Second))
	total, refreshed := rome.countWrites(t, "gateway", begun)
	require.Positive(t, total+refreshed, "the audit log has no writes of gateways")
	writes, refreshes = rome.countWrites(t, "agent", begun)
	c.table.AtMost("writes of agents since they were started", writes+refreshes, 0, "")
}

// countWrites returns how often a user has written since a time, and how often it has refreshed Connections, which does not depend on
// pods.
func (s *site) countWrites(t *testing.T, user string, since time.Time) (writes, refreshes float64) {
	t.Helper()
	text, err := os.ReadFile(s.control.AuditLogPath())
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		var event struct {
			User           struct{ Username string }
			ObjectRef      struct{ Resource string }
			StageTimestamp metav1.MicroTime
		}
		require.NoError(t, json.Unmarshal(line, &event))
		switch {
		case event.User.Username != user || event.StageTimestamp.Time.Before(since):
		case event.ObjectRef.Resource == "connections":
			refreshes++
		default:
			writes++
		}
	}
	return writes, refreshes
}

// measureApply measures how long an agent compares the configuration of a node with 200 peers of four ranges each, and how long it
// changes the configuration if the gateway of one peer has moved.
func (c *costs) measureApply(t *testing.T) {
	var compared, moved []time.Duration
	applyPeers(t, func(compare, move func() int) {
		for range 4 * *rounds {
			begun := time.Now()
			require.Zero(t, compare())
			compared = append(compared, time.Since(begun))
			begun = time.Now()
			require.Equal(t, movedWrites, move())
			moved = append(moved, time.Since(begun))
		}
	})
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	c.table.AtMost("agent with 200 peers of 4 ranges, nothing changed", milliseconds(median(compared)), 50, " ms")
	c.table.AtMost("agent with 200 peers of 4 ranges, one gateway moved", milliseconds(median(moved)), 100, " ms")
}
