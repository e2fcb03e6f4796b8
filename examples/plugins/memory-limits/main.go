// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// An example of a plugin that computes with quantities: containers that request memory and have no memory limit get a
// limit of twice the request when they run on a provider.
//
// Quantities in objects are strings, such as "1.5Gi". The package resource of k8s.io/apimachinery parses and formats
// them, and can be compiled with TinyGo.
package main

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:    "memory-limits",
	Version: "1.0.0",
	Kinds:   []string{"Pod"},
	Writes:  []string{"spec.containers.*.resources.limits"},
}, sdk.Outgoing(outgoing))

func main() {}

func outgoing(_ sdk.Context, pod sdk.Object) error {
	containers := pod.Get("spec.containers")
	for i := range containers.Len("") {
		container := containers.At(i)
		request := container.String("resources.requests.memory")
		if request == "" || container.Has("resources.limits.memory") {
			continue
		}
		limit, err := resource.ParseQuantity(request)
		if err != nil {
			return sdk.Fail(sdk.Concat("container ", container.String("name"), ": memory request ", request, " is no quantity"))
		}
		limit.Mul(2)
		container.SetString("resources.limits.memory", limit.String())
	}
	return nil
}
