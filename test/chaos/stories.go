// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/story"
)

// Each documented failure is a story in a file of its own. In addition to the commands of package story, stories can
// use:
//
//	inflict FAULT                        inject a fault, and start the clock
//	repair FAULT                         repair it, and start the clock
//	start                                start the clock
//	took FIGURE                          record the time since the clock was started
//	steady DURATION SIDE KIND/NAME [PATH=VALUE...]
//	                                     an object has these values for this time
//	standby start|kill                   start another replica of the virtual kubelet, or kill it
//	refractctl ARGUMENT...               run refractctl against the consumer
//	oracle                               check that the provider has the expected objects, and that no pod was lost
//
// The variables NS and REMOTE contain the names of an offloaded namespace and of its remote namespace. NODE contains
// the name of the virtual node.
//
// The files of stories/objects contain objects that several stories create.
//
//go:embed stories
var stories embed.FS

// figures contains the measurements of a story, by name. The names are in the order the story first records them.
type figures struct {
	names  []string
	values map[string][]time.Duration
}

func (f *figures) add(name string, value time.Duration) {
	if f.values[name] == nil {
		f.names = append(f.names, name)
	}
	f.values[name] = append(f.values[name], value)
}

// tell plays the stories with the given comma-separated names, and repeats this times times.
func (g *game) tell(ctx context.Context, names string, times int) error {
	files, err := fs.Glob(stories, "stories/*.txt")
	if err != nil {
		return err
	}
	wanted := strings.Split(names, ",")
	dir, err := os.MkdirTemp("", "refract-stories-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	measured := &figures{values: map[string][]time.Duration{}}
	played := 0
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".txt")
		if names != "all" && !slices.Contains(wanted, name) {
			continue
		}
		played++
		text, err := stories.ReadFile(file)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, path.Base(file))
		if err := os.WriteFile(target, text, 0o600); err != nil {
			return err
		}
		for range times {
			g.say("story %s", name)
			if err := g.play(ctx, name, target, measured); err != nil {
				return errors.Join(err, measured.print()) // the figures are printed even after an error
			}
		}
	}
	if played == 0 {
		return fmt.Errorf("--stories=%s: there is no such story; use all, or some of %s", names, strings.Join(files, ", "))
	}
	return measured.print()
}

// print prints the median and the range of each figure.
func (f *figures) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "FIGURE\tMEDIAN\tRANGE\tTIMES")
	for _, name := range f.names {
		values := slices.Sorted(slices.Values(f.values[name]))
		_, _ = fmt.Fprintf(w, "%s\t%.1f s\t%.1f–%.1f s\t%d\n", name, values[len(values)/2].Seconds(), values[0].Seconds(), values[len(values)-1].Seconds(), len(values))
	}
	return w.Flush()
}

// play plays a story in a new namespace.
func (g *game) play(ctx context.Context, name, file string, measured *figures) error {
	namespace, err := g.users.stage(ctx)
	if err != nil {
		return err
	}
	consumer, err := story.NewSide(g.Consumer.Config(), namespace, nil)
	if err != nil {
		return err
	}
	provider, err := story.NewSide(g.Provider.Config(), remote(namespace), nil)
	if err != nil {
		return err
	}
	objects, err := fs.Sub(stories, "stories/objects")
	if err != nil {
		return err
	}
	s := &telling{game: g, ctx: ctx, name: name, faults: all(), measured: measured, begun: time.Now(), sides: map[string]*story.Side{"consumer": consumer, "provider": provider}}
	return story.Play(ctx, file, &story.Stage{
		Sides: s.sides, Home: "consumer", Settle: func() {},
		Files: objects, Vars: map[string]string{"NS": namespace, "REMOTE": remote(namespace), "NODE": lab.NodeName},
		Commands: map[string]story.Command{
			"inflict": s.inflict, "repair": s.repair, "start": s.start, "took": s.took, "steady": s.steady, "standby": s.standby, "refractctl": s.refractctl, "oracle": s.oracle,
		},
		Wait: s.wait,
	}, func(text string) { fmt.Println(text) })
}

