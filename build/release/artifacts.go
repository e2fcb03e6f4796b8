// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/registry"
)

// makeImages writes the images to archives, and their digests to a file. If a registry is set, it also pushes the images.
func (r *release) makeImages(ctx context.Context) error {
	destination, err := filepath.Abs(r.output)
	if err != nil {
		return err
	}
	args := []string{"run", "./build/images", "--output=" + destination, "--tag=" + r.version, "--platforms=" + strings.Join(r.images, ",")}
	if r.push != "" {
		args = append(args, "--push="+r.push)
	}
	if r.plainHTTP {
		args = append(args, "--plain-http")
	}
	digests, err := commandOutput(ctx, r.source, nil, "go", args...)
	if err != nil {
		return err
	}
	return os.WriteFile(r.filePath("images.txt"), []byte(digests+"\n"), 0o644)
}

// packChart packs the Helm chart.
func (r *release) packChart(context.Context) error {
	chart, err := loader.LoadDir(filepath.Join(r.source, "charts", "refract"))
	if err != nil {
		return err
	}
	if chart.Metadata.Version != r.version || chart.AppVersion() != r.version {
		return fmt.Errorf("charts/refract/Chart.yaml has version %s and appVersion %s: both must be %s", chart.Metadata.Version, chart.AppVersion(), r.version)
	}
	_, err = util.Save(chart, r.output)
	return err
}

// pushChart pushes the packed chart as REGISTRY/charts/refract.
func (r *release) pushChart(context.Context) error {
	if r.push == "" {
		return nil
	}
	content, err := os.ReadFile(r.filePath(chartFile(r.version)))
	if err != nil {
		return err
	}
	options := []registry.ClientOption{registry.ClientOptWriter(r.progress)}
	if r.plainHTTP {
		options = append(options, registry.ClientOptPlainHTTP())
	}
	client, err := registry.NewClient(options...)
	if err != nil {
		return err
	}
	_, err = client.Push(content, strings.TrimRight(r.push, "/")+"/charts/refract:"+r.version)
	return err
}

// chartFile returns the file name of the packed chart for a version.
func chartFile(version string) string {
	return "refract-" + version + ".tgz"
}

// writeSBOMs writes the list of Go modules in each command, in the CycloneDX format.
func (r *release) writeSBOMs(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "refract-sbom-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	destination, err := filepath.Abs(r.output)
	if err != nil {
		return err
	}
	for _, command := range []string{"controller-manager", "virtual-kubelet", "gateway", "refractctl"} {
		content, err := r.compileCommand(ctx, command, "linux", "amd64")
		if err != nil {
			return err
		}
		binary := filepath.Join(dir, command)
		if err := os.WriteFile(binary, content, 0o755); err != nil {
			return err
		}
		target := filepath.Join(destination, fmt.Sprintf("%s-%s.cdx.json", command, r.version))
		_, err = commandOutput(ctx, r.source, []string{"GOFLAGS="}, "go", "tool", "-modfile=hack/sbom/go.mod", "cyclonedx-gomod", "bin", "-json", "-noserial", "-version=v"+r.version, "-output="+target, binary)
		if err != nil {
			return err
		}
	}
	return nil
}
