// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	api "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/test/support/story"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestPluginStories runs the stories in testdata/pluginstories, which are about revisions of the plugin "team" for
// Services. In addition to the commands of reflectiontest.Stage there are:
//
//	plugin REVISION WHAT                  make a revision the active one, without a probation
//	rehearse REVISION WHAT [FIELD=VALUE]  rehearse a revision, and compare fields of the report; path is the first path
//	promote REVISION WHAT                 make a revision the active one, on probation
//	rolledback                            wait until the probation requests a rollback, and restore the previous revision
//	fill NAME NUMBER LABEL                create Services NAME-0 and so on, with the label do
//
// WHAT is nothing, label-VALUE (sets the label by), fail (on objects with the label do: fail), skip or alternate.
func TestPluginStories(t *testing.T) {
	t.Parallel()
	story.Run(t, "testdata/pluginstories", func(t *testing.T) *story.Stage {
		p := &pluginStage{probationLab: newProbationLab(t, teamFor(t, "0", "nothing"))}
		stage := reflectiontest.Stage(p.Lab)
		for name, command := range map[string]func(args []string) error{
			"plugin": p.activate, "rehearse": p.rehearse, "promote": p.promoteNext, "rolledback": p.awaitRollback, "fill": p.fill,
		} {
			stage.Commands[name] = func(negated bool, args []string) error {
				if negated {
					return fmt.Errorf("%s cannot be negated", name)
				}
				return command(args)
			}
		}
		return stage
	})
}

// pluginStage plays the commands about plugins.
type pluginStage struct {
	*probationLab
	active source.Declared
	before source.Declared // the active revision before the last promotion
}

// teamFor returns a revision of the plugin team, for Services.
func teamFor(t *testing.T, revision, what string) source.Declared {
	t.Helper()
	what, value, _ := strings.Cut(what, "-")
	body, ok := map[string]string{
		"nothing": `(func (export "outgoing") (result i32) (i32.const 0))`, "label": fmt.Sprintf(setsLabel, value),
		"fail": failsWhereAsked, "skip": skipsAll, "alternate": alternates,
	}[what]
	require.True(t, ok, what)
	p := declaredPlugin("team", "team-"+revision, module(t, revision, body))
	p.Options.Kinds = []string{reflection.ServiceKind}
	return p
}

// revision returns the revision that the first arguments describe.
func (p *pluginStage) revision(args []string) (source.Declared, error) {
	if len(args) < 2 {
		return source.Declared{}, errors.New("want a revision, and what it does")
	}
	return teamFor(p.T, args[0], args[1]), nil
}

func (p *pluginStage) activate(args []string) (err error) {
	if p.active, err = p.revision(args); err == nil {
		p.declare(p.active)
	}
	return err
}

func (p *pluginStage) promoteNext(args []string) error {
	next, err := p.revision(args)
	if err != nil {
		return err
	}
	p.promote(p.active, next)
	p.before, p.active = p.active, next
	return nil
}

// awaitRollback waits until the probation requests a rollback. It then restores the previous revision, as a virtual
// kubelet does.
func (p *pluginStage) awaitRollback([]string) error {
	select {
	case <-p.rolledBack:
	case <-p.Context().Done():
		return errors.New("no rollback was asked for")
	}
	p.probations.Replace(nil)
	p.active = p.before
	p.declare(p.active)
	return nil
}

func (p *pluginStage) rehearse(args []string) error {
	next, err := p.revision(args)
	if err != nil {
		return err
	}
	report, err := reflection.RehearsePlugin(p.Context(), p.Manager, p.candidate(next))
	if err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(report)
	if err != nil {
		return err
	}
	fields["path"] = firstPath(report)
	for _, expected := range args[2:] {
		name, value, _ := strings.Cut(expected, "=")
		if got := fmt.Sprint(fields[name]); got != value {
			return fmt.Errorf("%s is %s in %+v", name, got, report)
		}
	}
	return nil
}

func firstPath(report *api.PluginRehearsalResult) string {
	if len(report.Paths) == 0 {
		return ""
	}
	return report.Paths[0].Path
}

func (p *pluginStage) fill(args []string) error {
	if len(args) != 3 {
		return errors.New("want a name, a number and a label")
	}
	number, err := strconv.Atoi(args[1])
	for n := range number {
		p.Local.Create(p.T, p.Namespace,
			fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s-%d, labels: {do: %s}}, spec: {ports: [{port: 80}]}}`,
				args[0], n, args[2]))
	}
	return err
}
