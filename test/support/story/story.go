// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/refract-project/refract/test/support/testenv"
)

// Stage contains the clusters, the files and the commands that a story uses.
type Stage struct {
	Sides map[string]*Side // keyed by the names that stories use
	Home  string           // name of the side whose Events are checked
	Vars  map[string]string
	// Files are added to the files of each story.
	Files    fs.FS
	Commands map[string]Command // additional commands
	// Alone makes the stories run one after the other instead of in parallel.
	Alone bool
	// Settle waits until all pending reactions have happened.
	Settle func()
	// Wait calls check until it returns nil. After a timeout, it returns the last error of check. The default is
	// testenv.Wait.
	Wait func(check func() error) error
}

// Command executes a line of a story.
type Command func(negated bool, args []string) error

// Run plays every scenario in a folder. Each scenario gets its own stage.
func Run(t *testing.T, dir string, stage func(*testing.T) *Stage) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no scenarios in %s: %v", dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			p := &play{ctx: t.Context(), Stage: stage(t)}
			if !p.Alone {
				t.Parallel()
			}
			p.run(inPlace{t}, file)
		})
	}
}

// Play plays one scenario outside of a test, and returns the error. log is called with each line of the scenario.
func Play(ctx context.Context, file string, stage *Stage, log func(string)) error {
	t := &alone{log: log}
	ended := make(chan struct{})
	go func() { // the script runs in a goroutine, because a failure ends its goroutine
		defer close(ended)
		(&play{ctx: ctx, Stage: stage}).run(t, file)
	}()
	<-ended
	if t.failed {
		return fmt.Errorf("story %s failed, see above", strings.TrimSuffix(filepath.Base(file), ".txt"))
	}
	return nil
}

// play is a story that is being played on its stage.
type play struct {
	*Stage
	ctx    context.Context
	marked map[string]int
}

func (p *play) run(t testscript.T, file string) {
	p.mark()
	commands := map[string]func(*testscript.TestScript, bool, []string){}
	own := map[string]func(*testscript.TestScript, bool, []string) error{
		"create": p.create, "patch": p.patch, "delete": p.delete, "expect": p.expect, "event": p.event, "writes": p.writes, "remember": p.remember,
		"mark":   func(*testscript.TestScript, bool, []string) error { p.Settle(); p.mark(); return nil },
		"settle": func(*testscript.TestScript, bool, []string) error { p.Settle(); return nil },
	}
	for name, command := range p.Commands {
		own[name] = func(_ *testscript.TestScript, negated bool, args []string) error { return command(negated, args) }
	}
	for name, command := range own {
		commands[name] = func(ts *testscript.TestScript, negated bool, args []string) {
			if err := command(ts, negated, args); err != nil {
				ts.Fatalf("%s: %v", name, err)
			}
		}
	}
	testscript.RunT(t, testscript.Params{
		Files: []string{file}, Cmds: commands,
		Setup: func(env *testscript.Env) error {
			for name, value := range p.Vars {
				env.Setenv(name, value)
			}
			if p.Files == nil {
				return nil
			}
			return os.CopyFS(env.WorkDir, p.Files)
		},
	})
}

// inPlace is a testscript.T that runs a script in the current test instead of a subtest.
type inPlace struct{ *testing.T }

// Run implements testscript.T.
func (t inPlace) Run(_ string, f func(testscript.T)) { f(t) }

// Parallel implements testscript.T. It does nothing, because the current test decides whether it runs in parallel.
func (inPlace) Parallel() {}

// Verbose implements testscript.T.
func (inPlace) Verbose() bool { return testing.Verbose() }

// alone is a testscript.T for use outside of a test.
type alone struct {
	log    func(string)
	failed bool
}

func (t *alone) Skip(args ...any)                   { t.Log(args...); runtime.Goexit() }
func (t *alone) Fatal(args ...any)                  { t.Log(args...); t.FailNow() }
func (*alone) Parallel()                            {}
func (t *alone) Log(args ...any)                    { t.log(strings.TrimRight(fmt.Sprint(args...), "\n")) }
func (t *alone) FailNow()                           { t.failed = true; runtime.Goexit() }
func (t *alone) Run(_ string, f func(testscript.T)) { f(t) }
func (*alone) Verbose() bool                        { return false }

// side returns the side that the first argument names, and the other arguments. It fails if there are fewer than least
// arguments.
func (p *play) side(args []string, least int) (*Side, []string, error) {
	if len(args) < least {
		return nil, nil, fmt.Errorf("%d arguments are missing", least-len(args))
	}
	s, ok := p.Sides[args[0]]
	if !ok {
		return nil, nil, fmt.Errorf("there is no side %q, want one of %q", args[0], slices.Sorted(maps.Keys(p.Sides)))
	}
	return s, args[1:], nil
}

