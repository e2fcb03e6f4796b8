// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv/proxy"
)

// fault is a failure that can be injected and repaired.
type fault struct {
	name string
	// of is the component that the fault affects. Two faults of the same component are never active at the same time.
	of string
	// late means that the fault is repaired after the others, because the processes that its repair starts need the
	// other components.
	late            bool
	inflict, repair func(context.Context, *game) error
}

// all returns all faults.
func all() []fault {
	return []fault{
		process("kill-kubelet", "kubelet", killed((*lab.Lab).KillKubelet), (*lab.Lab).StartKubelet),
		// While the virtual kubelet is stopped, the standby replica takes over.
		process("stop-kubelet", "kubelet", (*lab.Lab).StopKubelet, (*lab.Lab).StartKubelet),
		process("kill-standby", "standby", killed((*lab.Lab).KillStandby), (*lab.Lab).StartStandby),
		// After the fault above, the standby replica is the leader.
		process("stop-standby", "standby", (*lab.Lab).StopStandby, (*lab.Lab).StartStandby),
		process("kill-consumer-manager", "consumer-manager", killed((*lab.Lab).KillConsumerManager), (*lab.Lab).StartConsumerManager),
		process("kill-provider-manager", "provider-manager", killed((*lab.Lab).KillProviderManager), (*lab.Lab).StartProviderManager),
		stopServer("stop-consumer-apiserver", func(g *game) *lab.Side { return g.Consumer }),
		stopServer("stop-provider-apiserver", func(g *game) *lab.Side { return g.Provider }),
		pauseStorage("pause-consumer-etcd", func(g *game) *lab.Side { return g.Consumer }),
		pauseStorage("pause-provider-etcd", func(g *game) *lab.Side { return g.Provider }),
		pauseNodes(),
		restore("restore-consumer-etcd", func(g *game) *lab.Side { return g.Consumer }),
		restore("restore-provider-etcd", func(g *game) *lab.Side { return g.Provider }),
		compact("compact-consumer", func(g *game) *lab.Side { return g.Consumer }),
		compact("compact-provider", func(g *game) *lab.Side { return g.Provider }),
		link("cut-link", func(l *proxy.Link) { l.Cut() }),
		link("stall-link", func(l *proxy.Link) { l.Stall(proxy.There, proxy.Back) }),
		link("one-way-link-there", func(l *proxy.Link) { l.Stall(proxy.Back) }),
		link("one-way-link-back", func(l *proxy.Link) { l.Stall(proxy.There) }),
		link("slow-link", func(l *proxy.Link) { l.Slow(300 * time.Millisecond) }),
		link("slow-provider", func(l *proxy.Link) { l.Slow(2 * time.Second) }),
		link("lossy-link", func(l *proxy.Link) { l.Lose(0.02) }),
		flapping(),
		fillQuota(),
		credentials("expired-credentials", expired),
		credentials("renewed-credentials", (*lab.Lab).NewIdentity),
		swapPlugins(),
		drain(),
		hostileConsumer(),
		hostileProvider(),
	}
}

// chosen returns the faults with the given comma-separated names, or all faults if names is "".
func chosen(names string) ([]fault, error) {
	known := all()
	if names == "" {
		return known, nil
	}
	var found []fault
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(known, func(f fault) bool { return f.name == name })
		if at < 0 {
			var possible []string
			for _, fault := range known {
				possible = append(possible, fault.name)
			}
			return nil, fmt.Errorf("--only=%s: there is no fault %s; use some of %s", names, name, strings.Join(possible, ", "))
		}
		found = append(found, known[at])
	}
	return found, nil
}

func clashes(inflicted []fault, next fault) bool {
	return slices.ContainsFunc(inflicted, func(f fault) bool { return f.of == next.of })
}

// repairOrder returns the faults in the order they must be repaired: the reverse order, with the faults of Refract's
// processes last.
func repairOrder(inflicted []fault) []fault {
	order := slices.Clone(inflicted)
	slices.Reverse(order)
	slices.SortStableFunc(order, func(a, b fault) int {
		switch {
		case a.late == b.late:
			return 0
		case a.late:
			return 1
		}
		return -1
	})
	return order
}

func killed(kill func(*lab.Lab)) func(*lab.Lab, context.Context) error {
	return func(l *lab.Lab, _ context.Context) error { kill(l); return nil }
}

