// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

// Hook is a direction in which objects cross the boundary.
type Hook int

const (
	// HookOutgoing mutates the consumer's object into the provider's copy.
	HookOutgoing Hook = iota
	// HookIncoming mutates the provider's object on its way back. Only
	// the status of the result is written to the consumer's object.
	HookIncoming
)

// String returns the name of the hook, which is also the name of the export.
func (h Hook) String() string {
	if h == HookIncoming {
		return "incoming"
	}
	return "outgoing"
}

// HookFunc edits obj in place. See the package
// documentation for the meaning of its error.
type HookFunc func(ctx Context, obj Object) error

// Manifest declares the identity and the permissions of a plugin.
type Manifest struct {
	// Name identifies the plugin in logs, metrics and Events: a DNS label.
	Name string
	// Version is the plugin's own semantic version.
	Version string
	// Kinds are the kinds that the plugin supports, with the API group
	// unless it is the core group: "Service", "Deployment.apps". "*"
	// stands for every kind but Secret, which has to be named.
	Kinds []string
	// Writes lists the paths at or below which the plugin may write;
	// "*" stands for all paths. The host refuses any other write.
	Writes []string
	// Capabilities are the capabilities that the plugin needs: "skip" for [Skip].
	Capabilities []string
	// ConfigSchema is the JSON schema of the configuration
	// as JSON text, or empty if the plugin has no schema.
	ConfigSchema string
}

// Plugin is a registered plugin. Its methods exist in the native build only.
type Plugin struct {
	manifest Manifest
	hooks    [2]HookFunc
}

// Option registers a hook of a plugin.
type Option func(*Plugin)

// Outgoing registers the hook for objects on their way to the provider.
func Outgoing(hook HookFunc) Option {
	return func(p *Plugin) { p.hooks[HookOutgoing] = hook }
}

// Incoming registers the hook for objects on their way back to the consumer.
func Incoming(hook HookFunc) Option {
	return func(p *Plugin) { p.hooks[HookIncoming] = hook }
}

// registered is the plugin that the exports of this module serve.
// It is set by initializers, before the host can call an export.
var registered *Plugin

// Register registers the plugin of a module. Call it once, from a
// package-level variable or an init function, because the host
// reads the manifest before main could run. A second call panics.
func Register(manifest Manifest, options ...Option) *Plugin {
	if registered != nil {
		panic("sdk.Register is called twice: a module is one plugin")
	}
	p := &Plugin{manifest: manifest}
	for _, option := range options {
		option(p)
	}
	registered = p
	return p
}

func noHook(hook Hook) outcome {
	return outcome{failed: true, reason: "the plugin has no " + hook.String() + " hook"}
}

func outcomeOf(err error) outcome {
	if skip, ok := err.(skipError); ok {
		return outcome{skipped: true, reason: string(skip)}
	}
	return outcome{failed: true, reason: err.Error()}
}

// outcome is the result of a hook. The zero value means that the edits are kept.
type outcome struct {
	skipped, failed bool
	reason          string
}

// skipError is not exported: hooks return it through Skip and never inspect it.
type skipError string

func (e skipError) Error() string { return "skipped: " + string(e) }

// Skip returns an error that prevents the object from being reflected,
// for a hook to return. An existing copy is deleted. The reason is
// shown to the user. The manifest must declare the capability "skip".
func Skip(reason string) error { return skipError(reason) }

// Fail returns an error with the given text, for a hook whose object
// cannot be reflected. It adds less to a module than fmt.Errorf.
func Fail(reason string) error { return failError(reason) }

type failError string

func (e failError) Error() string { return string(e) }
