// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

// Hook is the hook for one direction of reflection.
type Hook int

const (
	// HookOutgoing mutates the consumer's object. The result becomes the provider's copy.
	HookOutgoing Hook = iota
	// HookIncoming mutates the provider's object when it is reflected back. Only the status of the result is written
	// to the consumer's object.
	HookIncoming
)

// String returns the name of the hook, which is also the name of the module's export.
func (h Hook) String() string {
	if h == HookIncoming {
		return "incoming"
	}
	return "outgoing"
}

// HookFunc edits obj in place. The package documentation describes the effect of its error.
type HookFunc func(ctx Context, obj Object) error

// Manifest declares the identity and the permissions of a plugin.
type Manifest struct {
	// Name is the name of the plugin in logs, metrics and Events. It must be a DNS label.
	Name string
	// Version is the semantic version of the plugin.
	Version string
	// Kinds are the kinds that the plugin supports, with their API group unless it is the core group: "Service",
	// "Deployment.apps". "*" means all kinds except Secret, which must be named.
	Kinds []string
	// Writes lists the paths at or below which the plugin may write. "*" means all paths. The host rejects any other
	// write.
	Writes []string
	// Capabilities are the capabilities that the plugin needs. [Skip] needs "skip".
	Capabilities []string
	// ConfigSchema is the JSON schema of the configuration as a JSON text. It is empty if the plugin has no schema.
	ConfigSchema string
}

// Plugin is a registered plugin. It has exported methods only in the native build.
type Plugin struct {
	manifest Manifest
	hooks    [2]HookFunc
}

// Option registers a hook of a plugin.
type Option func(*Plugin)

// Outgoing registers the hook for objects that are reflected to the provider.
func Outgoing(hook HookFunc) Option {
	return func(p *Plugin) { p.hooks[HookOutgoing] = hook }
}

// Incoming registers the hook for objects that are reflected back to the consumer.
func Incoming(hook HookFunc) Option {
	return func(p *Plugin) { p.hooks[HookIncoming] = hook }
}

// registered is the plugin whose hooks this module exports. An initializer sets it before the host can call an export.
var registered *Plugin

// Register registers the plugin of a module. It must be called once, from a package-level variable or an init
// function, because the host reads the manifest without running main. A second call panics.
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

// skipError is the error that Skip returns. It is not exported, because hooks do not need to inspect it.
type skipError string

func (e skipError) Error() string { return "skipped: " + string(e) }

// Skip returns an error with which a hook excludes the object from reflection. If a copy exists, it is deleted. The
// reason is shown to the user. The manifest must declare the capability "skip".
func Skip(reason string) error { return skipError(reason) }

// Fail returns an error with the given text, with which a hook reports that the object cannot be reflected. It
// increases the size of a module less than fmt.Errorf.
func Fail(reason string) error { return failError(reason) }

type failError string

func (e failError) Error() string { return string(e) }
