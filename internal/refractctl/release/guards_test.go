// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/test/support/testenv"
)

// latest returns the latest revision of the release.
func latest(t *testing.T, i *installer) int {
	t.Helper()
	config, err := i.newConfiguration()
	require.NoError(t, err)
	history, err := listRevisions(config, i.Name)
	require.NoError(t, err)
	return history[len(history)-1].Version
}

// TestInstallKeepsTheIDOfAJoinedCluster checks that the ID of a cluster cannot change as long as the cluster has peers,
// because they identify it by this ID.
func TestInstallKeepsTheIDOfAJoinedCluster(t *testing.T) {
	install(t, "kept", "refract", "rome")
	i := newInstaller(t, "kept", "refract")
	set := map[string]any{"discovery": map[string]any{"config": map[string]any{"clusterID": "turin"}}}
	refused := func(peer string) {
		t.Helper()
		_, err := i.Install(t.Context(), set)
		require.ErrorContains(t, err, `the id of the cluster, "rome", cannot be changed to "turin" (--cluster-id, discovery.config.clusterID) while it is joined with `+peer+`: end the peerings first`)
		assert.Empty(t, i.said, "nothing is changed")
		assert.Equal(t, 1, latest(t, i))
	}
	t.Run("tenant namespace", func(t *testing.T) {
		create(t, tenant("genoa"))
		refused("genoa")
	})
	testenv.Eventually(t, func() error { // the deletion of the namespace takes a while
		peers, err := i.peerIDs(t.Context())
		if err == nil && slices.Contains(peers, "genoa") {
			err = errors.New("genoa is still there")
		}
		return err
	})
	t.Run("ForeignCluster", func(t *testing.T) {
		create(t, &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "como"}, Spec: core.ForeignClusterSpec{ClusterID: "como"}})
		refused("como")
		_, err := newInstaller(t, "kept", "refract").Install(t.Context(), map[string]any{})
		require.NoError(t, err, "the id is not changed")
	})
	_, err := i.Install(t.Context(), set)
	require.NoError(t, err, "nobody knows the former id")
	found, err := Find(t.Context(), i.Client)
	require.NoError(t, err)
	assert.Equal(t, "turin", found.ClusterID)
}

// TestInstallRefusesADowngrade checks that an older program does not replace the release of a newer program without
// AllowDowngrade.
func TestInstallRefusesADowngrade(t *testing.T) {
	install(t, "newer", "refract", "rome")
	i := newInstaller(t, "newer", "refract")
	version := func(text string) {
		t.Helper()
		config, err := i.newConfiguration()
		require.NoError(t, err)
		history, err := listRevisions(config, i.Name)
		require.NoError(t, err)
		last := history[len(history)-1]
		last.Chart.Metadata.Version = text
		require.NoError(t, config.Releases.Update(last))
	}
	version("99.0.0")
	_, err := i.Install(t.Context(), nil)
	require.ErrorContains(t, err, "release refract in namespace newer is of version 99.0.0, and this refractctl would install ")
	require.ErrorContains(t, err, "use refractctl of version 99.0.0, or set --allow-downgrade")
	assert.Empty(t, i.said, "nothing is changed")
	assert.Equal(t, 1, latest(t, i))

	i.AllowDowngrade = true
	_, err = i.Install(t.Context(), nil)
	require.NoError(t, err)
	i.AllowDowngrade = false
	_, err = i.Install(t.Context(), nil)
	require.NoError(t, err, "the release is of this version now")
	version("development")
	_, err = i.Install(t.Context(), nil)
	require.NoError(t, err, "such versions are not compared")
}

func TestEarlier(t *testing.T) {
	for _, test := range []struct {
		own, other string
		want       bool
	}{
		{"0.1.0", "0.2.0", true}, {"0.2.0", "0.1.0", false}, {"0.1.0", "0.1.0", false}, {"0.9.0", "0.10.0", true}, {"1.0.0-rc.1", "1.0.0", true}, {"1.0.0", "1.0.0-rc.1", false},
		{"v0.1.0", "0.1.1", true}, {"mine", "0.2.0", false}, {"0.1.0", "mine", false}, {"", "0.1.0", false},
	} {
		assert.Equal(t, test.want, isEarlier(test.own, test.other), "%s, %s", test.own, test.other)
	}
}
