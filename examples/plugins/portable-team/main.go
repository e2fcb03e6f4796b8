// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

// An example of a plugin in the portable tier. It is written with Extism's PDK and does not use Refract's SDK, so a
// plugin in Rust, C or JavaScript has the same structure. It labels each object with the team named in its
// configuration, and excludes objects of the team "private" from reflection.
//
// The object is passed as JSON, so the cost grows with the size of the object. (The SDK uses handles instead.) The
// plugin returns a JSON Patch. Fields that the patch does not name stay unchanged.
package main

import (
	"encoding/json"
	"errors"

	"github.com/extism/go-pdk"
)

// input contains the fields of the input that this plugin reads.
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

// label returns a patch that sets the label, or a reason not to reflect the object.
func label(in *input) (any, error) {
	team, labels := in.Config.Team, in.Object.Metadata.Labels
	switch {
	case team == "":
		return nil, errors.New("the configuration names no team: set config.team in the plugin's options")
	case labels["team"] == "private":
		return map[string]string{"skip": "it is private"}, nil
	case labels == nil: // JSON Patch does not create missing parents of a new value, so the patch adds the whole map.
		return []operation{{"add", "/metadata/labels", map[string]string{"team": team}}}, nil
	}
	return []operation{{"add", "/metadata/labels/team", team}}, nil
}

func main() {}
