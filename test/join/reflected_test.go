// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/testenv"
)

const (
	deletedFile   = "--filename=testdata/deleted.yaml"
	remainingFile = "--filename=testdata/remaining.yaml"
)

// reflected checks the reflection of objects in shop under the policies of both clusters: they are created, changed and
// deleted in milan, and get the addresses that milan assigns.
func (w *world) reflected() {
	w.Helper()
	kinds := []string{
		"service", "endpointslice.discovery.k8s.io", "configmap", "secret", "ingress.networking.k8s.io", "networkpolicy.networking.k8s.io",
		"poddisruptionbudget.policy",
	}
	w.kubectlOn("rome", "apply", deletedFile, remainingFile)
	w.becomes(strings.Join(kinds, "/page ")+"/page", deletedFile, "--output=name")
	w.becomes("service/public ingress.networking.k8s.io/public", remainingFile, "--output=name")

	const address = `{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}`
	w.kubectlOn("milan", "patch", remainingFile, "--subresource=status", "--type=merge", "--patch="+address)
	testenv.Eventually(w, func() error {
		const output = "--output=jsonpath={.items[*].status.loadBalancer.ingress[*].ip}"
		if got := w.kubectlOn("rome", "get", remainingFile, output); got != "192.0.2.1 192.0.2.1" {
			return fmt.Errorf("the addresses in rome are %q", got)
		}
		return nil
	})

	w.kubectlOn("rome", "label", deletedFile, "changed=yes")
	w.becomes(strings.TrimSpace(strings.Repeat("yes ", len(kinds))), deletedFile, "--output=jsonpath={.items[*].metadata.labels.changed}")
	w.kubectlOn("rome", "label", "pods", "--selector=app=web", "changed=yes")
	w.becomes("yes yes", "pods", "--selector=app=web", "--output=jsonpath={.items[*].metadata.labels.changed}")
	w.kubectlOn("rome", "delete", deletedFile)
	w.becomes("", deletedFile, "--output=name")
}

// becomes waits until the output of kubectl get in milan consists of the given words.
func (w *world) becomes(words string, args ...string) {
	w.Helper()
	testenv.Eventually(w, func() error {
		got := strings.Join(strings.Fields(w.kubectlOn("milan", append([]string{"get", "--ignore-not-found"}, args...)...)), " ")
		if got != words {
			return errors.New("milan has " + got)
		}
		return nil
	})
}

// kubectlOn runs kubectl in the namespace shop of rome, or in its remote namespace in milan, and returns the output.
func (w *world) kubectlOn(name string, args ...string) string {
	w.Helper()
	namespace := map[string]string{"rome": "shop", "milan": "shop-rome"}[name]
	args = append(args, "--context="+name, "--namespace="+namespace, "--kubeconfig="+w.kubeconfig)
	out, err := exec.CommandContext(w.Context(), w.kubectl, args...).CombinedOutput()
	require.NoError(w, err, "kubectl %s: %s", args, out)
	return string(out)
}
