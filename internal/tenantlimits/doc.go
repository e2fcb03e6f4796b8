// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantlimits defines the limits that a provider sets for its consumers.
//
// A limit has the same name everywhere. The default for all consumers is a value of the chart, below tenants. From it
// the chart generates the flag --tenant-<name> of the controller manager and the admission policies. A single consumer
// gets another value through the annotation tenants.refract.io/<name> on its tenant namespace. refractctl peer
// --tenant-limit and the chart (consumers[].limits) write this annotation. The controller manager copies these
// annotations to the consumer's remote namespaces, where both the controllers and the admission policies read them.
// Consumers cannot write Namespaces.
//
// To add a limit, add a Setting to one of the tables, such as the one in pods.go, and its value to the chart, and use
// it in a check and in a policy. The flags, the annotations and the command are generated from the tables.
package tenantlimits
