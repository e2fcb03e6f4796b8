// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command chaos repeatedly injects faults into two joined clusters while users work in one of them. After each round,
// it checks that no object was lost, duplicated or left behind. Run it with `make chaos`; for its flags, see `make
// chaos ARGS=--help`.
//
// A round is a random sequence of faults and of user actions, both drawn from one seed. Then all faults are repaired,
// and after a quiet period the oracle must find no differences. The oracle computes the expected objects of the
// provider only from the consumer's state and the documented rules (see oracle.go). During faults, a witness checks
// that pods do not end unless a user has deleted them (see witness.go). The seed determines the order of the actions,
// but not the timing of the processes.
//
// With --stories, it instead plays the documented failures one by one, and prints how long it takes to notice each
// failure, and to recover from it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/test/support/lab"
)

// options contains the values of the flags.
type options struct {
	seed          uint64
	rounds        int
	faults        int
	only          string
	length, quiet time.Duration
	keep          bool
	stories       string
	repeat        int
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what the rounds are drawn from; by default the time")
	flag.IntVar(&o.rounds, "rounds", 10, "number of rounds")
	flag.IntVar(&o.faults, "faults", 2, "maximum number of faults of a round, which overlap")
	flag.StringVar(&o.only, "only", "", "faults to draw from, separated by commas; all of them when empty")
	flag.DurationVar(&o.length, "length", 10*time.Second, "how long the faults of a round last")
	flag.DurationVar(&o.quiet, "quiet", 2*time.Minute, "how long the clusters may take to be as they should be again")
	flag.BoolVar(&o.keep, "keep", false, "leave the clusters up after a failure, until Ctrl-C")
	flag.StringVar(&o.stories, "stories", "", "play these documented stories instead of random rounds, separated by commas, or all of them, and print how long everything took")
	flag.IntVar(&o.repeat, "repeat", 1, "with --stories: how often each is played")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard()) // a library requires a logger
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintf(os.Stderr, "\nchaos: %v\n", err)
		if o.stories == "" {
			fmt.Fprintf(os.Stderr, "To run it again: make chaos ARGS='--seed=%d --rounds=%d --faults=%d --length=%s --only=%s'\n", o.seed, o.rounds, o.faults, o.length, o.only)
		}
		stop()
		os.Exit(1)
	}
}

// game is one run of the command.
type game struct {
	*lab.Lab
	options
	random  *rand.Rand
	begun   time.Time
	users   *users
	witness *witness
}

func (g *game) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(g.begun).Seconds(), fmt.Sprintf(format, args...))
}

func run(ctx context.Context, o *options) (err error) {
	faults, err := chosen(o.only)
	if err != nil {
		return err
	}
	fmt.Printf("seed %d\n", o.seed)
	g := &game{options: *o, random: rand.New(rand.NewPCG(o.seed, 0)), begun: time.Now()} //nolint:gosec // it is to be repeatable
	if g.Lab, err = lab.Up(ctx, lab.Options{ConsumerNodes: 1, ProviderNodes: 2, Linked: true, Elect: true}); err != nil {
		return err
	}
	defer func() {
		if err != nil && o.keep && ctx.Err() == nil {
			g.say("%v\nThe clusters stay up until Ctrl-C: export KUBECONFIG=%s", err, g.Kubeconfig())
			<-ctx.Done()
		}
		err = errors.Join(err, g.Down())
	}()
	if err := errors.Join(g.StartAll(ctx), g.AwaitNodeReady(ctx)); err != nil {
		return err
	}
	if g.witness, err = newWitness(ctx, g.Lab); err != nil {
		return err
	}
	g.users = newUsers(g)
	if o.stories != "" {
		return g.tell(ctx, o.stories, o.repeat)
	}
	if err := errors.Join(g.StartStandby(ctx), g.users.begin(ctx)); err != nil {
		return err
	}
	if err := g.settle(ctx, 0); err != nil {
		return err
	}
	for round := 1; round <= o.rounds; round++ {
		if err := g.round(ctx, round, faults); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	g.say("%d rounds, all of them clean", o.rounds)
	return nil
}

// round injects random faults, repairs them, and checks the result.
func (g *game) round(ctx context.Context, number int, faults []fault) error {
	var inflicted []fault
	for range 1 + g.random.IntN(g.faults) {
		next := faults[g.random.IntN(len(faults))]
		if !clashes(inflicted, next) {
			inflicted = append(inflicted, next)
		}
	}
	names := make([]string, 0, len(inflicted))
	for _, fault := range inflicted {
		names = append(names, fault.name)
	}
	g.say("round %d: %s", number, strings.Join(names, ", "))
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	seed := g.random.Uint64()
	go func() { defer close(ended); g.users.work(working, seed) }()
	each := g.length / time.Duration(len(inflicted)+1)
	for i, fault := range inflicted {
		if err := fault.inflict(ctx, g); err != nil {
			return fmt.Errorf("inflicting %s, %w", fault.name, err)
		}
		if wait := each; i < len(inflicted)-1 {
			pause(ctx, wait)
		}
	}
	pause(ctx, 2*each)
	for _, fault := range repairOrder(inflicted) {
		if err := fault.repair(ctx, g); err != nil {
			return fmt.Errorf("repairing %s, %w", fault.name, err)
		}
	}
	stop()
	<-ended
	return g.settle(ctx, number)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// settle waits until the oracle has found no differences for a while.
func (g *game) settle(ctx context.Context, round int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, g.quiet, fmt.Errorf("the clusters were not as they should be after %s", g.quiet))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	begun := time.Now()
	clean := 0
	err := g.Wait(ctx, "the oracle to be content", func(ctx context.Context) (string, error) {
		open, certain := g.witness.complaints()
		if len(certain) > 0 {
			giveUp(fmt.Errorf("while things were broken: %s", strings.Join(certain, "; ")))
			return "", ctx.Err()
		}
		if len(open) > 0 {
			clean = 0
			return open[0], nil
		}
		wrong, err := g.examine(ctx)
		if err != nil {
			return "", err
		}
		if len(wrong) > 0 {
			clean = 0
			return fmt.Sprintf("%d differences: %s", len(wrong), strings.Join(wrong[:min(len(wrong), 8)], "; ")), nil
		}
		if clean++; clean < 5 {
			return "it is content, for how long is to be seen", nil
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	if seen, _ := g.witness.complaints(); len(seen) > 0 {
		return fmt.Errorf("while things were broken: %s", strings.Join(seen, "; "))
	}
	g.say("round %d: clean after %.1f s, %s", round, time.Since(begun).Seconds(), g.users.summary())
	return nil
}
