// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/charts"
)

// loadChart returns the embedded chart.
func loadChart() (*chartv2.Chart, error) {
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

// Render returns the objects of the embedded chart, without the CRDs and the NOTES.
func Render(name, namespace string, values map[string]any) (objects []*unstructured.Unstructured, err error) {
	chart, err := loadChart()
	if err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("reading the values of the chart, %w", err)
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart, %w", err)
	}
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(file) != ".yaml" {
			continue
		}
		for decoder := yamlutil.NewYAMLToJSONDecoder(strings.NewReader(rendered[file])); ; {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("parsing %s of the chart, %w", file, err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

// definitionsOf returns the CRDs of a chart.
func definitionsOf(chart *chartv2.Chart) (crds []*unstructured.Unstructured, err error) {
	for _, file := range chart.CRDObjects() {
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(file.File.Data, &crd.Object); err != nil {
			return nil, fmt.Errorf("parsing the CRD %s, %w", file.Filename, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}
