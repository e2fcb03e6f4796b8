// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tools finds the pinned programs that test clusters consist of. `make tools` and `make node-tools` build them.
package tools

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

// ControlPlane contains the paths of the programs and files for control planes and simulated nodes.
type ControlPlane struct {
	Etcd, Etcdutl, APIServer, ControllerManager, Scheduler, Kubectl string
	// PromptControllerManager is a controller manager with short delays, for clusters with simulated nodes.
	PromptControllerManager string
	Kwok, KwokStages        string
}

// tool is a file of a component, and the variable to which its path is written.
type tool struct {
	component, file string
	path            *string
}

// FindControlPlane returns the paths for control planes, or an error that wraps ErrNoTools.
func FindControlPlane() (ControlPlane, error) {
	var t ControlPlane
	err := find([]tool{
		{"etcd", "etcd", &t.Etcd},
		{"etcd", "etcdutl", &t.Etcdutl},
		{"kubernetes", "kube-apiserver", &t.APIServer},
		{"kubernetes", "kube-controller-manager", &t.ControllerManager},
		{"kubernetes", "kube-controller-manager-prompt", &t.PromptControllerManager},
		{"kubernetes", "kube-scheduler", &t.Scheduler},
		{"kubernetes", "kubectl", &t.Kubectl},
		{"kwok", "kwok", &t.Kwok},
		{"kwok", "stages.yaml", &t.KwokStages},
	}, ErrNoTools)
	return t, err
}

func find(files []tool, missing error) error {
	for _, f := range files {
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

// Node contains the paths of the programs and files for real nodes.
type Node struct {
	Kubelet, KubeProxy, Containerd, Shim, Runc, CNIBridge, CoreDNS, MetricsServer string
}

// FindNode returns the paths for real nodes, or an error that wraps ErrNoNodeTools.
func FindNode() (Node, error) {
	var t Node
	err := find([]tool{
		{"kubernetes", "kubelet", &t.Kubelet},
		{"kubernetes", "kube-proxy", &t.KubeProxy},
		{"containerd", "containerd", &t.Containerd},
		{"containerd", "containerd-shim-runc-v2", &t.Shim},
		{"runc", "runc", &t.Runc},
		{"cni", "bridge", &t.CNIBridge},
		{"coredns", "coredns", &t.CoreDNS},
		{"metricsserver", "metrics-server", &t.MetricsServer},
	}, ErrNoNodeTools)
	return t, err
}

// NodesHere returns an error if clusters with real nodes cannot be started on this computer. The error names the
// missing requirement.
func NodesHere() error {
	if err := machine.Check(); err != nil {
		return err
	}
	_, err := FindNode()
	return err
}

// Kubectl returns the path of a kubectl with the same version as the control planes, or ErrNoTools.
func Kubectl() (string, error) {
	t, err := FindControlPlane()
	return t.Kubectl, err
}
