// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/hack"
	"github.com/refract-project/refract/test/support/netlab"
	"github.com/refract-project/refract/test/support/testenv"
)

// The commands of a gateway of Liqo, with the paths that they have in its image.
const (
	liqoTunnel    = "usr/bin/liqo-wireguard"
	liqoChecker   = "usr/bin/liqo-gateway"
	liqoWireGuard = "usr/bin/wireguard-go" // Liqo starts it by this path
)

// TestLiqoClient connects an unmodified client of Liqo to two pods of a gateway, and kills the active one.
func TestLiqoClient(t *testing.T) {
	if _, err := findLiqoGateway(); err != nil {
		if os.Getenv("REFRACT_LIQO") != "" {
			t.Fatal(err)
		}
		t.Skipf("Liqo takes minutes to build: run `make test-liqo` (%v)", err)
	}
	c := newCosts()
	c.measureLiqoClient(t)
	require.NotEmpty(t, c.table.Figures)
}

// findLiqoGateway returns the files of the commands of a gateway of Liqo, by their paths in its image.
func findLiqoGateway() (map[string]string, error) {
	tools, err := hack.ToolDir("liqo")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, name := range []string{liqoTunnel, liqoChecker, liqoWireGuard} {
		files[name] = filepath.Join(tools, filepath.Base(name))
		if _, err := os.Stat(files[name]); err != nil {
			return nil, fmt.Errorf("the commands of Liqo's gateway are missing, run `make liqo-tools`: %w", err)
		}
	}
	return files, nil
}

// measureLiqoClient measures the interruption of a TCP connection when the active pod of a server is killed, whose client is Liqo's.
// The Service forgets its connections to the dead pod, as kube-proxy does. Otherwise the pings of the client keep them alive, and it
// never reaches the other pod.
func (c *costs) measureLiqoClient(t *testing.T) {
	const what = "longest gap of an established TCP connection, gateway killed, the other one is Liqo's client"
	files, err := findLiqoGateway()
	if err != nil {
		c.table.Add(what, "not measured: run `make liqo-tools`")
		return
	}
	limitMemory(t)
	rome, milan, pods := newLiqoClient(t, files)
	listen(t, milan.pod)
	connection, source := dialRetrying(t, rome.pod, "10.61.1.10:"+echoTCPPort)
	require.Equal(t, "10.71.1.10", source)
	flow := startFlow(t, connection)
	for _, s := range []*site{rome, milan} {
		s.awaitConnection(t, networking.Connected)
	}
	var killed []time.Duration
	for round := range *rounds {
		progress("round %d of %d with a killed server of a client of Liqo", round+1, *rounds)
		killed = append(killed, interrupt(t, pods, flow, func(active *command) { active.kill() }))
	}
	t.Logf("longest gaps: %s", killed)
	c.table.AtMost(what, median(killed).Seconds(), 2, " s")
	c.table.Add("   of all rounds", "%s", killed)
}

// newLiqoClient creates two sites. Two pods of a gateway of Refract are the server in milan. The client in rome is Liqo's: its
// tunnel and its checks of the connection. The agents on the nodes of rome are Refract's, and so are the routes and rules in the
// namespace of the client, because Liqo's way between nodes and gateways needs a kernel with Geneve.
func newLiqoClient(t *testing.T, files map[string]string) (rome, milan *site, pods *gatewayPods) {
	t.Helper()
	romeOptions := testenv.Options{Name: "rome", CRDPaths: []string{networkCRDs, copyLiqoCRDs(t)}, NoScheduler: true}
	milanOptions := testenv.Options{Name: "milan", CRDPaths: romeOptions.CRDPaths[:1], NoScheduler: true}
	clusters := testenv.ForTest(t, romeOptions, milanOptions)
	rome, milan = newSite(t, clusters[0]), newSite(t, clusters[1])
	netlab.Cable(rome.gatewayNode, "internet", internetRome+"/24", milan.gatewayNode, "internet", internetMil+"/24")
	milan.electing = true
	pods = startGatewayPods(t, milan)
	rome.createPeering(t, milan, milanInRome)
	milan.createPeering(t, rome, romeInMilan)
	forwardToActivePod(t, milan, func() { forgetPort(t, milan.gatewayNode, tunnelPort) })
	for _, s := range []*site{rome, milan} {
		s.startAgents(t)
	}

	gatewayClient := &networking.GatewayClient{}
	require.NoError(t, rome.client.Get(t.Context(), client.ObjectKey{Namespace: rome.tenant, Name: gatewayName}, gatewayClient))
	shared := []string{"--name=" + gatewayName, "--namespace=" + rome.tenant, "--remote-cluster-id=milan", "--mode=client",
		"--gateway-uid=" + string(gatewayClient.UID), "--node-name=gateway-node", "--pod-name=gateway"}
	image := rome.newLiqoImage(t, files)
	rome.startInImage(t, image, liqoTunnel, append(shared, "--container-name=wireguard", "--implementation=userspace", "--mtu=1340",
		"--endpoint-address="+internetMil, fmt.Sprint("--endpoint-port=", tunnelPort), "--keys-dir=/keys")...)
	await(t, func() error {
		link, err := rome.gate.Links().LinkByName(desired.TunnelLink)
		if err != nil {
			return err
		}
		return expect(link.Attrs().Flags&net.FlagUp, net.FlagUp) // Liqo has added its address
	})
	rome.startInImage(t, image, liqoChecker, append(shared, "--container-name=gateway", "--concurrent-containers-names=wireguard")...)
	rome.peering.Configuration, rome.peering.Client = configuration("milan", milanInRome), gatewayClient
	rome.peering.Endpoint = netip.AddrPortFrom(netip.MustParseAddr(internetMil), tunnelPort)
	require.Positive(t, start(t, rome.gate, "fabric").apply(rome.peering))
	return rome, milan, pods
}

