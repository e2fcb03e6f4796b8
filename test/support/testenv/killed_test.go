// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// ownerVariable is an environment variable. If it is set, this test binary becomes a program that owns a cluster
// until it is killed.
const ownerVariable = "REFRACT_TESTENV_OWNER"

// owned is the output of the program that owns a cluster. It describes the cluster.
type owned struct {
	Dir, TempDir, Kubeconfig string
	Processes                map[string]int
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerVariable); dir != "" {
		own(dir)
	}
	os.Exit(m.Run())
}

// own starts a cluster from a thread that ends immediately afterwards, and then waits to be killed. The cluster must
// survive the end of the thread.
func own(dir string) {
	started := make(chan owned)
	go onMortalThread(func() {
		c, err := testenv.Start(context.Background(), testenv.Options{Name: "owned", KwokNodes: 1, Dir: dir})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		temp, _, err := testenv.TempDir("refract-owned-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		started <- owned{Dir: dir, TempDir: temp, Kubeconfig: c.Kubeconfig(), Processes: c.Processes()}
	})
	_ = json.NewEncoder(os.Stdout).Encode(<-started)
	select {}
}

// onMortalThread runs f on a thread that ends together with the calling goroutine. This must not be the main thread,
// which never ends. So if a goroutine runs on the main thread, it keeps this thread and passes f to another
// goroutine.
func onMortalThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go onMortalThread(f)
		select {}
	}
	f()
}

func TestKillLeavesNothingBehind(t *testing.T) {
	testenv.NeedControlPlane(t)
	dir := filepath.Join(t.TempDir(), "state")
	owner, cluster := startOwner(t, dir)
	if len(cluster.Processes) != 5 {
		t.Fatalf("want five components, got %v", cluster.Processes)
	}
	execSleep(t, cluster)
	_, err := os.Stat(cluster.TempDir)
	require.NoError(t, err)
	// The number includes the watchdog and the command of the simulated container.
	if before := processesIn(t, dir); len(before) < 7 {
		t.Fatalf("processes of the cluster while its owner lives: %v", before)
	}

	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()

	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		_, err := os.Stat(dir)
		_, tempErr := os.Stat(cluster.TempDir)
		return os.IsNotExist(err) && os.IsNotExist(tempErr) && len(processesIn(t, dir)) == 0, nil
	})
	assert.NoErrorf(t, err, "left behind by a killed owner: %v", processesIn(t, dir))
}

func startOwner(t *testing.T, dir string) (*exec.Cmd, owned) {
	t.Helper()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"="+dir)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	t.Cleanup(func() { _ = owner.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(t, err, "the owner started no cluster")
	var cluster owned
	require.NoError(t, json.Unmarshal(line, &cluster))
	return owner, cluster
}

// execSleep starts a long-running command in a simulated container. Its parent process is kwok, not this process.
func execSleep(t *testing.T, cluster owned) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig)
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	createPod(t, clients, "sleeper")
	awaitReady(t, clients, "sleeper")
	path, err := tools.Kubectl()
	require.NoError(t, err)
	// The path of the state folder is one of the shell's arguments, so that processesIn finds the shell.
	const script = "while :; do sleep 1; done"
	kubectl := exec.Command(path, "--kubeconfig", cluster.Kubeconfig, "exec", "sleeper", "--", "sh", "-c", script, cluster.Dir)
	kubectl.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, kubectl.Start())
	t.Cleanup(func() {
		_ = kubectl.Process.Kill()
		_ = kubectl.Wait()
	})
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		return slices.ContainsFunc(processesIn(t, cluster.Dir), func(p string) bool { return strings.Contains(p, script) }), nil
	})
	require.NoError(t, err, "no command runs in the simulated container")
}

// processesIn lists the processes that have the folder in the path of their working directory or in their arguments. It
// leaves out kubectl, which only has it in its arguments, and zombies, which have neither.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	entries, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, proc := range entries {
		cwd, _ := os.Readlink(proc + "/cwd")         // the process may have ended in the meantime
		cmdline, _ := os.ReadFile(proc + "/cmdline") // the process may have ended in the meantime
		arguments := strings.ReplaceAll(string(cmdline), "\x00", " ")
		if strings.HasPrefix(cwd, dir) || strings.Contains(arguments, dir) && !strings.Contains(arguments, "kubectl") {
			found = append(found, proc+" "+arguments)
		}
	}
	return found
}
