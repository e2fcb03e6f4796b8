// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/plugin"
	"github.com/refract-project/refract/internal/pluginsource"
)

// images is a registry.
type images struct {
	host string
	// isDown has it refuse all requests; fetched counts the layers that were downloaded.
	isDown  *atomic.Bool
	fetched *atomic.Int64
}

func newImages(t *testing.T) images {
	t.Helper()
	i := images{isDown: &atomic.Bool{}, fetched: &atomic.Int64{}}
	handler := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.isDown.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/sha256:") {
			i.fetched.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	i.host = strings.TrimPrefix(server.URL, "http://")
	return i
}

// push stores a module and returns the digest of its image.
func (i images) push(t *testing.T, image string, wasm []byte) name.Digest {
	t.Helper()
	made, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(wasm, "application/wasm"))
	require.NoError(t, err)
	reference, err := name.ParseReference(i.host + "/" + image)
	require.NoError(t, err)
	require.NoError(t, remote.Write(reference, made))
	digest, err := made.Digest()
	require.NoError(t, err)
	return reference.Context().Digest(digest.String())
}

// sign stores a signature as cosign 2 does.
func sign(t *testing.T, image name.Digest, key *ecdsa.PrivateKey) {
	t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"type":"cosign container image signature","image":{"docker-manifest-digest":%q}}}`, image.DigestStr())
	sum := sha256.Sum256(payload)
	signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	require.NoError(t, err)
	signed, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer:       static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
	})
	require.NoError(t, err)
	require.NoError(t, remote.Write(image.Context().Tag(strings.Replace(image.DigestStr(), ":", "-", 1)+".sig"), v1.Image(signed)))
}

func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// An image is accepted as the policy of the installation says, which may change; a tag is resolved again at its interval.
func TestImagesAndTheirSignatures(t *testing.T) {
	i := newImages(t)
	key, public := newKey(t)
	stranger, _ := newKey(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(mode string) {
		text := fmt.Sprintf("default: Require\nprefixes:\n- prefix: %s/required\n  mode: %s\n  keys: [%q]\n- prefix: %s/warned\n  mode: Warn\n  keys: [%q]\n- prefix: %s/off\n  mode: Off\n", i.host, mode, public, i.host, public, i.host)
		require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
	}
	write("Require")
	start(t, func(o *plugin.Options) {
		o.TrustPolicy, o.Recheck, o.Sources.InsecureRegistries = policy, time.Second, []string{i.host}
	})
	wasm := assemble(t, manifest, "", hook)
	for image, signer := range map[string]*ecdsa.PrivateKey{
		"required/signed": key, "required/unsigned": nil, "required/wrong": stranger, "warned/unsigned": nil, "warned/wrong": stranger, "off/unsigned": nil, "other/signed": key,
	} {
		if digest := i.push(t, image+":1", wasm); signer != nil {
			sign(t, digest, signer)
		}
	}
	from := func(image string) *plugins.ReflectionPlugin {
		return declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
			s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.host + "/" + image}}
		})
	}
	for _, c := range []struct {
		image      string
		status     metav1.ConditionStatus
		reason     string
		isAccepted bool
	}{
		{"required/signed:1", metav1.ConditionTrue, "Signed", true},
		{"required/unsigned:1", metav1.ConditionFalse, "Unsigned", false},
		{"required/wrong:1", metav1.ConditionFalse, "WronglySigned", false},
		{"warned/unsigned:1", metav1.ConditionFalse, "Unsigned", true},
		{"warned/wrong:1", metav1.ConditionFalse, "WronglySigned", true},
		{"off/unsigned:1", metav1.ConditionUnknown, "NotRequired", true},
		{"other/signed:1", metav1.ConditionFalse, "Unsigned", false}, // required, and nobody's key is good for it
	} {
		t.Run(c.image, func(t *testing.T) {
			p := await(t, from(c.image), plugins.VerifiedCondition, c.status, c.reason)
			if c.isAccepted {
				p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
				revision := &plugins.PluginRevision{}
				cluster.Get(t, revision, "", p.Status.ActiveRevision)
				assert.Contains(t, revision.Spec.Source, "@sha256:")
				assert.Equal(t, c.reason == "Signed", revision.Spec.Signer != "")
			} else {
				p = await(t, p, plugins.AcceptedCondition, metav1.ConditionFalse, "NotVerified")
				assert.Empty(t, p.Status.ActiveRevision)
				assert.Contains(t, message(p, plugins.VerifiedCondition), "next try at")
			}
			if c.status == metav1.ConditionFalse {
				cluster.AwaitEvent(t, installation, plugins.ReflectionPluginKind, p.Name, c.reason)
			}
		})
	}
	t.Run("other sources have no signatures", func(t *testing.T) {
		await(t, declare(t, wasm, nil), plugins.VerifiedCondition, metav1.ConditionFalse, "NotSignable")
	})
	t.Run("a policy that changes", func(t *testing.T) {
		p := await(t, from("required/wrong:1"), plugins.AcceptedCondition, metav1.ConditionFalse, "NotVerified")
		write("Off")
		defer write("Require")
		p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		active := p.Status.ActiveRevision
		write("Require")
		p = await(t, p, plugins.VerifiedCondition, metav1.ConditionFalse, "WronglySigned")
		assert.Equal(t, active, p.Status.ActiveRevision, "what is active stays")
	})
	t.Run("a revision that the policy of today refuses", func(t *testing.T) {
		write("Off")
		defer write("Require")
		p := await(t, from("required/wrong:1"), plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		cluster.Patch(t, p, `{"spec":{"config":{"size":2}}}`)
		p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		active, previous := p.Status.ActiveRevision, p.Status.PreviousRevision
		require.NotEmpty(t, previous)
		write("Require")
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, previous))
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "NotVerified")
		assert.Contains(t, message(p, plugins.ReadyCondition), "requires one for "+i.host+"/required/wrong")
		assert.Equal(t, active, p.Status.ActiveRevision)
		require.NoError(t, os.WriteFile(policy, []byte("default: Perhaps"), 0o600))
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "InvalidTrustPolicy")
		assert.Equal(t, active, p.Status.ActiveRevision)
		write("Off")
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionUnknown, "NotReported")
		assert.Equal(t, previous, p.Status.ActiveRevision)
	})
	t.Run("a module that is verified later", func(t *testing.T) {
		write("Off")
		defer write("Require")
		p := await(t, from("required/signed:1"), plugins.VerifiedCondition, metav1.ConditionUnknown, "NotRequired")
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionUnknown, "NotReported")
		unsigned := p.Status.ActiveRevision
		write("Require")
		p = await(t, p, plugins.VerifiedCondition, metav1.ConditionTrue, "Signed")
		signed := &plugins.PluginRevision{}
		cluster.Get(t, signed, "", p.Status.ActiveRevision)
		assert.NotEmpty(t, signed.Spec.Signer)
		// The pin goes to the one that was verified, and not to the other.
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, unsigned))
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "NotVerified")
		assert.Equal(t, signed.Name, p.Status.ActiveRevision)
		cluster.Patch(t, p, `{"spec":{"revision":"","config":{"size":3}}}`)
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionUnknown, "NotReported")
		require.NotEqual(t, signed.Name, p.Status.ActiveRevision)
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, signed.Name))
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionUnknown, "NotReported")
		assert.Equal(t, signed.Name, p.Status.ActiveRevision)
	})
	t.Run("a policy that is broken", func(t *testing.T) {
		require.NoError(t, os.WriteFile(policy, []byte("default: Perhaps"), 0o600))
		defer write("Require")
		await(t, from("required/signed:1"), plugins.VerifiedCondition, metav1.ConditionFalse, "InvalidTrustPolicy")
	})
	t.Run("a tag is pinned", func(t *testing.T) {
		p := await(t, from("off/unsigned:1"), plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		i.push(t, "off/unsigned:1", assemble(t, manifest, "", hook+`(func (export "moved"))`))
		cluster.Patch(t, p, `{"spec":{"priority":3}}`)
		now := await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		assert.Equal(t, p.Status.ActiveRevision, now.Status.ActiveRevision)
	})
	t.Run("an image that is not there", func(t *testing.T) {
		p := await(t, from("off/absent:1"), plugins.FetchedCondition, metav1.ConditionFalse, "NotFound")
		assert.EqualValues(t, 1, p.Status.Source.Failures)
		await(t, p, plugins.AcceptedCondition, metav1.ConditionUnknown, "NotFetched")
	})
	t.Run("a Secret that is not there", func(t *testing.T) {
		p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
			s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.host + "/off/unsigned:1", PullSecret: &plugins.SecretReference{Name: "absent"}}}
		})
		p = await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, "InvalidSecret")
		assert.Contains(t, message(p, plugins.FetchedCondition), "default/absent")
	})
	t.Run("a large module has several parts", func(t *testing.T) {
		noise := make([]byte, 2_000_000)
		_, _ = rand.Read(noise)
		large := append(assemble(t, manifest, "", hook), custom(noise)...)
		i.push(t, "off/large:1", large)
		p := await(t, from("off/large:1"), plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		revision := &plugins.PluginRevision{}
		controllertest.Eventually(t, "the revision", func() error {
			cluster.Get(t, p, "", p.Name)
			return cluster.Client.Get(t.Context(), client.ObjectKey{Name: p.Status.ActiveRevision}, revision)
		})
		assert.EqualValues(t, 3, revision.Spec.Parts)
		assert.Equal(t, 3, modulesOf(t, revision.Spec.SHA256))
		// Other settings of it need no registry: the stored module is read, and checked.
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"limits":{"fuel":%d}}}`, 12345))
		now := await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		assert.NotEqual(t, p.Status.ActiveRevision, now.Status.ActiveRevision)
	})
}