// forgetPort deletes the tracked connections to a UDP port of a node. kube-proxy does so with those that lead to a pod that is gone.
func forgetPort(t *testing.T, node *netlab.Host, port uint16) {
	t.Helper()
	filter := &netlink.ConntrackFilter{}
	require.NoError(t, errors.Join(filter.AddProtocol(unix.IPPROTO_UDP), filter.AddPort(netlink.ConntrackOrigDstPort, port)))
	require.NoError(t, node.Do(func() error {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filter)
		return err
	}))
}

// runFabric applies the links, routes and rules of a gateway whose tunnel is another process.
func runFabric(ctx context.Context, peerings <-chan desired.Peering, report func(gateway.Report)) error {
	applier, err := netstate.NewApplier(desired.GatewayScope)
	if err != nil {
		return err
	}
	defer applier.Close()
	compiled, err := desired.CompileGateway(<-peerings)
	if err != nil {
		return err
	}
	states := make(chan netstate.State, 1)
	states <- compiled.State
	return applier.Keep(ctx, states, func(o netstate.Outcome) { report(gateway.Report{Network: &o}) })
}

// networkCRDs is the folder with the CRDs of a network between clusters.
const networkCRDs = "../../api/crds/network"

// copyLiqoCRDs returns a folder with all other CRDs of Liqo, whose API groups a gateway of Liqo expects.
func copyLiqoCRDs(t *testing.T) string {
	t.Helper()
	tools, err := hack.ToolDir("liqo")
	require.NoError(t, err)
	folder := t.TempDir()
	files, err := filepath.Glob(filepath.Join(tools, "chart/charts/liqo-crds/crds/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := filepath.Base(file)
		if _, err := os.Stat(filepath.Join(networkCRDs, name)); err == nil {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	return folder
}

// newLiqoImage creates the root file system of a gateway of Liqo until the test ends, and makes the API server reachable from its host.
func (s *site) newLiqoImage(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	api := &command{t: t, host: s.gate, apiServer: strings.TrimPrefix(s.control.Server(), "https://")}
	api.connect()
	t.Cleanup(api.cut)
	root = t.TempDir()
	for _, folder := range []string{"usr/bin", "var/run", "dev/net", "proc", "keys", "tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	for name, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, name), text, 0o700)) // #nosec G306 -- a program
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "keys/privateKey"), s.key[:], 0o400))
	require.NoError(t, s.control.KubeconfigFor(filepath.Join(root, "kubeconfig"), "liqo", "system:masters"))
	for name, isFile := range map[string]bool{"/proc": false, "/dev/net/tun": true, "/dev/null": true} {
		target := filepath.Join(root, name)
		if isFile {
			require.NoError(t, os.WriteFile(target, nil, 0o600))
		}
		require.NoError(t, unix.Mount(name, target, "", unix.MS_BIND, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(target, unix.MNT_DETACH)) })
	}
	return root
}

// startInImage starts a command of Liqo in the host of the gateway until the test ends.
func (s *site) startInImage(t *testing.T, root, name string, args ...string) {
	t.Helper()
	log := &logBuffer{}
	process := exec.Command("/"+name, args...)
	process.Dir, process.Env, process.Stdout, process.Stderr = "/", []string{"KUBECONFIG=/kubeconfig", "HOME=/", "USER=root"}, log, log
	// Liqo starts wireguard-go as a process of its own, which ends with its group.
	process.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Setpgid: true}
	require.NoError(t, s.gate.Start(process))
	var isStopped atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := process.Wait(); !isStopped.Load() {
			t.Errorf("%s ended: %v\n%s", name, err, log)
		}
	}()
	t.Cleanup(func() {
		isStopped.Store(true)
		_ = syscall.Kill(-process.Process.Pid, syscall.SIGKILL)
		<-ended
		if t.Failed() {
			t.Logf("%s:\n%s", name, log)
		}
	})
}
