// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/refract-project/refract/test/support/testenv/tools"
)

// Kubeconfig returns the path of an administrator's kubeconfig. It contains the contexts "home" and "cloud" for the two
// clusters. The file exists until Down is called.
func (l *Lab) Kubeconfig() string { return filepath.Join(l.dir, "kubeconfig") }

func (l *Lab) writeKubeconfig() error {
	rules := clientcmd.ClientConfigLoadingRules{}
	for _, side := range []*Side{l.Consumer, l.Provider} {
		path := filepath.Join(l.dir, side.ID+".conf")
		if err := side.KubeconfigFor(path, "admin-of-"+side.ID, "system:masters"); err != nil {
			return err
		}
		rules.Precedence = append(rules.Precedence, path)
	}
	merged, err := rules.Load()
	if err != nil {
		return fmt.Errorf("merging kubeconfigs, %w", err)
	}
	if err := clientcmd.WriteToFile(*merged, l.Kubeconfig()); err != nil {
		return fmt.Errorf("writing the merged kubeconfig, %w", err)
	}
	return nil
}

// Kubectl runs kubectl as an administrator of both clusters, and returns its standard output. The first argument is
// usually --context=home or --context=cloud.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	path, err := tools.Kubectl()
	if err != nil {
		return "", err
	}
	return l.command(ctx, path, args...)
}

// Apply applies a manifest to a cluster, "home" or "cloud".
func (l *Lab) Apply(ctx context.Context, cluster string, manifest []byte) error {
	file, err := os.CreateTemp(l.dir, "manifest-*.yaml")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(manifest)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	_, err = l.Kubectl(ctx, "--context="+cluster, "apply", "-f", file.Name())
	return err
}

// Refractctl runs refractctl for the consumer, with the permissions of its administrator.
func (l *Lab) Refractctl(ctx context.Context, args ...string) (string, error) {
	return l.command(ctx, filepath.Join(l.bin, "refractctl"), args...)
}

func (l *Lab) command(ctx context.Context, path string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig())
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("running %s %s, %w: %s", filepath.Base(path), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
