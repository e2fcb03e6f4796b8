// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

// A plugin of the portable tier: it is written with Extism's PDK and knows nothing of Refract's SDK, so a plugin in Rust, C or
// JavaScript looks the same. It labels what crosses with the team that its configuration names, and keeps objects of the team
// "private" from the provider.
//
// The object comes as JSON and goes back as JSON, which costs more than the handles of the SDK the larger it is.
package main

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/extism/go-pdk"
)

// input is what a module of the portable tier gets; the context is left out here.
type input struct {
	Object map[string]any `json:"object"`
	Config struct {
		Team string `json:"team"`
	} `json:"config"`
}

//go:wasmexport outgoing
func outgoing() int32 {
	var in input
	decoder := json.NewDecoder(bytes.NewReader(pdk.Input()))
	decoder.UseNumber() // as a float a whole number above 2^53 would come back as another one
	if err := decoder.Decode(&in); err != nil {
		return fail(err)
	}
	output, err := label(&in)
	if err != nil {
		return fail(err)
	}
	if err := pdk.OutputJSON(output); err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int32 {
	pdk.SetError(err)
	return 1
}

// label returns the object with the label, or why it stays.
func label(in *input) (map[string]any, error) {
	if in.Config.Team == "" {
		return nil, errors.New("the configuration names no team: set config.team in the plugin's options")
	}
	metadata, _ := in.Object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if labels["team"] == "private" {
		return map[string]any{"skip": "it is private"}, nil
	}
	if labels == nil {
		labels = map[string]any{}
		metadata["labels"] = labels
	}
	labels["team"] = in.Config.Team
	return in.Object, nil
}

func main() {}
