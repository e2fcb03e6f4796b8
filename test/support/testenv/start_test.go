// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

func TestStartNamesWhatIsWrong(t *testing.T) {
	testenv.NeedControlPlane(t)
	occupied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(occupied, "thesis.txt"), []byte("do not lose"), 0o600))
	for name, test := range map[string]struct {
		options testenv.Options
		want    []string
	}{
		"a name that is no label":       {testenv.Options{Name: "My Cluster"}, []string{`"My Cluster"`}},
		"a range that is none":          {testenv.Options{PodCIDR: "10.0.0.0"}, []string{"10.0.0.0"}},
		"a folder with something in it": {testenv.Options{Dir: occupied}, []string{occupied, "not empty"}},
		"a component that cannot run": {
			testenv.Options{Name: "broken", ExtraAPIServerArgs: []string{"--authorization-mode=Telepathy"}},
			[]string{"cluster broken", "kube-apiserver ended", "Telepathy"},
		},
		"definitions that are missing": {testenv.Options{CRDPaths: []string{"testdata/absent"}}, []string{"testdata/absent"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := testenv.Start(t.Context(), test.options)
			if err == nil {
				t.Fatal(errors.Join(errors.New("started all the same"), c.Stop()))
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
	if _, err := os.Stat(filepath.Join(occupied, "thesis.txt")); err != nil {
		t.Errorf("a refused start touched the folder: %v", err)
	}
}

func TestStartWithoutToolsNamesTheRemedy(t *testing.T) {
	testenv.NeedControlPlane(t)
	t.Setenv("REFRACT_CACHE", t.TempDir())
	_, err := testenv.Start(t.Context(), testenv.Options{})
	if !errors.Is(err, tools.ErrNoTools) || !strings.Contains(err.Error(), "make tools") {
		t.Errorf("got %v", err)
	}
}

func TestStartStopsWithItsContext(t *testing.T) {
	testenv.NeedControlPlane(t)
	dir := filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := testenv.Start(ctx, testenv.Options{Dir: dir})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if left := processesIn(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the state folder is left: %v", err)
	}
}

func TestStopEndsEverythingAndTwiceIsFine(t *testing.T) {
	testenv.NeedControlPlane(t)
	dir := filepath.Join(t.TempDir(), "state")
	c, err := testenv.Start(t.Context(), testenv.Options{Dir: dir, NoScheduler: true})
	require.NoError(t, err)
	for range 2 {
		assert.NoError(t, c.Stop())
	}
	if left := processesIn(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the state folder is left: %v", err)
	}
	if err := c.StartAPIServer(t.Context()); err == nil {
		t.Error("a stopped cluster started its API server")
	}
}

// TestEndedCommandDoesNotCountAsAComponent checks that the end of a program that the test has started does not count as
// a failure of the cluster.
func TestEndedCommandDoesNotCountAsAComponent(t *testing.T) {
	c := testenv.ForTest(t, testenv.Options{NoScheduler: true})[0]
	command, err := c.StartCommand("kubelet", "/bin/sh", "-c", "echo out of film >&2; sleep 600")
	require.NoError(t, err)
	require.NoError(t, command.Failure(), "while it runs")
	command.Kill()
	if err := command.Failure(); err == nil || !strings.Contains(err.Error(), "kubelet ended") {
		t.Errorf("the failure of a killed command: %v", err)
	}
	require.NoError(t, c.AddKwokNodes(t.Context(), 1, nil))
}

// TestTheSchedulerIsStartedAgain checks that the scheduler, which exits when its cache is inconsistent, is restarted.
func TestTheSchedulerIsStartedAgain(t *testing.T) {
	c := testenv.ForTest(t, testenv.Options{})[0]
	first := c.Processes()["kube-scheduler"]
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.NoError(t, testenv.Wait(func() error {
		if now := c.Processes()["kube-scheduler"]; now == first {
			return errors.New("it is not started again")
		}
		return nil
	}))
	require.NoError(t, c.AddKwokNodes(t.Context(), 1, nil), "its end is no failure of the cluster")
}

// TestPortStaysReservedDuringAnOutage checks that no other process can take the port of the API server while the API
// server is down.
func TestPortStaysReservedDuringAnOutage(t *testing.T) {
	c := testenv.ForTest(t, testenv.Options{NoScheduler: true})[0]
	require.NoError(t, c.StopAPIServer())
	address := strings.TrimPrefix(c.Config().Host, "https://")
	if l, err := net.Listen("tcp", address); err == nil {
		_ = l.Close()
		t.Errorf("%s is free for others during the outage", address)
	}
	require.NoError(t, c.StartAPIServer(t.Context()))
}

func TestTempDirIsRemoved(t *testing.T) {
	dir, remove, err := testenv.TempDir("refract-test-")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, remove())
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
