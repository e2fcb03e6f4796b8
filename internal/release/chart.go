// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"io/fs"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/charts"
)

// load returns the embedded chart.
func load() (*chartv2.Chart, error) {
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts.Refract, chartName, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := charts.Refract.ReadFile(path)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(path, chartName+"/"), Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the embedded chart, %w", err)
	}
	chart, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("loading the embedded chart, %w", err)
	}
	return chart, nil
}

// definitions returns the CRDs of a chart.
func definitions(chart *chartv2.Chart) (crds []*unstructured.Unstructured, err error) {
	for _, file := range chart.CRDObjects() {
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(file.File.Data, &crd.Object); err != nil {
			return nil, fmt.Errorf("parsing the CRD %s, %w", file.Filename, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}
