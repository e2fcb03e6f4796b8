// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/peering"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/proxy"
)

// TestInterrupted checks that an interrupted command can be run again, with the same result as without the
// interruption, and that a failed command removes the objects that it has created. This test runs no containers.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.interruptedInstallation()
	w.must("install", "--context=milan", "--cluster-id=milan", "--registry=registry.example.com/refract", replicas)
	w.seesChanges()
	w.hungUp()
	w.registerNodes("milan")
	w.notSigned()
	w.cutOff()
	w.interruptedPeering()
}

// interruptedInstallation changes Helm's storage as if refractctl install had been killed, and runs the command again.
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

// commandVariable is an environment variable. If it contains arguments of refractctl, the process of this test runs
// refractctl.
const commandVariable = "REFRACT_TEST_COMMAND"

// TestCommand is not a test itself. It runs refractctl for hungUp, which needs a separate process.
func TestCommand(t *testing.T) {
	arguments := os.Getenv(commandVariable)
	if arguments == "" {
		t.SkipNow()
	}
	os.Args = append([]string{"refractctl"}, strings.Fields(arguments)...)
	cli.Main("refractctl")
}

// hungUp closes the terminal while refractctl peer is waiting for a node that is never registered.
func (w *world) hungUp() {
	w.Helper()
	if signal.Ignored(syscall.SIGHUP) {
		w.Log("run with nohup, which refractctl respects: nothing ends it at SIGHUP")
		return
	}
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	command := exec.CommandContext(w.Context(), os.Args[0], "-test.run=^TestCommand$")
	command.Env = append(os.Environ(), commandVariable+"=peer --remote-context=milan --network=none --kubeconfig="+w.kubeconfig+" --remote-api-server-url="+w.milan.Config().Host)
	out, err := command.StderrPipe()
	require.NoError(w, err)
	require.NoError(w, command.Start())
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), "has not registered the node yet") {
			require.NoError(w, command.Process.Signal(syscall.SIGHUP))
		}
	}
	assert.EqualError(w, command.Wait(), "exit status 1")
	require.NotEmpty(w, said)
	assert.Equal(w, "refractctl: interrupted; run the command again to continue", said[len(said)-1], "%q", said)
	w.must("unpeer", "--remote-context=milan")
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, milan)
}

// seesChanges checks that the comparisons in this file detect changes.
func (w *world) seesChanges() {
	w.Helper()
	before := w.inventory(w.rome)
	annotate := func(value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/changed":%s}}}`, value)
		_, err := w.rome.client.CoreV1().Namespaces().Patch(w.Context(), "default", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(w, err)
	}
	annotate(`"true"`)
	assert.NotEqual(w, before, w.inventory(w.rome), "an annotation more")
	annotate("null")
	w.unchanged(w.rome, before)
}

// pair returns the options for peering rome with milan. Requests to milan are sent to the URL in server. If change is
// not nil, it wraps the client for milan. The function progress is called with each line of progress.
func (w *world) pair(server string, change func(client.WithWatch) client.WithWatch, progress func(line string)) *peering.Options {
	w.Helper()
	of := func(s *side, config *rest.Config) *cluster.Cluster {
		config.Timeout, config.QPS, config.WarningHandler = 15*time.Second, -1, rest.NoWarnings{}
		clientset, err := kubernetes.NewForConfig(config)
		require.NoError(w, err)
		return &cluster.Cluster{Name: s.Name(), Config: config, Client: w.typed(config), Clientset: clientset}
	}
	config := w.milan.Config()
	config.Host = server
	provider := of(w.milan, config)
	if change != nil {
		provider.Client = change(provider.Client.(client.WithWatch))
	}
	return &peering.Options{
		Consumer: of(w.rome, w.rome.Config()), Provider: provider, APIServerURL: w.milan.Config().Host, Network: podnetwork.Settings{Mode: plugins.NoNetwork},
		Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		Progress: func(line string) {
			w.Log(line)
			progress(line)
		},
	}
}

func (w *world) typed(config *rest.Config) client.WithWatch {
	w.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, auth.AddToScheme, core.AddToScheme, offloading.AddToScheme, plugins.AddToScheme, networking.AddToScheme, ipam.AddToScheme} {
		require.NoError(w, add(scheme))
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(w, err)
	return c
}

// registerNodes acts, until the end of the test, as the processes that peer and unpeer wait for: it registers a Node
// for each VirtualNode in rome, and grants requests in milan.
func (w *world) registerNodes(names ...string) {
	w.Helper()
	c, provider := w.typed(w.rome.Config()), w.typed(w.milan.Config())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	w.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			grantRequests(ctx, provider)
			for _, name := range names {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType}}}
				vn := &offloading.VirtualNode{}
				switch err := c.Get(ctx, client.ObjectKey{Namespace: wire.TenantNamespace("milan"), Name: name}, vn); {
				case err != nil && client.IgnoreNotFound(err) == nil:
					_ = c.Delete(ctx, node)
				case err == nil:
					_ = c.Create(ctx, node) // ignores errors, because an earlier call may have created the Node
					ready := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
					// Errors are ignored, because the next call retries.
					_ = c.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, ready))
				}
			}
			time.Sleep(300 * time.Millisecond) // longer than peer takes to report what it is waiting for
		}
	}()
}

