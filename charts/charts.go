// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package charts embeds the Helm chart that refractctl installs.
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

// AppVersion returns the tag of the chart's images unless its values set another.
func AppVersion() string {
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	text, err := Refract.ReadFile("refract/Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &chart)
	}
	if err != nil || chart.AppVersion == "" {
		// This is a mistake in the repository that every test shows.
		panic(fmt.Sprintf("the embedded chart has no appVersion: %v", err))
	}
	return chart.AppVersion
}
