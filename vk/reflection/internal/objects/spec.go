// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objects

// Status describes how the status of a copy is reflected to the local object.
type Status struct {
	// Back means that the status of the copy is mutated by the incoming chain, and then written to the local object.
	// StatusFromAnnotation names the provider.
	Back bool
	// Handled means that the handler of the kind reflects the status itself, including the incoming chain.
	Handled bool
	// Fields are the fields of the status that are reflected. If it is nil, all fields are reflected.
	Fields []string
	// Class lists the paths of the fields that determine which controller writes the Fields of an object.
	Class [][]string
	// Subresource means that the kind has a status subresource, so the status must be written separately.
	Subresource bool
}
