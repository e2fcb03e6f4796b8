// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"slices"
	"time"

	"github.com/refract-project/refract/host/document"
)

// Chain is an immutable list of plugins for one hook, followed by the guard. It is safe for concurrent use.
type Chain struct {
	hook       Hook
	plugins    []*Plugin
	guard      *guard
	generation uint64
}

// NewChain returns a chain of the plugins whose manifest lists the hook. A chain without plugins is the identity, and
// is guarded too. It is an error if a path of the guard is malformed or if there are more than 64 plugins.
func NewChain(hook Hook, g Guard, plugins ...*Plugin) (*Chain, error) {
	c := &Chain{hook: hook}
	for _, p := range plugins {
		if slices.Contains(p.manifest.Hooks, hook.String()) {
			c.plugins = append(c.plugins, p)
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

// Generation returns the Registry's generation of the chain. Newer chains have larger generations.
func (c *Chain) Generation() uint64 { return c.generation }

// Run runs the plugins on the document, one after another, and then the guard. It is atomic: after an error, or if a
// plugin skips the object, the document is reset to its base. The outcome is never nil; with an error it covers the
// plugins that ran.
//
// Errors are *TrapError, *OutOfFuelError, *LimitError, *AccessError, *PluginFailedError, *GuardError, *ClosedError, or
// the error of ctx if it is done before a plugin begins.
func (c *Chain) Run(ctx context.Context, doc *document.Document, env *Env) (*Outcome, error) {
	out := &env.out
	out.resetOutcome()
	doc.Mount(document.ContextRoot, env.Context)
	if len(c.plugins) > 0 {
		env.began = time.Now()
		env.ends, env.slowest, env.longest = env.began.Add(c.plugins[0].host.timeout), "", 0
	}
	if env.Measure {
		env.lapTime()
	}
	for n, p := range c.plugins {
		if err := c.runPlugin(ctx, n, p, doc, env); err != nil {
			doc.Restore()
			return out, err
		}
		if out.Skipped {
			doc.Restore()
			return out, nil
		}
	}
	if err := c.guard.turnOff(doc, out); err != nil {
		doc.Restore()
		return out, err
	}
	return out, nil
}

// runPlugin runs the n-th plugin and checks its edits. The edited document is the input of the next plugin.
func (c *Chain) runPlugin(ctx context.Context, n int, p *Plugin, doc *document.Document, env *Env) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n > 0 {
		now, before := time.Now(), c.plugins[n-1]
		if now.After(env.ends) {
			return env.lateError(before, c.hook.String(), now)
		}
		env.recordTurn(before.name, now)
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
	return err
}

// dropFailedEdits drops the edits of a plugin with IgnoreFailure that failed, and adds a warning.
func (c *Chain) dropFailedEdits(p *Plugin, doc *document.Document, out *Outcome, err error) error {
	if _, closed := err.(*ClosedError); closed {
		return err
	}
	doc.Rollback()
	out.Skipped, out.Skipper, out.SkipReason = false, "", ""
	out.addWarning(p.name, err.Error())
	out.Calls[len(out.Calls)-1].Err = err
	return nil
}

// callPlugin runs the hook of the n-th plugin. The instance is nil if none was available.
func (c *Chain) callPlugin(ctx context.Context, n int, doc *document.Document, env *Env) (*instance, error) {
	p := c.plugins[n]
	call := env.out.beginCall(p.name)
	i, err := p.takeInstance(ctx, env.Domain)
	if err != nil {
		return nil, err
	}
	return i, c.runInstance(i, n, doc, env, call)
}

// runInstance runs the n-th plugin's hook in an instance and checks its edits.
func (c *Chain) runInstance(i *instance, n int, doc *document.Document, env *Env, call *Call) error {
	err := i.runHook(c.hook, doc, env, call)
	if env.out.warned > maxWarnings {
		env.out.endWarnings(i.plugin.name)
	}
	if env.Measure {
		call.Duration += env.lapTime()
	}
	if err == nil && !i.skipped {
		err = c.guard.checkDocument(doc, n)
	}
	return err
}

// repeatCall repeats a call in a fresh instance after it failed in one that had run before, so that state left by
// earlier calls cannot fail the object. It returns the error of the fresh instance.
func (c *Chain) repeatCall(ctx context.Context, n int, used *instance, cause error, doc *document.Document, env *Env) (*instance, error) {
	p := used.plugin
	i, err := p.takeFreshInstance(ctx, used, isIntact(cause))
	if err != nil {
		return used, cause
	}
	doc.Rollback()
	env.out.forgetWarnings()
	err = c.runInstance(i, n, doc, env, &env.out.Calls[len(env.out.Calls)-1])
	if err == nil {
		p.reportLeak(cause)
	}
	return i, err
}

// mayBeInherited reports whether the call may succeed in a fresh instance. Only the time of the chain is not reset by
// one.
func mayBeInherited(err error) bool {
	limit, ok := err.(*LimitError)
	return !ok || limit.Limit != LimitTime
}

// endCall returns the instance to the pool, or discards it if it may be broken.
func (c *Chain) endCall(p *Plugin, i *instance, err error, out *Outcome) error {
	switch {
	case i == nil:
		return err
	case err == nil && i.skipped:
		out.Skipped, out.Skipper, out.SkipReason = true, p.name, i.reason
	case err != nil && !isIntact(err):
		p.discardInstance(i)
		return err
	}
	// A large object may have grown the memory: see grantForInput.
	if uint64(len(i.memory.bytes)) > i.ownMemory() {
		p.discardInstance(i)
	} else {
		p.releaseInstance(i)
	}
	return err
}

// isIntact reports whether the module returned normally, possibly with an error of its own. An instance is not trusted
// after a forbidden edit.
func isIntact(err error) bool {
	_, ok := err.(*PluginFailedError)
	return ok
}
