// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package evaluation contains the state of the evaluation of one object: the document that the plugins mutate, the
// results of both directions, and the errors of each direction.
package evaluation
