// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/refract-project/refract/hack"
	"github.com/refract-project/refract/test/support/testenv/machine"
)

// ErrNoTools is returned if the pinned binaries are not in the cache. `make tools` creates them.
var ErrNoTools = errors.New("run `make tools` first (REFRACT_CACHE names a cache elsewhere)")

// ErrNoNodeTools is returned if the binaries of real nodes are not in the cache. `make node-tools` creates them.
var ErrNoNodeTools = errors.New("run `make node-tools` first (REFRACT_CACHE names a cache elsewhere)")

// tools contains the paths of the pinned files.
type tools struct {
	etcd, etcdutl, apiServer, controllerManager, scheduler, kubectl string
	// promptControllerManager is a controller manager with short delays, for clusters with simulated nodes.
	promptControllerManager string
	kwok, kwokStages        string
}

// tool is a file of a component, and the variable to which its path is written.
type tool struct {
	component, file string
	path            *string
}

func findTools() (tools, error) {
	var t tools
	err := find([]tool{
		{"etcd", "etcd", &t.etcd},
		{"etcd", "etcdutl", &t.etcdutl},
		{"kubernetes", "kube-apiserver", &t.apiServer},
		{"kubernetes", "kube-controller-manager", &t.controllerManager},
		{"kubernetes", "kube-controller-manager-prompt", &t.promptControllerManager},
		{"kubernetes", "kube-scheduler", &t.scheduler},
		{"kubernetes", "kubectl", &t.kubectl},
		{"kwok", "kwok", &t.kwok},
		{"kwok", "stages.yaml", &t.kwokStages},
	}, ErrNoTools)
	return t, err
}

func find(tools []tool, missing error) error {
	for _, f := range tools {
		dir, err := hack.ToolDir(f.component)
		if err != nil {
			return err
		}
		*f.path = filepath.Join(dir, f.file)
		if _, err := os.Stat(*f.path); err != nil {
			return fmt.Errorf("looking for %s %s, %w: %w", f.component, hack.Version(f.component), err, missing)
		}
	}
	return nil
}

// nodeTools contains the paths of the programs and files for real nodes.
type nodeTools struct {
	kubelet, kubeProxy, containerd, shim, runc, cniBridge, coreDNS, metricsServer string
}

func findNodeTools() (nodeTools, error) {
	var t nodeTools
	err := find([]tool{
		{"kubernetes", "kubelet", &t.kubelet},
		{"kubernetes", "kube-proxy", &t.kubeProxy},
		{"containerd", "containerd", &t.containerd},
		{"containerd", "containerd-shim-runc-v2", &t.shim},
		{"runc", "runc", &t.runc},
		{"cni", "bridge", &t.cniBridge},
		{"coredns", "coredns", &t.coreDNS},
		{"metricsserver", "metrics-server", &t.metricsServer},
	}, ErrNoNodeTools)
	return t, err
}

// NodesHere returns an error if clusters with real nodes cannot be started on this computer. The error names the
// missing requirement.
func NodesHere() error {
	if err := machine.Check(); err != nil {
		return err
	}
	_, err := findNodeTools()
	return err
}

// Kubectl returns the path of a kubectl with the same version as the control planes, or ErrNoTools.
func Kubectl() (string, error) {
	t, err := findTools()
	return t.kubectl, err
}
