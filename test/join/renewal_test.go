// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestCertificatesAreRenewed lets milan sign certificates that are valid for three minutes. rome's virtual kubelet and
// controller manager use each new certificate without a restart, and no longer use the previous one. The test fails if
// a process ends.
func TestCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	w := beginWith(t, func(o *testenv.Options) {
		o.AuditLog = true
		o.ExtraControllerManagerArgs = []string{"--cluster-signing-duration=3m"}
	})
	bin := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, testenv.BuildCommands(t.Context(), bin, "controller-manager", "virtual-kubelet"))
	server := "--remote-api-server-url=" + w.milan.Config().Host
	install := []string{"install", "--registry=registry.example.com/refract", replicas}
	w.must(append(install, "--cluster-id=rome", "--context=rome")...)
	w.must(append(install, "--cluster-id=milan", "--context=milan", "--set=authentication.enabled=true,tenants.unlimitedResources=true")...)
	for _, s := range []*side{w.rome, w.milan} {
		redirectWebhooks(t, s)
		stop := runPods(t, s, bin)
		defer stop()
		defer w.explainOnFailure(s)
	}
	w.controllersWork()
	milanInstalled := w.inventory(w.milan)
	peer := []string{"peer", "--remote-context=milan", server, "--cpu=3", "--memory=4Gi", "--network=none", "--credentials=certificate"}

	role, err := w.milan.client.RbacV1().ClusterRoles().Get(t.Context(), "liqo-remote-renewal", metav1.GetOptions{})
	require.NoError(t, err)
	// Without authentication.enabled, this role does not exist.
	require.NoError(t, w.milan.client.RbacV1().ClusterRoles().Delete(t.Context(), role.Name, metav1.DeleteOptions{}))
	said := w.must(peer...)
	assert.Contains(t, said, "run the command again before; it is renewed automatically if you first set authentication.enabled of the chart in milan")
	assert.Contains(t, said, "raise --cluster-signing-duration")
	found, _ := w.refractctl("doctor")
	assert.Contains(t, found, "nobody else renews this certificate")
	assert.NotContains(t, w.secret().Annotations, wire.RenewedAnnotation)
	role.ResourceVersion, role.UID = "", ""
	_, err = w.milan.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	require.NoError(t, err)

	said = w.must(peer...)
	assert.Contains(t, said, "the controller manager renews it before")
	// On a slow machine, the certificate may be due again before the command has checked it.
	testenv.Eventually(t, func() error {
		found, err := w.refractctl("doctor")
		if !strings.Contains(found, "renewed by the controller manager before") {
			return errors.Join(errors.New("doctor does not report that the certificate is renewed"), err)
		}
		return nil
	})
	used := []tls.Certificate{w.certificate()}
	for range 2 {
		former := used[len(used)-1]
		require.Eventually(t, func() bool { return w.certificate().Leaf.SerialNumber.Cmp(former.Leaf.SerialNumber) != 0 }, 4*time.Minute, time.Second, "the certificate is still the same")
		used = append(used, w.certificate())
	}
	w.usesNoOther(used)
	w.nodeIsReady()

	w.must(append(peer[:len(peer)-1], "--credentials=token")...)
	tenant, err := w.milan.client.CoreV1().Namespaces().Get(t.Context(), "liqo-tenant-rome", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotContains(t, tenant.Annotations, wire.ConsumerKeysAnnotation, "nobody gets a certificate by the former one")
	w.must("unpeer", "--remote-context=milan")
	w.unchanged(w.milan, milanInstalled)
}

// certificate returns the certificate that rome uses for milan.
func (w *world) certificate() tls.Certificate {
	w.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(w.secret().Data[wire.KubeconfigSecretKey])
	require.NoError(w, err)
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	require.NoError(w, err)
	return pair
}

// usesNoOther waits until several consecutive requests of rome, such as pings and heartbeats, were authenticated with
// the current certificate.
func (w *world) usesNoOther(used []tls.Certificate) {
	w.Helper()
	const inARow = 5
	var last string
	var since time.Time
	require.Eventually(w, func() bool {
		now := credentialID(w.certificate())
		seen := w.seenBy(since)
		w.Logf("after %d certificates it is %s, and requests bear %v", len(used), now, seen)
		if now != last || len(seen) > 1 || len(seen) == 1 && seen[now] == 0 {
			last, since = now, time.Now()
			return false
		}
		return seen[now] >= inARow
	}, 2*time.Minute, time.Second)
}

func credentialID(certificate tls.Certificate) string {
	sum := sha256.Sum256(certificate.Leaf.Raw)
	return "X509SHA256=" + hex.EncodeToString(sum[:])
}

// seenBy counts the requests that rome has sent to milan since the given time, by their credentials
// (authentication.kubernetes.io/credential-id in the audit log).
func (w *world) seenBy(since time.Time) map[string]int {
	w.Helper()
	file, err := os.Open(w.milan.AuditLogPath())
	require.NoError(w, err)
	defer func() { _ = file.Close() }()
	seen := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		event := &auditv1.Event{}
		if json.Unmarshal(lines.Bytes(), event) != nil || event.User.Username != "rome" || event.RequestReceivedTimestamp.Time.Before(since) {
			continue
		}
		for _, id := range event.User.Extra["authentication.kubernetes.io/credential-id"] {
			seen[id]++
		}
	}
	require.NoError(w, lines.Err())
	return seen
}

func (w *world) nodeIsReady() {
	w.Helper()
	node, err := w.rome.client.CoreV1().Nodes().Get(w.Context(), "milan", metav1.GetOptions{})
	require.NoError(w, err)
	_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	require.NotNil(w, ready)
	assert.Equal(w, corev1.ConditionTrue, ready.Status, ready.Message)
}
