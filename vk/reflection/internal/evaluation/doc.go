// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package evaluation has the state of the evaluation of one object: the document that plugins mutate, the results in both
// directions, and the errors of each direction.
package evaluation
