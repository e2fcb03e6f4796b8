// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/probation"
)

// RemoveSkipped does what reflection does before it deletes the copy of an object that only the promoted revisions skip.
// It returns an error if the copy is held.
func RemoveSkipped(set *reflection.Probations, kind, name string) error {
	object := probation.Object{Kind: kind, Namespace: "shop", Name: name}
	return set.MayRemove(object, func(probation.Runner) (*host.Outcome, error) { return &host.Outcome{}, nil })
}
