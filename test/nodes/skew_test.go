// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/nodelab"
)

// TestVersionSkew runs an earlier revision of Refract in one of the clusters, and then in the other. Pods must be
// offloaded between the two versions. Then the cluster with the earlier revision is upgraded. This must not restart or
// replace pods, and offloading must still work. The revision is a tag or a commit of this repository: `make test-skew
// FROM=REVISION`.
func TestVersionSkew(t *testing.T) {
	revision := os.Getenv("REFRACT_SKEW")
	if revision == "" {
		t.Skip("it needs another revision, and builds all of it: run `make test-skew FROM=REVISION`")
	}
	for _, older := range []string{"rome", "milan"} {
		t.Run(older+" is older", func(t *testing.T) { skew(t, revision, older) })
	}
}

func skew(t *testing.T, revision, older string) {
	w := begin(t, nodelab.Options{})
	defer w.explain()
	w.buildOlder(revision)
	for _, context := range []string{"rome", "milan"} {
		if context == older {
			w.run(fmt.Sprintf("refractctl-older install --context=%s --cluster-id=%s --registry=registry.example.com/older", context, context))
		} else {
			w.run(fmt.Sprintf("refractctl install --context=%s --cluster-id=%s --registry=registry.example.com/refract", context, context))
		}
	}
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=2 --memory=2Gi")
	w.run("kubectl create namespace shop")
	w.run("refractctl offload namespace shop --pod-offloading-strategy=Remote")
	w.run("kubectl --namespace=shop create configmap settings --from-literal=mode=fast")
	w.run("kubectl --namespace=shop create deployment web --image=registry.example.com/web --replicas=2")
	w.run("kubectl --namespace=shop expose deployment web --port=8080")
	w.shopWorks("fast")
	pods := w.pods()

	w.run(fmt.Sprintf("refractctl install --context=%s --cluster-id=%s --registry=registry.example.com/refract", older, older))
	w.run("kubectl --namespace=liqo-tenant-milan rollout status deployment/vk-milan --timeout=5m")
	w.run("kubectl wait node/milan --for=condition=Ready --timeout=5m")
	w.run("kubectl --namespace=shop patch configmap settings --patch='{\"data\":{\"mode\":\"slow\"}}'")
	w.shopWorks("slow")
	require.Equal(t, pods, w.pods(), "the upgrade has cost pods")
	for _, context := range []string{"rome", "milan"} {
		require.NotContains(t, w.run("kubectl --context="+context+" --namespace=liqo get deployments --output=jsonpath='{..image}'"), "/older/")
	}
	w.run("kubectl delete namespace shop")
	w.run("refractctl unpeer --context=rome --remote-context=milan")
}

// buildOlder builds the images and the refractctl command of another revision.
func (w *world) buildOlder(revision string) {
	w.Helper()
	source := filepath.Join(w.TempDir(), "older")
	w.do("", "git", "worktree", "add", "--detach", source, revision)
	w.Cleanup(func() { w.do("", "git", "worktree", "remove", "--force", source) })
	w.do(source, "go", "build", "-o", w.lab.Path("bin/refractctl-older"), "./cmd/refractctl")
	w.do(source, "go", "run", "./build/images", "--push="+w.lab.Registry.Address()+"/older", "--plain-http", "--platforms=linux/"+runtime.GOARCH, "--source="+source)
}

func (w *world) do(dir string, name string, args ...string) {
	w.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(w, err, "%s: %s", cmd, out)
}

// shopWorks checks that the shop application works on the provider, and that its settings have the given mode.
func (w *world) shopWorks(mode string) {
	w.Helper()
	w.run("kubectl --namespace=shop rollout status deployment/web --timeout=5m")
	w.verify([]check{
		{"the node", `kubectl --namespace=shop get pods --output=jsonpath="{.items[*].spec.nodeName}"`, `^milan milan$`},
		{"logs", `kubectl --namespace=shop logs deployment/web`, `serving on :8080`},
		{"a Service, by its name", `kubectl --namespace=shop exec deployment/web -- workload get http://web:8080/`, `pod=web-`},
		{"settings", `kubectl --context=milan --namespace=shop-rome get configmap settings --output=jsonpath="{.data.mode}"`, "^" + mode + "$"},
	})
}

// pods returns the pods of the shop in both clusters, with their numbers of restarts.
func (w *world) pods() string {
	w.Helper()
	const fields = `--output=jsonpath="{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{'\n'}{end}" | sort`
	return strings.TrimSpace(w.run("kubectl --namespace=shop get pods "+fields) + w.run("kubectl --context=milan --namespace=shop-rome get pods "+fields))
}
