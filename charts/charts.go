// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package charts embeds the Helm chart, which refractctl installs.
package charts

import (
	"embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Refract is the chart, in the folder "refract".
//
//go:embed all:refract
var Refract embed.FS

// AppVersion is the tag of the images that the chart runs unless its values name another.
func AppVersion() string {
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	text, err := Refract.ReadFile("refract/Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &chart)
	}
	if err != nil || chart.AppVersion == "" {
		panic(fmt.Sprintf("the embedded chart has no appVersion: %v", err)) // a mistake in this repository, which every test shows
	}
	return chart.AppVersion
}
