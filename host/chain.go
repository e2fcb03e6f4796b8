// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"slices"

	"github.com/refract-project/refract/host/document"
)

// Chain is an immutable list of plugins for one hook, followed by the guard. It is safe for concurrent use.
type Chain struct {
	hook       Hook
	entries    []Entry
	plugins    []*Plugin // plugins of entries
	selective  bool      // whether an entry has a selector or a hold
	guard      *guard
	generation uint64
}

// NewChain returns a chain of the plugins whose manifest lists the hook. A chain without plugins has only the guard,
// which removes the booleans in Guard.Off. NewChain returns an error if a path of the guard is malformed, or if there
// are more than 64 plugins.
func NewChain(hook Hook, g Guard, plugins ...*Plugin) (*Chain, error) {
	entries := make([]Entry, 0, len(plugins))
	for _, p := range plugins {
		entries = append(entries, Entry{Plugin: p})
	}
	return NewSelectiveChain(hook, g, entries...)
}

// NewSelectiveChain returns a chain in which each plugin runs only on objects that its selector selects; see
// NewChain. A plugin may be in several chains with different selectors.
func NewSelectiveChain(hook Hook, g Guard, entries ...Entry) (*Chain, error) {
	c := &Chain{hook: hook}
	for _, e := range entries {
		if e.Held == nil && !slices.Contains(e.Plugin.manifest.Hooks, hook.String()) {
			continue
		}
		c.entries = append(c.entries, e)
		c.selective = c.selective || e.Selector != nil || e.Held != nil
		if e.Held == nil {
			c.plugins = append(c.plugins, e.Plugin)
		}
	}
	var err error
	c.guard, err = newGuard(hook, g, c.plugins)
	return c, err
}

// Hook returns the hook of the chain.
func (c *Chain) Hook() Hook { return c.hook }

// Plugins returns the plugins in order. They must not be modified.
func (c *Chain) Plugins() []*Plugin { return c.plugins }

// Entries returns the plugins and the holds with their selectors, in order. They must not be modified.
func (c *Chain) Entries() []Entry { return c.entries }

// Generation returns the generation of the chain in its Registry. Newer chains have higher generations.
func (c *Chain) Generation() uint64 { return c.generation }

// Run runs the selected plugins on the document, one after another, and then the guard. Run is atomic: after an
// error, or if a plugin skips the object, the document is reset to its base. The outcome is never nil. After an error
// it describes the plugins that ran.
//
// Errors are *HeldError, *SelectorError, *TrapError, *OutOfFuelError, *LimitError, *AccessError, *PluginFailedError,
// *GuardError, *ClosedError, or the error of ctx if it is done before a plugin begins.
func (c *Chain) Run(ctx context.Context, doc *document.Document, env *Env) (*Outcome, error) {
	out := &env.out
	out.resetOutcome()
	if c.selective {
		err := c.selectPlugins(doc, env)
		if env.subject = nil; err != nil {
			doc.Restore()
			return out, err
		}
		out.chain, out.selected = c, env.selected
	}
	doc.Mount(document.ContextRoot, env.Context)
	if len(c.plugins) > 0 {
		env.guest.Logger, env.guest.RemapIP = env.Logger, env.RemapIP
		env.guest.Clock.StartRun(c.plugins[0].host.timeout)
	}
	if env.Measure {
		env.guest.Clock.Lap()
	}
	var before *Plugin
	for n, p := range c.plugins {
		if c.selective && env.selected&(1<<n) == 0 {
			continue
		}
		if err := c.runPlugin(ctx, n, p, before, doc, env); err != nil {
			doc.Restore()
			return out, err
		}
		if out.Skipped {
			doc.Restore()
			return out, nil
		}
		before = p
	}
	if err := c.guard.turnOff(doc, out); err != nil {
		doc.Restore()
		return out, err
	}
	return out, nil
}

