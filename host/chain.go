// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"slices"

	"github.com/refract-project/refract/host/document"
)

// Chain is an immutable list of plugins for one hook, with the guard behind them. Safe for concurrent use.
type Chain struct {
	hook       Hook
	plugins    []*Plugin
	guard      *guard
	generation uint64
}

// NewChain makes a chain; without plugins it is the identity, still guarded. A plugin whose manifest lacks the hook is left
// out. An error: a path of the guard is malformed, or more than 64 plugins.
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

// Hook that the chain is for.
func (c *Chain) Hook() Hook { return c.hook }

// Plugins in their order. Not to be modified.
func (c *Chain) Plugins() []*Plugin { return c.plugins }

// Generation of the Registry that put the chain in place; larger is newer.
func (c *Chain) Generation() uint64 { return c.generation }

// Run runs the plugins on the document, one after another, and then the guard. All or nothing: with an error, and when a
// plugin skips the object, the document is back at its base. The outcome, never nil, is also there with an error, up to
// where it came.
//
// Errors: *TrapError, *OutOfFuelError, *LimitError, *AccessError, *PluginFailedError, *GuardError, *ClosedError, or that
// of a ctx that is done before one of the plugins begins.
func (c *Chain) Run(ctx context.Context, doc *document.Document, env *Env) (*Outcome, error) {
	out := &env.out
	out.reset()
	doc.Mount(document.ContextRoot, env.Context)
	if env.Measure {
		env.lap()
	}
	for n, p := range c.plugins {
		if err := c.step(ctx, n, p, doc, env); err != nil {
			doc.Restore()
			return out, err
		}
		if out.Skipped {
			doc.Restore()
			return out, nil
		}
	}
	if err := c.guard.check(doc); err != nil {
		doc.Restore()
		return out, err
	}
	return out, nil
}

// author is the number by which the document knows the edits of the n-th plugin; 0 is nobody.
func author(n int) uint8 { return uint8(n + 1) }

func (c *Chain) step(ctx context.Context, n int, p *Plugin, doc *document.Document, env *Env) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.ignore {
		return c.tolerant(ctx, n, p, doc, env)
	}
	i, err := c.call(ctx, n, p, doc, env)
	if err == nil && !i.skipped {
		p.release(i)
		return nil
	}
	return c.end(p, i, err, &env.out)
}

// call runs the hook of the n-th plugin; the instance is nil if none could be had.
func (c *Chain) call(ctx context.Context, n int, p *Plugin, doc *document.Document, env *Env) (*instance, error) {
	call := env.out.begin(p.name)
	i, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	err = i.run(c.hook, doc, env, author(n), call)
	if env.out.warned > maxWarnings {
		env.out.endWarnings(p.name)
	}
	if env.Measure {
		call.Duration = env.lap()
	}
	return i, err
}

// end puts the instance back, or throws it away when it may be broken.
func (c *Chain) end(p *Plugin, i *instance, err error, out *Outcome) error {
	switch {
	case i == nil:
		return err
	case err == nil && i.skipped:
		out.Skipped, out.Skipper, out.SkipReason = true, p.name, i.reason
	case err != nil && !intact(err):
		p.discard(i)
		return err
	}
	p.release(i)
	return err
}

// intact tells that the module came to its regular end.
func intact(err error) bool {
	_, ok := err.(*PluginFailedError)
	return ok
}

// tolerant runs a plugin with IgnoreFailure: what it did is dropped if it fails, or if the guard forbids it.
func (c *Chain) tolerant(ctx context.Context, n int, p *Plugin, doc *document.Document, env *Env) error {
	mark := doc.Checkpoint()
	i, err := c.call(ctx, n, p, doc, env)
	out := &env.out
	err = c.end(p, i, err, out)
	if _, closed := err.(*ClosedError); closed {
		return err
	}
	if err == nil {
		err = c.guard.checkEdits(doc)
	}
	if err != nil {
		doc.Rollback(mark)
		out.Skipped = false
		out.warn(p.name, err.Error())
	}
	out.Calls[len(out.Calls)-1].Err = err
	return nil
}
