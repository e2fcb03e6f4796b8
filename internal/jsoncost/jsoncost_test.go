// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package jsoncost_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/internal/jsoncost"
)

func TestCost(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]jsoncost.Cost{
		``:                             {},
		`"text, with {[ and \"\\"`:     {},
		`{}`:                           {Values: 1},
		`{"a":1,"b":[1,2]}`:            {Values: 4},
		`{"items":[{},{},{"a":[{}]}]}`: {Values: 9, Items: 3},
		`{"items":[[],[]]}`:            {Values: 5, Items: 2},
		`{"spec":{"list":[{},{}]}}`:    {Values: 6},
		`[[{}]]`:                       {Values: 3},
		// The text contains two events of a watch.
		`{"object":{"items":[{}]}} {"items":[{}]}`: {Values: 7, Items: 1},
		`{"\\":"\"{","b":1}`:                       {Values: 2},
		`}}}{"items":[{}]}`:                        {Values: 3, Items: 1},
	} {
		want.Bytes = int64(len(text))
		assert.Equal(t, want, jsoncost.Of([]byte(text)), text)
		var pieces jsoncost.Meter
		for _, piece := range strings.SplitAfter(text, "") {
			pieces.Count([]byte(piece))
		}
		assert.Equal(t, want, pieces.Cost, "in pieces: %s", text)
	}
}
