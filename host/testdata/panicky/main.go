// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// A plugin that sleeps and then panics if the object is a ConfigMap. For objects of other kinds, it has no effect.
package main

import (
	"time"

	"github.com/refract-project/refract/sdk"
)

var _ = sdk.Register(sdk.Manifest{Name: "panicky", Version: "1", Kinds: []string{"*"}, Writes: []string{"metadata.labels"}},
	sdk.Outgoing(func(_ sdk.Context, object sdk.Object) error {
		time.Sleep(time.Hour)
		if object.String("kind") == "ConfigMap" {
			panic("no team label on this object")
		}
		return nil
	}))

func main() {}