func process(name, of string, end, start func(*lab.Lab, context.Context) error) fault {
	return fault{name: name, of: of, late: true,
		inflict: func(ctx context.Context, g *game) error { return end(g.Lab, ctx) },
		repair: func(ctx context.Context, g *game) error {
			return eventually(ctx, func(ctx context.Context) error { return start(g.Lab, ctx) })
		},
	}
}

func stopServer(name string, of func(*game) *lab.Side) fault {
	return fault{name: name, of: strings.Fields(strings.ReplaceAll(name, "-", " "))[1],
		inflict: func(_ context.Context, g *game) error { return of(g).StopAPIServer() },
		repair:  func(ctx context.Context, g *game) error { return of(g).StartAPIServer(ctx) },
	}
}

func pauseStorage(name string, of func(*game) *lab.Side) fault {
	signal := func(g *game, signal syscall.Signal) error { return syscall.Kill(of(g).Processes()["etcd"], signal) }
	return fault{name: name, of: strings.Fields(strings.ReplaceAll(name, "-", " "))[1],
		inflict: func(_ context.Context, g *game) error { return signal(g, syscall.SIGSTOP) },
		repair:  func(_ context.Context, g *game) error { return signal(g, syscall.SIGCONT) },
	}
}

// pauseNodes makes all nodes of the provider stop responding.
func pauseNodes() fault {
	signal := func(g *game, signal syscall.Signal) error {
		return syscall.Kill(g.Provider.Processes()["kwok"], signal)
	}
	return fault{name: "pause-provider-nodes", of: "nodes",
		inflict: func(_ context.Context, g *game) error { return signal(g, syscall.SIGSTOP) },
		repair:  func(_ context.Context, g *game) error { return signal(g, syscall.SIGCONT) },
	}
}

// restore takes a snapshot of a cluster's etcd. The repair restores the cluster from the snapshot, so all changes since
// then are lost.
func restore(name string, of func(*game) *lab.Side) fault {
	var backup string
	var at time.Time
	return fault{name: name, of: strings.Fields(strings.ReplaceAll(name, "-", " "))[1],
		inflict: func(ctx context.Context, g *game) error {
			dir, err := os.MkdirTemp("", "refract-snapshot-")
			if err != nil {
				return err
			}
			at, backup = time.Now(), filepath.Join(dir, "etcd.db")
			return of(g).Backup(ctx, backup)
		},
		repair: func(ctx context.Context, g *game) error {
			defer func() { _ = os.RemoveAll(filepath.Dir(backup)) }()
			done := g.witness.putBack(of(g).ID, at)
			// Kubernetes recommends these flags. Without them, package rewind could not detect the restore of a very
			// recent backup.
			if err := of(g).Restore(ctx, backup, "--bump-revision=1000000", "--mark-compacted"); err != nil {
				return err
			}
			done()
			if of(g) == g.Provider {
				return g.users.lookAtTheirs(ctx)
			}
			return g.users.look(ctx)
		},
	}
}

// compact compacts the etcd of a cluster. This fault needs no repair.
func compact(name string, of func(*game) *lab.Side) fault {
	return fault{name: name, of: name,
		inflict: func(ctx context.Context, g *game) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := of(g).Compact(ctx); err != nil {
				g.say("%s had no effect: %v", name, err) // for example because etcd is paused
			}
			return nil
		},
		repair: func(context.Context, *game) error { return nil },
	}
}

func link(name string, spoil func(*proxy.Link)) fault {
	return fault{name: name, of: "link",
		inflict: func(_ context.Context, g *game) error { spoil(g.Link); return nil },
		repair:  func(_ context.Context, g *game) error { g.Link.Mend(); return nil },
	}
}

// flapping repeatedly closes all connections between the clusters.
func flapping() fault {
	var stop context.CancelFunc
	return fault{name: "flapping-link", of: "link",
		inflict: func(ctx context.Context, g *game) error {
			ctx, stop = context.WithCancel(ctx)
			go func() {
				for ctx.Err() == nil {
					g.Link.Drop()
					pause(ctx, 300*time.Millisecond)
				}
			}()
			return nil
		},
		repair: func(_ context.Context, g *game) error { stop(); g.Link.Mend(); return nil },
	}
}

// eventually calls do until it succeeds.
func eventually(ctx context.Context, do func(context.Context) error) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := do(bounded)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 200*time.Millisecond)
	}
}