// telling is the state of a story that is being played.
type telling struct {
	*game
	ctx      context.Context //nolint:containedctx // of the story, whose commands are given none
	name     string
	faults   []fault // injected faults that have not been repaired yet
	sides    map[string]*story.Side
	measured *figures
	begun    time.Time
}

// look is the interval at which conditions are checked. It determines the precision of the figures.
const look = 50 * time.Millisecond

func (s *telling) wait(check func() error) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.quiet)
	defer cancel()
	for {
		err := check()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, look)
	}
}

func (s *telling) fault(args []string) (fault, error) {
	if len(args) != 1 {
		return fault{}, errors.New("which fault?")
	}
	at := slices.IndexFunc(s.faults, func(f fault) bool { return f.name == args[0] })
	if at < 0 {
		return fault{}, fmt.Errorf("there is no fault %s", args[0])
	}
	return s.faults[at], nil
}

func (s *telling) start(bool, []string) error {
	s.begun = time.Now()
	return nil
}

func (s *telling) inflict(_ bool, args []string) error {
	f, err := s.fault(args)
	if err != nil {
		return err
	}
	s.begun = time.Now()
	return f.inflict(s.ctx, s.game)
}

// repair repairs a fault. It starts the clock after the repair, so that the start of an API server is not included in
// the measurement.
func (s *telling) repair(_ bool, args []string) error {
	f, err := s.fault(args)
	if err != nil {
		return err
	}
	err = f.repair(s.ctx, s.game)
	s.begun = time.Now()
	return err
}

func (s *telling) took(_ bool, args []string) error {
	took := time.Since(s.begun)
	s.measured.add(s.name+": "+strings.Join(args, " "), took)
	s.say("  %s: %.1f s", strings.Join(args, " "), took.Seconds())
	return nil
}

func (s *telling) steady(_ bool, args []string) error {
	if len(args) < 3 {
		return errors.New("steady DURATION SIDE KIND/NAME [PATH=VALUE...]")
	}
	lasts, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	side := s.sides[args[1]]
	if side == nil {
		return fmt.Errorf("there is no side %q", args[1])
	}
	for until := time.Now().Add(lasts); time.Now().Before(until) && s.ctx.Err() == nil; pause(s.ctx, look) {
		object, err := side.Get(s.ctx, args[2])
		if err != nil && !apierrors.IsNotFound(err) {
			continue // the API server of this side may be down
		}
		if err != nil {
			return err
		}
		for _, condition := range args[3:] {
			if err := story.Check(object.Object, condition); err != nil {
				return fmt.Errorf("%s: %w", args[2], err)
			}
		}
	}
	return nil
}

func (s *telling) standby(_ bool, args []string) error {
	if slices.Equal(args, []string{"kill"}) {
		s.KillStandby()
		return nil
	}
	return errors.Join(s.StartStandby(s.ctx), s.AwaitStandby(s.ctx))
}

func (s *telling) refractctl(_ bool, args []string) error {
	_, err := s.Refractctl(s.ctx, args...)
	return err
}

func (s *telling) oracle(bool, []string) error { return s.settle(s.ctx, 0) }

// stage creates a namespace for a story, and offloads it.
func (u *users) stage(ctx context.Context) (string, error) {
	if err := u.extend(ctx, nil); err != nil {
		return "", err
	}
	name := u.namespaces[len(u.namespaces)-1]
	// The story itself determines what happens to its pods, so the witness must ignore this namespace.
	u.g.witness.withdrawn(name)
	u.namespaces = u.namespaces[:len(u.namespaces)-1]
	return name, u.g.Wait(ctx, "namespace "+name+" to be ready for pods in both clusters", func(ctx context.Context) (string, error) {
		for client, namespace := range map[kubernetes.Interface]string{u.g.Consumer.Client: name, u.g.Provider.Client: remote(name)} {
			_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return "it has no ServiceAccount yet", nil
			}
			if err != nil {
				return "", err
			}
		}
		return "", nil
	})
}
