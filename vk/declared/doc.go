// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package declared makes the virtual kubelet run declared plugins: the active revision of each ReflectionPlugin of this
// cluster, with its own settings.
//
// A [Follower] works in this order:
//
//   - ReadPlugins reads the ReflectionPlugins, their active PluginRevisions and the modules before the first object is
//     reflected (follower.go). It waits for the API server. If declared plugins are not defined or may not be read, it
//     continues without them, unless they could be read before.
//   - Run watches both resources, and passes each changed set to the chains at once (install.go). Modules are read by name,
//     and checked by their sha256.
//   - After Lead, it reports the state of each revision in the entry of this virtual node (status.go).
//
// If an active revision cannot be read or loaded, the earlier revision continues to run. If there is none, the kinds of
// the plugin are held: nothing is written or deleted for them. With the failure policy Ignore, they are reflected
// without the plugin. A module that could not be read is read again after a second, and later after up to a minute,
// without any intervention.
//
// Labels of namespaces are watched as soon as a plugin selects by them (namespaces.go).
package declared
