// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo shows step by step how Refract works, on two real Kubernetes control planes. It fails if a step fails.
// Run it with `make demo`; for its flags, see `make demo ARGS=--help`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/test/support/lab"
)

func main() {
	keep := flag.Bool("keep", false, "leave the clusters up at the end, print how to reach them, and wait for Ctrl-C")
	real := flag.Bool("real", false, "tell another story, on clusters with real nodes; needs root, and make node-tools")
	timeout := flag.Duration("timeout", 15*time.Minute, "give up after this long")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard()) // a library requires a logger; the returned errors contain the messages
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unknown argument %q; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	// A signal ends the context, and thus the current step. The deferred cleanup runs after that.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *real, *keep, *timeout); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// story is the state that the steps share.
type story struct {
	*screen
	lab *lab.Lab
	// plugin is the module of the example plugin that one of the steps installs.
	plugin []byte
	begun  time.Time
	writes tallies
}

// chapter is a step of a story.
type chapter[S any] struct {
	title, why string
	tell       func(S, context.Context) error
}

// tell runs the chapters of a story in order, until one of them fails.
func tell[S any](ctx context.Context, screen *screen, story S, chapters []chapter[S]) error {
	for _, c := range chapters {
		screen.heading(c.title, c.why)
		if err := c.tell(story, ctx); err != nil {
			return err
		}
	}
	return nil
}

func steps() []chapter[*story] {
	return []chapter[*story]{
		{"Two clusters", "Two real control planes (etcd, kube-apiserver, controller manager, scheduler each), on loopback, with simulated nodes: pods become Ready and run nothing.", (*story).bringUp},
		{"Join", "The consumer (home) gets an identity on the provider (cloud) and a VirtualNode that says what it may use there. The virtual kubelet makes that a node.", (*story).join},
		{"Offload a namespace", "One object in the namespace shop creates its remote namespace on the provider.", (*story).extend},
		{"Offload an application", "A web front end and its cache. Nothing in it is about virtual nodes but that the cache avoids them: the scheduler of the home cluster places half of the web pods there as on any other node.", (*story).offload},
		{"One pod, two clusters", "A pod on the virtual node runs in the cloud cluster. What differs was mutated by the WebAssembly module of the kind on the way.", (*story).compare},
		{"Services find what they need", "Each cluster knows its own pods; the endpoints of the others are reflected, so that the Service web has all four everywhere.", (*story).endpoints},
		{"Configuration crosses, and a status comes back", "ConfigMaps, Secrets and Ingresses go where the pods go. Where the provider serves an Ingress is shown in the home cluster.", (*story).configuration},
		{"Any custom resource", "One object makes the virtual kubelet reflect a kind that it has never heard of, while it runs. It may do so only when both clusters permit it.", (*story).anyResource},
		{"Change what crosses, while it runs", "Annotations of one vendor mean nothing in the other cluster. A plugin file is dropped into a folder: no rebuild, no restart.", (*story).dropPlugin},
		{"A broken plugin breaks nothing", "The same file is overwritten with rubbish. The last good module stays in force, and the virtual kubelet says so.", (*story).breakPlugin},
		{"Declare a plugin, and know before what it does", "A plugin is an object now. The controller manager fetches and verifies its module; the virtual kubelet rehearses it on the objects that are there, without a write. A person approves.", (*story).declarePlugin},
		{"A bad version goes back by itself", "The next revision fails on every object. The rehearsal says so. Somebody approves it nevertheless, and the virtual kubelet returns to the previous one.", (*story).rollBackPlugin},
		{"The provider keeps its word", "The virtual kubelet is killed (SIGKILL), then a pod in the cloud cluster is deleted. The provider's own controller brings it back.", (*story).killKubelet},
		{"And when the kubelet returns", "It compares before it writes: nothing changed in the home cluster, so nothing is written to the cloud.", (*story).returnKubelet},
		{"Numbers", "Counted from both API servers' audit logs and the virtual kubelet's metrics.", (*story).numbers},
	}
}

// lastSteps returns the steps that remove what the other steps have created.
func lastSteps() []chapter[*story] {
	return []chapter[*story]{
		{"Leave without a trace", "The virtual node is deleted. Its pods are evicted, end in the cloud, and start in the home cluster; then the node goes, and all that the cloud had of it.", (*story).leave},
	}
}

func run(ctx context.Context, real, keep bool, timeout time.Duration) error {
	bounded, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the demo took longer than %s", timeout))
	defer cancel()
	screen, begun := newScreen(os.Stdout), time.Now()
	var err error
	if real {
		err = runReal(bounded, screen)
	} else {
		err = runSimulated(ctx, bounded, screen, keep)
	}
	if err == nil {
		screen.print("\n%s in %.0f s\n", screen.paint(green, "Every step held,"), time.Since(begun).Seconds())
	}
	if ctx.Err() != nil && !keep {
		return errors.New("interrupted; the clusters are gone")
	}
	return err
}

// runSimulated runs the chapters. The context bounded has a timeout. If the clusters are kept, there is no timeout
// while the demo waits for the user.
func runSimulated(ctx, bounded context.Context, screen *screen, keep bool) (err error) {
	s := &story{screen: screen, begun: time.Now()}
	defer func() {
		if s.lab != nil {
			err = errors.Join(err, s.lab.Down())
		}
	}()
	chapters := steps()
	if !keep {
		chapters = append(chapters, lastSteps()...)
	}
	if err := tell(bounded, screen, s, chapters); err != nil {
		return err
	}
	if keep {
		s.print("\nBoth clusters stay up until Ctrl-C:\n   export KUBECONFIG=%s\n   kubectl --context=%s get pods -n %s -o wide\n   kubectl --context=%s get pods -A -o wide\nPlugins go here: %s\n",
			s.lab.Kubeconfig(), lab.ConsumerID, namespace, lab.ProviderID, s.lab.PluginDir)
		<-ctx.Done()
	}
	return nil
}
