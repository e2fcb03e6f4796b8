// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

// A plugin of the portable tier: it is written with Extism's PDK and does not use Refract's
// SDK, so a plugin in Rust, C or JavaScript looks the same. It labels objects with the team
// in its configuration, and keeps objects of the team "private" from the provider.
//
// The object is passed as JSON, so the cost grows with its size, unlike with the handles
// of the SDK. The answer is a JSON Patch: fields that it does not mention stay unchanged.
package main

import (
	"encoding/json"
	"errors"

	"github.com/extism/go-pdk"
)

// input is the input of a module of the portable tier, without the parts that the plugin does not read.
type input struct {
	Object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	} `json:"object"`
	Config struct {
		Team string `json:"team"`
	} `json:"config"`
}

// operation is one operation of a JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

//go:wasmexport outgoing
func outgoing() int32 {
	var in input
	if err := json.Unmarshal(pdk.Input(), &in); err != nil {
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

// label returns the patch that sets the label, or the reason why the object is not reflected.
func label(in *input) (any, error) {
	team, labels := in.Config.Team, in.Object.Metadata.Labels
	switch {
	case team == "":
		return nil, errors.New("the configuration names no team: set config.team in the plugin's options")
	case labels["team"] == "private":
		return map[string]string{"skip": "it is private"}, nil
	case labels == nil: // a patch does not create the map above a value
		return []operation{{"add", "/metadata/labels", map[string]string{"team": team}}}, nil
	}
	return []operation{{"add", "/metadata/labels/team", team}}, nil
}

func main() {}