// grantRequests grants the resources that each ResourceSlice of rome requests. Errors are ignored, because the next
// call retries.
func grantRequests(ctx context.Context, c client.Client) {
	slices := &auth.ResourceSliceList{}
	if err := c.List(ctx, slices, client.InNamespace(wire.TenantNamespace("rome"))); err != nil {
		return
	}
	for i := range slices.Items {
		slice := &slices.Items[i]
		if slice.Status.Condition(auth.ResourcesCondition) != nil && equality.Semantic.DeepEqual(slice.Status.Resources, slice.Spec.Resources) {
			continue
		}
		slice.Status.Resources = slice.Spec.Resources
		slice.Status.Conditions = []auth.ResourceSliceCondition{{Type: auth.ResourcesCondition, Status: auth.ResourceSliceAccepted, LastTransitionTime: metav1.Now()}}
		_ = c.Status().Update(ctx, slice)
	}
}

// notSigned checks that no objects of the peering are left if the certificate for rome is not signed.
func (w *world) notSigned() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	requests := w.milan.client.CertificatesV1().CertificateSigningRequests()
	deny := func(ctx context.Context, name string) error {
		csr, err := requests.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Policy", Message: "no certificates for people"})
		_, err = requests.UpdateApproval(ctx, name, csr, metav1.UpdateOptions{})
		return err
	}
	for what, test := range map[string]struct {
		create func(ctx context.Context, c client.WithWatch, csr *certificatesv1.CertificateSigningRequest) error
		words  []string
	}{
		"denied": {func(ctx context.Context, c client.WithWatch, csr *certificatesv1.CertificateSigningRequest) error {
			return errors.Join(c.Create(ctx, csr), deny(ctx, csr.Name))
		}, []string{"was denied (Policy: no certificates for people)", "configure the approver that denied it to admit requests for the signer kubernetes.io/kube-apiserver-client", "use --credentials=token"}},
		"not answered": {func(ctx context.Context, c client.WithWatch, csr *certificatesv1.CertificateSigningRequest) error {
			csr.Spec.SignerName = "example.com/nobody"
			return c.Create(ctx, csr)
		}, []string{"was not signed within", "the cluster must sign client certificates", "use --credentials=token"}},
	} {
		o := w.pair(w.milan.Config().Host, func(c client.WithWatch) client.WithWatch {
			return interceptor.NewClient(c, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if csr, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
					return test.create(ctx, c, csr)
				}
				return c.Create(ctx, object, options...)
			}})
		}, func(string) {})
		o.Credentials = identity.Certificates
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Minute)
		_, err := o.Peer(ctx)
		cancel()
		require.Error(w, err, what)
		for _, word := range test.words {
			assert.ErrorContains(w, err, word, what)
		}
		w.unchanged(w.rome, rome)
		w.unchanged(w.milan, milan)
	}
}

