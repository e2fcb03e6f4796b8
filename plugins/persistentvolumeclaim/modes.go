// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// accessModes are the access modes of Kubernetes. The last one cannot be combined with others.
var accessModes = [...]string{"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", oncePod}

const oncePod = "ReadWriteOncePod"

// setAccessModes replaces the access modes of the claim with the modes in list. Empty entries are ignored. If all
// entries are empty, the claim keeps its modes, because API servers reject a claim without access modes.
func setAccessModes(claim sdk.Object, list string) error {
	if strings.Trim(list, ", \t\n") == "" {
		return nil
	}
	modes := claim.SetList("spec.accessModes")
	var seen [len(accessModes)]bool
	count := 0
	for more := true; more; {
		var mode string
		mode, list, more = strings.Cut(list, ",")
		mode = strings.TrimSpace(mode)
		if mode == "" {
			continue
		}
		i := indexOf(mode)
		if i < 0 {
			return badModes("\"", mode, "\" is none")
		}
		if !seen[i] {
			seen[i] = true
			count++
			modes.SetString("-", mode)
		}
	}
	if count > 1 && seen[len(seen)-1] {
		return badModes(oncePod + " cannot be combined with others")
	}
	return nil
}

func indexOf(mode string) int {
	for i, known := range accessModes {
		if mode == known {
			return i
		}
	}
	return -1
}

func badModes(problem ...string) error {
	return sdk.Fail(sdk.Concat("the annotation "+wire.RemoteAccessModesAnnotation+" takes access modes separated by commas, ",
		sdk.Concat(problem...), "; valid are ReadWriteOnce, ReadOnlyMany, ReadWriteMany, or ReadWriteOncePod alone"))
}