// runPlugin runs the n-th plugin and checks its edits. The next plugin gets the edited document. before is the plugin
// that ran before this one, or nil.
func (c *Chain) runPlugin(ctx context.Context, n int, p, before *Plugin, doc *document.Document, env *Env) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if before != nil {
		if err := env.guest.Clock.EndTurn(before.Name(), c.hook.String()); err != nil {
			return err
		}
		doc.Commit()
	}
	out := &env.out
	i, err := c.callPlugin(ctx, n, doc, env)
	if err != nil && i != nil && i.inherits && mayBeInherited(err) {
		i, err = c.repeatCall(ctx, n, i, err, doc, env)
	}
	if err = c.endCall(p, i, err, out); err != nil && p.ignore {
		return c.dropFailedEdits(p, doc, out, err)
	}
	if env.Trace != nil && err == nil && !out.Skipped {
		env.traceEdits(p, doc)
	}
	return err
}

// dropFailedEdits removes the edits of a failed plugin that has IgnoreFailure, and adds a warning. If the plugin is
// closed, it returns the error instead.
func (c *Chain) dropFailedEdits(p *Plugin, doc *document.Document, out *Outcome, err error) error {
	if _, closed := err.(*ClosedError); closed {
		return err
	}
	doc.Rollback()
	out.Skipped, out.Skipper, out.SkipReason = false, "", ""
	out.addWarning(p.Name(), err.Error())
	out.Calls[len(out.Calls)-1].Err = err
	return nil
}

// callPlugin runs the hook of the n-th plugin. The returned instance is nil if none was available.
func (c *Chain) callPlugin(ctx context.Context, n int, doc *document.Document, env *Env) (*instance, error) {
	p := c.plugins[n]
	call := env.out.beginCall(p.Name())
	i, err := p.takeInstance(ctx, env.Domain)
	if err != nil {
		return nil, err
	}
	return i, c.runInstance(p, i, n, doc, env, call)
}

// runInstance runs the hook of the n-th plugin in an instance and checks its edits.
func (c *Chain) runInstance(p *Plugin, i *instance, n int, doc *document.Document, env *Env, call *Call) error {
	err := i.RunHook(c.hook, doc, &env.guest)
	for _, message := range i.Warnings() {
		env.out.addWarning(p.Name(), message)
	}
	if env.Measure {
		call.Fuel, call.Memory = i.FuelUsed(), i.MemorySize()
		call.Duration += env.guest.Clock.Lap()
	}
	if _, skipped := i.Skipped(); err == nil && !skipped {
		err = c.guard.checkDocument(doc, n)
	}
	return err
}

// repeatCall repeats a failed call in a fresh instance, if the failed instance had run before. An object therefore does
// not fail because of state from earlier calls. repeatCall returns the error from the fresh instance, or cause if there
// is no fresh instance.
func (c *Chain) repeatCall(ctx context.Context, n int, used *instance, cause error, doc *document.Document, env *Env) (*instance, error) {
	p := c.plugins[n]
	i, err := p.takeFreshInstance(ctx, used, isIntact(cause))
	if err != nil {
		return used, cause
	}
	doc.Rollback()
	env.out.forgetWarnings()
	err = c.runInstance(p, i, n, doc, env, &env.out.Calls[len(env.out.Calls)-1])
	if err == nil {
		p.reportLeak(cause)
	}
	return i, err
}

// mayBeInherited reports whether the cause of an error may be state from earlier calls, so that the call may succeed in
// a fresh instance. A fresh instance does not reset the timeout of the chain.
func mayBeInherited(err error) bool {
	limit, ok := err.(*LimitError)
	return !ok || limit.Limit != LimitTime
}

// endCall returns the instance to the pool, or discards it if it may be broken or its memory has grown.
func (c *Chain) endCall(p *Plugin, i *instance, err error, out *Outcome) error {
	if i == nil {
		return err
	}
	if err != nil && !isIntact(err) {
		p.discardInstance(i)
		return err
	}
	if reason, skipped := i.Skipped(); err == nil && skipped {
		out.Skipped, out.Skipper, out.SkipReason = true, p.Name(), reason
	}
	if i.HasGrown() {
		p.discardInstance(i)
	} else {
		p.releaseInstance(i)
	}
	return err
}

// isIntact reports whether the error of a call is the module's own, so that the module has returned normally. After any
// other error, including a forbidden edit, an instance does not count as intact.
func isIntact(err error) bool {
	_, ok := err.(*PluginFailedError)
	return ok
}
