// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What was interrupted can be run again, and ends as if it had not been. Nothing runs in pods here.
func TestInterrupted(t *testing.T) {
	w := begin(t)
	w.interruptedInstallation()
}

// interruptedInstallation kills refractctl install, as far as Helm's storage shows, and runs it again.
func (w *world) interruptedInstallation() {
	w.Helper()
	install := []string{"install", "--cluster-id=rome", "--registry=registry.example.com/refract", replicas}
	w.must(install...)
	releases := storage.Init(driver.NewSecrets(w.rome.client.CoreV1().Secrets("liqo")))
	last := func() *releasev1.Release {
		stored, err := releases.Last("refract")
		require.NoError(w, err)
		return stored.(*releasev1.Release)
	}
	killed := func(status common.Status, ago time.Duration) {
		revision := last()
		revision.Info.Status, revision.Info.LastDeployed = status, time.Now().Add(-ago)
		if status == common.StatusUninstalling {
			revision.Info.Deleted = revision.Info.LastDeployed
		}
		require.NoError(w, releases.Update(revision))
	}
	deployments := w.rome.client.AppsV1().Deployments("liqo")
	for _, status := range []common.Status{common.StatusPendingInstall, common.StatusPendingUpgrade, common.StatusPendingRollback, common.StatusUninstalling} {
		revision := last().Version
		killed(status, 0)
		w.refused(install, "release liqo/refract: another installation is in progress since", string(status), "wait for it, or run the command again after")
		assert.Equal(w, status, last().Info.Status)

		killed(status, 10*time.Minute)
		require.NoError(w, deployments.Delete(w.Context(), "refract-controller-manager", metav1.DeleteOptions{}))
		w.must(append(install, "--dry-run")...)
		assert.Equal(w, status, last().Info.Status, "a dry run changes nothing")
		assert.Contains(w, w.must(install...), "was interrupted ("+string(status)+" since ")
		assert.Equal(w, common.StatusDeployed, last().Info.Status)
		assert.Equal(w, revision+1, last().Version)
		_, err := deployments.Get(w.Context(), "refract-controller-manager", metav1.GetOptions{})
		require.NoError(w, err)
	}
}