// cutOff interrupts the connection to milan. The command reports the remaining objects. When it is run again, it
// continues.
func (w *world) cutOff() {
	w.Helper()
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	server, err := url.Parse(w.milan.Config().Host)
	require.NoError(w, err)
	cable := proxy.NewCable(w.T, server.Host)
	host, port, err := net.SplitHostPort(cable.Address())
	require.NoError(w, err)
	through := "https://" + net.JoinHostPort(host, port)

	for what, test := range map[string]struct {
		after string // a line of the output, or a kind of objects that triggers the interruption of the connection
		words []string
	}{
		"before anything is there": {"admitting consumer rome", []string{"run refractctl peer again to continue, or refractctl unpeer"}},
		"with a namespace":         {"Namespace", []string{"Namespace liqo-tenant-rome is left in cluster milan, which did not remove it", "run refractctl peer again to continue, or refractctl unpeer to remove it"}},
	} {
		o := w.pair(through, func(c client.WithWatch) client.WithWatch {
			return interceptor.NewClient(c, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				err := c.Apply(ctx, object, options...)
				if kind, ok := object.(interface{ GetKind() string }); ok && kind.GetKind() == test.after {
					cable.Unplug()
				}
				return err
			}})
		}, func(line string) {
			if strings.Contains(line, test.after) {
				cable.Unplug()
			}
		})
		_, err := o.Peer(w.Context())
		require.Error(w, err, what)
		for _, word := range test.words {
			assert.ErrorContains(w, err, word, what)
		}
		w.unchanged(w.rome, rome)
		cable.Plug(w.T)
		require.NoError(w, peer(w.Context(), w.pair(through, nil, func(string) {})), what)
		require.NoError(w, unpeer(w.Context(), w.pair(through, nil, func(string) {})), what)
		w.unchanged(w.rome, rome)
		w.unchanged(w.milan, milan)
	}
}

func peer(ctx context.Context, o *peering.Options) error {
	_, err := o.Peer(ctx)
	return err
}

func unpeer(ctx context.Context, o *peering.Options) error {
	_, err := o.Unpeer(ctx)
	return err
}

// interruptedPeering cancels peer and unpeer at each line that they print, and runs them again. The result in both
// clusters must be the same as without the interruption.
func (w *world) interruptedPeering() {
	w.Helper()
	begun := time.Now()
	server := w.milan.Config().Host
	apart := map[*side]string{w.rome: w.inventory(w.rome), w.milan: w.inventory(w.milan)}
	joined := map[*side]string{}
	same := func(want map[*side]string) {
		for s, inventory := range want {
			w.unchanged(s, inventory)
		}
	}
	interrupted := 0
	// at runs do, and cancels its context when do prints the line with the given number. It reports whether there is
	// such a line.
	at := func(number int, do func(context.Context, *peering.Options) error) bool {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		lines := 0
		err := do(ctx, w.pair(server, nil, func(string) {
			if lines++; lines == number {
				cancel()
			}
		}))
		if lines < number {
			require.NoError(w, err)
			return false
		}
		// If the interruption comes after the last line, the command is already complete.
		if err != nil {
			interrupted++
			require.EqualError(w, err, "interrupted; run the command again to continue")
		}
		return true
	}
	again := func(do func(context.Context, *peering.Options) error) {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		require.NoError(w, do(ctx, w.pair(server, nil, func(string) {})))
	}
	again(peer)
	testenv.Eventually(w, func() error { // waits for the objects that controllers create in new namespaces
		for _, s := range []*side{w.rome, w.milan} {
			if joined[s] = w.inventory(s); !strings.Contains(joined[s], "configmaps liqo-tenant-") || !strings.Contains(joined[s], "serviceaccounts liqo-tenant-"+map[*side]string{w.rome: "milan", w.milan: "rome"}[s]+"/default") {
				return fmt.Errorf("%s has %s", s.Name(), joined[s])
			}
		}
		return nil
	})
	again(unpeer)
	same(apart)
	number := 1
	for more := true; more; number++ {
		more = at(number, peer)
		again(peer)
		same(joined)
		more = at(number, unpeer) || more
		again(unpeer)
		same(apart)
	}
	assert.GreaterOrEqual(w, interrupted, 10, "lines at which something was interrupted")
	w.Logf("interrupted at %d lines in %.0f s", interrupted, time.Since(begun).Seconds())
}
