// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNothingLargeIsLinked checks that the program does not import certain large packages. A single import of such a
// package doubles the size of the program, most of which remains in memory: see RATIONALE.md, "Why does the kubelet ask
// for client certificates?".
func TestNothingLargeIsLinked(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	linked := strings.Fields(string(output))
	if !slices.Contains(linked, "k8s.io/client-go/rest") {
		t.Fatalf("go list says %.200s", output)
	}
	for _, large := range []string{
		"google.golang.org/grpc", "github.com/google/cel-go/cel", "golang.org/x/net/trace",
		// The root package of controller-runtime consists of aliases, and links managers, builders and webhooks.
		"sigs.k8s.io/controller-runtime", "sigs.k8s.io/controller-runtime/pkg/manager", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
		// Only the controller manager fetches plugins.
		"github.com/google/go-containerregistry/pkg/v1/remote", "github.com/refract-project/refract/internal/pluginsource",
	} {
		if slices.Contains(linked, large) {
			t.Errorf("%s is linked: see by which import (go list -deps -json), and whether there is a smaller one", large)
		}
	}
}