// object returns a client and a name for the object that the first two arguments describe, and the arguments from the
// second one on.
func (p *play) object(args []string, least int) (dynamic.ResourceInterface, string, []string, error) {
	s, rest, err := p.side(args, least)
	if err != nil {
		return nil, "", nil, err
	}
	resource, name, err := s.of(rest[0])
	return resource, name, rest, err
}

func (p *play) create(ts *testscript.TestScript, _ bool, args []string) error {
	s, files, err := p.side(args, 2)
	for _, file := range files {
		err = errors.Join(err, s.create(p.ctx, os.Expand(ts.ReadFile(file), ts.Getenv)))
	}
	return err
}

func (p *play) patch(_ *testscript.TestScript, _ bool, args []string) error {
	s, args, err := p.side(args, 3)
	switch {
	case err != nil:
		return err
	case len(args) == 4 && args[1] == "-s":
		return s.patch(p.ctx, args[0], args[3], args[2])
	}
	return s.patch(p.ctx, args[0], args[1])
}

func (p *play) delete(_ *testscript.TestScript, _ bool, args []string) error {
	resource, name, _, err := p.object(args, 2)
	if err != nil {
		return err
	}
	return resource.Delete(p.ctx, name, metav1.DeleteOptions{})
}

func (p *play) expect(_ *testscript.TestScript, negated bool, args []string) error {
	resource, name, args, err := p.object(args, 2)
	if err != nil {
		return err
	}
	return p.wait(func(ctx context.Context) error {
		found, err := resource.Get(ctx, name, metav1.GetOptions{})
		switch {
		case negated && apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case negated:
			return fmt.Errorf("%s is still there", args[0])
		}
		for _, condition := range args[1:] {
			if err := Check(found.Object, condition); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
		}
		return nil
	})
}

func (p *play) wait(check func(context.Context) error) error {
	wait := p.Wait
	if wait == nil {
		wait = testenv.Wait
	}
	return wait(func() error { return check(p.ctx) })
}

func (p *play) event(_ *testscript.TestScript, negated bool, args []string) error {
	if len(args) < 1 {
		return errors.New("which object?")
	}
	if negated {
		p.Settle()
		found, err := p.events(p.ctx, args[0])
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("%s has the Events %q", args[0], found)
		}
		return err
	}
	return p.wait(func(ctx context.Context) error {
		found, err := p.events(ctx, args[0])
		if err != nil {
			return err
		}
		for _, text := range found {
			if !slices.ContainsFunc(args[1:], func(word string) bool { return !strings.Contains(text, word) }) {
				return nil
			}
		}
		return fmt.Errorf("%s has the Events %q, none with all of %q", args[0], found, args[1:])
	})
}

// events lists the type, reason, count and message of each Event about an object, if a component whose name begins with
// "liqo-" has written the Event. Events of Kubernetes itself are thus left out.
func (p *play) events(ctx context.Context, what string) (found []string, err error) {
	kind, name, _ := strings.Cut(what, "/")
	home := p.Sides[p.Home]
	resource, _, err := home.of("event/x")
	if err != nil {
		return nil, err
	}
	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		event := list.Items[i].Object
		about, _ := event["involvedObject"].(map[string]any)
		source, _ := event["source"].(map[string]any)
		component, _ := source["component"].(string)
		if strings.EqualFold(fmt.Sprint(about["kind"]), kind) && about["name"] == name && strings.HasPrefix(component, "liqo-") {
			found = append(found, fmt.Sprintf("%v %v x%v: %v", event["type"], event["reason"], event["count"], event["message"]))
		}
	}
	return found, nil
}

func (p *play) remember(ts *testscript.TestScript, _ bool, args []string) error {
	resource, name, args, err := p.object(args, 4)
	if err != nil {
		return err
	}
	found, err := resource.Get(p.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	value, err := lookUp(found.Object, args[1])
	ts.Setenv(args[2], fmt.Sprint(value))
	return err
}

func (p *play) mark() {
	p.marked = map[string]int{}
	for name, s := range p.Sides {
		if s.Writes != nil {
			p.marked[name] = len(s.Writes())
		}
	}
}

func (p *play) writes(_ *testscript.TestScript, _ bool, args []string) error {
	s, rest, err := p.side(args, 2)
	if err != nil {
		return err
	}
	want, err := strconv.Atoi(rest[0])
	if err != nil {
		return err
	}
	p.Settle()
	made := s.Writes()[p.marked[args[0]]:]
	if len(made) != want {
		return fmt.Errorf("%d writes to the %s since the mark, want %d: %q", len(made), args[0], want, made)
	}
	for _, write := range made {
		if slices.ContainsFunc(rest[1:], func(word string) bool { return !strings.Contains(write, word) }) {
			return fmt.Errorf("%s was written to the %s, want one with all of %q", write, args[0], rest[1:])
		}
	}
	return nil
}
