// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/refract-project/refract/test/support/short"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestCommandsKnowTheirArguments checks that the commands accept the arguments from the chart. The commands parse
// them themselves: an unknown flag or an invalid value fails before --help is evaluated.
func TestCommandsKnowTheirArguments(t *testing.T) {
	short.NeedTime(t, "the commands to be built")
	bin := t.TempDir()
	if err := testenv.BuildCommands(t.Context(), bin, "controller-manager", "virtual-kubelet"); err != nil {
		t.Fatal(err)
	}
	for _, name := range cases {
		for _, object := range deployed(t, values(t, name)) {
			deployment, ok := object.(*appsv1.Deployment)
			if !ok {
				continue
			}
			container := deployment.Spec.Template.Spec.Containers[0]
			if len(container.Command) != 1 || container.Command[0] != "/usr/bin/"+container.Name {
				t.Errorf("%s/%s runs %q", name, deployment.Name, container.Command)
			}
			arguments := strings.Split(strings.ReplaceAll(strings.Join(container.Args, "\n"), "$(POD_IP)", "10.0.0.1"), "\n")
			command := exec.CommandContext(t.Context(), filepath.Join(bin, container.Name), append(arguments, "--help")...)
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s/%s: %v\n%s", name, deployment.Name, err, output)
			}
		}
	}
}
