// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/refract-project/refract/hack"
)

// ErrNoTools says that the pinned binaries are not in the cache. Remedy: `make tools`.
var ErrNoTools = errors.New("run `make tools` first (REFRACT_CACHE names a cache elsewhere)")

// tools are the paths of the pinned files.
type tools struct {
	etcd, etcdutl, apiServer, controllerManager, scheduler, kubectl string
	kwok, kwokStages                                                string
}

func findTools() (tools, error) {
	var t tools
	for _, f := range []struct {
		component, file string
		path            *string
	}{
		{"etcd", "etcd", &t.etcd},
		{"etcd", "etcdutl", &t.etcdutl},
		{"kubernetes", "kube-apiserver", &t.apiServer},
		{"kubernetes", "kube-controller-manager", &t.controllerManager},
		{"kubernetes", "kube-scheduler", &t.scheduler},
		{"kubernetes", "kubectl", &t.kubectl},
		{"kwok", "kwok", &t.kwok},
		{"kwok", "stages.yaml", &t.kwokStages},
	} {
		dir, err := hack.ToolDir(f.component)
		if err != nil {
			return t, err
		}
		*f.path = filepath.Join(dir, f.file)
		if _, err := os.Stat(*f.path); err != nil {
			return t, fmt.Errorf("looking for %s %s, %w: %w", f.component, hack.Version(f.component), err, ErrNoTools)
		}
	}
	return t, nil
}

// Kubectl returns the path of a kubectl of the control planes' version, or ErrNoTools.
func Kubectl() (string, error) {
	t, err := findTools()
	return t.kubectl, err
}