// A stored module that is not the one in its name is not used, but fetched again, and replaced.
func TestADamagedModuleIsReplaced(t *testing.T) {
	i := newImages(t)
	start(t, func(o *plugin.Options) { o.Sources.InsecureRegistries = []string{i.host} })
	wasm := assemble(t, manifest, "", hook+`(func (export "damaged"))`)
	i.push(t, "plugins/a:1", wasm)
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.host + "/plugins/a:1"}}
	})
	p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	key := client.ObjectKey{Name: plugins.PluginModuleName(pluginsource.Digest(wasm), 0)}
	damage := func() (whole []byte) {
		module := &plugins.PluginModule{}
		cluster.Get(t, module, "", key.Name)
		damaged := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: key.Name}, Spec: module.Spec}
		cluster.Delete(t, module)
		damaged.Spec.Data = append([]byte{}, module.Spec.Data[:len(module.Spec.Data)-20]...)
		cluster.Create(t, damaged)
		return module.Spec.Data
	}
	whole := damage()
	cluster.Patch(t, p, `{"spec":{"config":{"size":1}}}`)
	now := await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	assert.NotEqual(t, p.Status.ActiveRevision, now.Status.ActiveRevision)
	mended := &plugins.PluginModule{}
	cluster.Get(t, mended, "", key.Name)
	assert.Equal(t, whole, mended.Spec.Data)
	damage()
	// Without the source nothing is accepted, and what is active stays.
	cluster.Patch(t, now, `{"spec":{"config":{"size":2},"source":{"oci":{"image":"`+i.host+`/plugins/absent:1"}}}}`)
	last := await(t, now, plugins.FetchedCondition, metav1.ConditionFalse, "NotFound")
	assert.Equal(t, now.Status.ActiveRevision, last.Status.ActiveRevision)
}

