// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package charts embeds the Helm chart that refractctl installs.
package charts

import (
	"embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Refract contains the chart in the folder "refract".
//
//go:embed all:refract
var Refract embed.FS

// AppVersion returns the tag of the images that the chart uses by default.
func AppVersion() string {
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	text, err := Refract.ReadFile("refract/Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &chart)
	}
	if err != nil || chart.AppVersion == "" {
		// Every test would find this error, because the chart is embedded.
		panic(fmt.Sprintf("the embedded chart has no appVersion: %v", err))
	}
	return chart.AppVersion
}
