// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/story"
)

// Stage returns a stage for stories in a lab, with the sides "consumer" and "provider". In addition to the commands of
// package story, stories can use:
//
//	start, stop                    the manager; start waits until it reflects, unless the link is cut
//	cut, mend                      cut or restore the link to the provider; cut waits until the manager has noticed
//	chain KIND WHAT [WORD...]      swap the outgoing chain of a kind; see newChain
//	run POD STATUS                 act as the provider: create the pod of a ShadowPod, with a status as YAML
//	withdraw, extend               stop or start offloading the namespace
func Stage(l *Lab) *story.Stage {
	link := l.ThroughCable()
	isCut := false
	writes := func(s *Side) func() []string { return func() []string { return s.Writes(l.T) } }
	side := func(s *Side, namespace string) *story.Side {
		return Must(story.NewSide(s.Cluster.Config(), namespace, writes(s)))(l.T)
	}
	return &story.Stage{
		Home:  "consumer",
		Sides: map[string]*story.Side{"consumer": side(l.Local, l.Namespace), "provider": side(l.Remote, l.RemoteNS)},
		Vars: map[string]string{
			"NODE": l.Node, "PROVIDER": l.ID, "NAMESPACE": l.Namespace, "REMOTE_NAMESPACE": l.RemoteNS,
			"TENANT": l.Tenant, "OWNED": l.Owned(), "OWNED_POD": l.OwnedPod(),
		},
		Settle: func() {
			if l.Manager != nil && !isCut {
				l.Settled()
			}
		},
		Commands: map[string]story.Command{
			"start": l.command(func() {
				if isCut {
					l.StartUnready()
				} else {
					l.Start()
				}
			}),
			"stop": l.command(func() { l.Stop(); l.Manager = nil }),
			"cut": l.command(func() {
				isCut = true
				link.SetCut(true)
				if l.Manager != nil {
					l.Eventually(func() error {
						if l.Manager.Reachable() {
							return errors.New("the provider is still thought to be reachable")
						}
						return nil
					})
				}
			}),
			"mend":     l.command(func() { isCut = false; link.SetCut(false) }),
			"withdraw": l.command(func() { l.MapNamespaces(nil) }),
			"extend":   l.command(func() { l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS}) }),
			"run": func(_ bool, args []string) error {
				if len(args) != 2 {
					return errors.New("want a pod and a status")
				}
				l.RunRemote(args[0], args[1])
				return nil
			},
			"chain": func(_ bool, args []string) error {
				if len(args) < 2 {
					return errors.New("want a kind, and what its chain does")
				}
				chain, err := newChain(args[1], args[2:])
				if err == nil {
					l.Chains.Swap(args[0], host.Outgoing, chain)
				}
				return err
			},
		},
	}
}

func (l *Lab) command(f func()) story.Command {
	return func(bool, []string) error { f(); return nil }
}

// newChain returns a chain that makes the changes that every Service needs. In addition, it does one of the following:
//
//	nothing                 nothing
//	label KEY VALUE         sets a label
//	label-patch-size KEY    sets a label to "is-" and the number of entries of the VirtualNode's offloadingPatch
//	flip KEY                sets a label, each time to another value
//	strip KEY               removes an annotation
//	number KEY              sets a label to a number, which no API server accepts
//	skip NAME WHY           skips the object of that name
//	warn WHY, fail WHY      warns, or fails
//	panic                   panics
func newChain(what string, words []string) (ChainFunc, error) {
	const plugin = "actor"
	text := strings.Join(words, " ")
	key := func() string { return "metadata.labels[" + words[0] + "]" }
	var turn atomic.Int64
	chains := map[string]struct {
		words int
		do    func(document.Node, *host.Env, *host.Outcome) error
	}{
		"nothing": {0, func(document.Node, *host.Env, *host.Outcome) error { return nil }},
		"label":   {2, func(doc document.Node, _ *host.Env, _ *host.Outcome) error { return doc.SetString(key(), words[1]) }},
		"label-patch-size": {1, func(doc document.Node, env *host.Env, _ *host.Outcome) error {
			patch, _ := env.Context["offloadingPatch"].(map[string]any)
			return doc.SetString(key(), fmt.Sprintf("is-%d", len(patch)))
		}},
		"flip": {1, func(doc document.Node, _ *host.Env, _ *host.Outcome) error {
			return doc.SetString(key(), []string{"left", "right"}[turn.Add(1)%2])
		}},
		"strip": {1, func(doc document.Node, _ *host.Env, _ *host.Outcome) error {
			_, err := doc.Remove("metadata.annotations[" + words[0] + "]")
			return err
		}},
		"number": {1, func(doc document.Node, _ *host.Env, _ *host.Outcome) error { return doc.SetInt(key(), 7) }},
		"skip": {2, func(doc document.Node, _ *host.Env, outcome *host.Outcome) error {
			if name, _ := doc.View().Field("metadata").Field("name").Text(); name == words[0] {
				outcome.Skipped, outcome.Skipper, outcome.SkipReason = true, plugin, strings.Join(words[1:], " ")
			}
			return nil
		}},
		"warn": {1, func(_ document.Node, _ *host.Env, outcome *host.Outcome) error {
			outcome.Warnings = []host.Warning{{Plugin: plugin, Message: text}}
			return nil
		}},
		"fail": {1, func(document.Node, *host.Env, *host.Outcome) error {
			return &host.PluginFailedError{Plugin: plugin, Reason: text}
		}},
		"panic": {0, func(document.Node, *host.Env, *host.Outcome) error { panic("boom") }},
	}
	chain, ok := chains[what]
	if !ok || len(words) < chain.words {
		return nil, fmt.Errorf("there is no chain %q of %d words", what, len(words))
	}
	return func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		outcome, err := MutateService(doc, env)
		if err == nil {
			err = chain.do(doc, env, outcome)
		}
		if err != nil {
			return nil, err
		}
		return outcome, nil
	}, nil
}