// A tag that cannot be resolved again, or has moved to an image that the policy refuses, does not keep what is stored from getting other settings and from becoming active.
func TestWhatIsStoredNeedsNoRegistry(t *testing.T) {
	i := newImages(t)
	key, public := newKey(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, fmt.Appendf(nil, "prefixes:\n- prefix: %s\n  mode: Require\n  keys: [%q]\n", i.host, public), 0o600))
	options := func(o *plugin.Options) {
		o.TrustPolicy, o.Recheck, o.Sources.InsecureRegistries = policy, time.Second, []string{i.host}
	}
	manager := start(t, options)
	sign(t, i.push(t, "a:1", assemble(t, manifest, "", hook+`(func (export "stored"))`)), key)
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.host + "/a:1", Interval: &metav1.Duration{Duration: time.Minute}}}
		s.Rollout.Strategy = plugins.RehearseRollout
	})
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "WaitingForRehearsal")
	manager.Stop(t)
	// A controller manager that starts resolves the tag at once.
	i.isDown.Store(true)
	manager = start(t, options)
	p = await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, "Unavailable")
	assert.Contains(t, message(p, plugins.FetchedCondition), "next try at")
	approve := func(p *plugins.ReflectionPlugin) {
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"rollout":{"rehearsal":{"approved":%q}}}}`, p.Status.CandidateRevision))
		now := await(t, p, plugins.ReadyCondition, metav1.ConditionUnknown, "NotReported")
		assert.Equal(t, p.Status.CandidateRevision, now.Status.ActiveRevision)
	}
	approve(p)
	cluster.Patch(t, p, `{"spec":{"config":{"size":7}}}`)
	p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionUnknown, "WaitingForRehearsal")
	approve(p)
	manager.Stop(t)

	i.isDown.Store(false)
	i.push(t, "a:1", assemble(t, manifest, "", hook+`(func (export "unsigned"))`))
	cluster.PatchStatus(t, p, `{"status":{"source":{"nextTry":null}}}`)
	start(t, options)
	p = await(t, p, plugins.VerifiedCondition, metav1.ConditionFalse, "Unsigned")
	cluster.Patch(t, p, `{"spec":{"config":{"size":8}}}`)
	p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	assert.Equal(t, metav1.ConditionFalse, apimeta.FindStatusCondition(p.Status.Conditions, plugins.VerifiedCondition).Status)
}

// A module that is lost while its revision exists is stored again, without a change of the plugin.
func TestALostModuleIsStoredAgain(t *testing.T) {
	i := newImages(t)
	start(t, func(o *plugin.Options) {
		o.Recheck, o.Sources.InsecureRegistries = 200*time.Millisecond, []string{i.host}
	})
	inImage := assemble(t, manifest, "", hook+`(func (export "lostImage"))`)
	inConfigMap := assemble(t, manifest, "", hook+`(func (export "lostConfigMap"))`)
	i.push(t, "a:1", inImage)
	fromImage := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.host + "/a:1"}}
	})
	fromConfigMap := declare(t, inConfigMap, nil)
	for wasm, p := range map[string]*plugins.ReflectionPlugin{string(inImage): fromImage, string(inConfigMap): fromConfigMap} {
		await(t, p, plugins.ReadyCondition, metav1.ConditionUnknown, "NotReported")
		lost := &plugins.PluginModule{}
		cluster.Get(t, lost, "", plugins.PluginModuleName(pluginsource.Digest([]byte(wasm)), 0))
		cluster.Delete(t, lost)
		again := &plugins.PluginModule{}
		controllertest.Eventually(t, "the module to be stored again", func() error {
			return cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(lost), again)
		})
		assert.Equal(t, lost.Spec, again.Spec)
	}
}

// A module that cannot be stored is not fetched again for each attempt.
func TestAModuleIsFetchedOnceUntilItIsStored(t *testing.T) {
	i := newImages(t)
	manager := start(t, func(o *plugin.Options) { o.Sources.InsecureRegistries = []string{i.host} })
	const policy = "no-modules"
	mend := cluster.Deny(t, policy, admissionv1.Create, plugins.GroupVersion.Group, "pluginmodules", "", func(c client.Client) error {
		probe := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: plugins.PluginModuleSpec{SHA256: strings.Repeat("0", 64), Parts: 1, Data: []byte("x")}}
		return c.Create(t.Context(), probe, client.DryRunAll)
	})
	i.push(t, "a:1", assemble(t, manifest, "", hook+`(func (export "denied"))`))
	i.fetched.Store(0)
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.host + "/a:1"}}
	})
	denied := 0
	controllertest.Eventually(t, "four attempts", func() error {
		if denied += len(manager.Writes.Denied()); denied < 4 {
			return fmt.Errorf("there were %d", denied)
		}
		return nil
	})
	mend()
	await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	_ = manager.Writes.Denied()
	assert.LessOrEqual(t, i.fetched.Load(), int64(2), "the configuration of the image and its layer")
}

// custom returns a custom section of a module, which has no effect.
func custom(content []byte) []byte {
	body := append([]byte{1, 'n'}, content...)
	section := []byte{0}
	for size := len(body); ; size >>= 7 {
		if size < 0x80 {
			return append(append(section, byte(size)), body...)
		}
		section = append(section, byte(size&0x7f|0x80))
	}
}
