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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
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
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/internal/pluginsource"
	"github.com/refract-project/refract/internal/pluginsource/signature"
	"github.com/refract-project/refract/test/support/registrytest"
)

// refuseAll makes the registry respond to all requests with an error.
func refuseAll(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	http.Error(w, "down", http.StatusServiceUnavailable)
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

// TestImagesAndTheirSignatures checks that the policy of the installation, which may change, determines which images
// are accepted, and that a tag whose image has changed keeps its digest when only the settings of the plugin change.
func TestImagesAndTheirSignatures(t *testing.T) {
	i := registrytest.New(t, false)
	key, public := newKey(t)
	stranger, _ := newKey(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(mode string) {
		text := fmt.Sprintf("default: Require\nprefixes:\n- prefix: %s/required\n  mode: %s\n  keys: [%q]\n- prefix: %s/warned\n  mode: Warn\n  keys: [%q]\n- prefix: %s/off\n  mode: Off\n- prefix: configMap/warned\n  mode: Warn\n", i.Host(), mode, public, i.Host(), public, i.Host())
		require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
	}
	write("Require")
	start(t, func(o *plugin.Options) {
		o.TrustPolicy, o.Recheck, o.Sources.InsecureRegistries = policy, time.Second, []string{i.Host()}
	})
	wasm := assemble(t, manifest, "", hook)
	for image, signer := range map[string]*ecdsa.PrivateKey{
		"required/signed": key, "required/unsigned": nil, "required/wrong": stranger, "warned/unsigned": nil, "warned/wrong": stranger, "off/unsigned": nil, "other/signed": key,
	} {
		if digest := i.Push(t, image+":1", registrytest.ModuleImage(t, wasm)); signer != nil {
			sign(t, digest, signer)
		}
	}
	from := func(image string) *plugins.ReflectionPlugin {
		return declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
			s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/" + image}}
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
		{"other/signed:1", metav1.ConditionFalse, "Unsigned", false}, // no key is configured for this image
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
		configMap(t, "warned", wasm)
		p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) { s.Source.ConfigMap.Name = "warned" })
		p = await(t, p, plugins.VerifiedCondition, metav1.ConditionUnknown, "NotSignable")
		cluster.AwaitEvent(t, installation, plugins.ReflectionPluginKind, p.Name, "NotSignable")
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
		assert.Contains(t, message(p, plugins.ReadyCondition), "requires a signature for "+i.Host()+"/required/wrong")
		assert.Equal(t, active, p.Status.ActiveRevision)
		require.NoError(t, os.WriteFile(policy, []byte("default: Perhaps"), 0o600))
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "InvalidTrustPolicy")
		assert.Equal(t, active, p.Status.ActiveRevision)
		write("Off")
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
		assert.Equal(t, previous, p.Status.ActiveRevision)
	})
	t.Run("a module that is verified later", func(t *testing.T) {
		write("Off")
		defer write("Require")
		p := await(t, from("required/signed:1"), plugins.VerifiedCondition, metav1.ConditionUnknown, "NotRequired")
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
		unsigned := p.Status.ActiveRevision
		write("Require")
		p = await(t, p, plugins.VerifiedCondition, metav1.ConditionTrue, "Signed")
		signed := &plugins.PluginRevision{}
		cluster.Get(t, signed, "", p.Status.ActiveRevision)
		assert.NotEmpty(t, signed.Spec.Signer)
		// Only the revision whose signature was verified may be active. The unsigned revision must be refused, even if
		// spec.revision names it.
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, unsigned))
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "NotVerified")
		assert.Equal(t, signed.Name, p.Status.ActiveRevision)
		cluster.Patch(t, p, `{"spec":{"revision":"","config":{"size":3}}}`)
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
		require.NotEqual(t, signed.Name, p.Status.ActiveRevision)
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, signed.Name))
		p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
		assert.Equal(t, signed.Name, p.Status.ActiveRevision)
	})
	t.Run("a policy that is broken", func(t *testing.T) {
		require.NoError(t, os.WriteFile(policy, []byte("default: Perhaps"), 0o600))
		defer write("Require")
		await(t, from("required/signed:1"), plugins.VerifiedCondition, metav1.ConditionFalse, "InvalidTrustPolicy")
	})
	t.Run("a tag is pinned", func(t *testing.T) {
		p := await(t, from("off/unsigned:1"), plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		i.Push(t, "off/unsigned:1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+`(func (export "moved"))`)))
		cluster.Patch(t, p, `{"spec":{"revisionHistoryLimit":3}}`)
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
			s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/off/unsigned:1", PullSecret: &plugins.SecretReference{Name: "absent"}}}
		})
		p = await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, "InvalidSecret")
		assert.Contains(t, message(p, plugins.FetchedCondition), "default/absent")
	})
	t.Run("a large module has several parts", func(t *testing.T) {
		noise := make([]byte, 2_000_000)
		_, _ = rand.Read(noise)
		large := append(assemble(t, manifest, "", hook), custom(noise)...)
		i.Push(t, "off/large:1", registrytest.ModuleImage(t, large))
		p := await(t, from("off/large:1"), plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		revision := &plugins.PluginRevision{}
		controllertest.Eventually(t, "the revision", func() error {
			cluster.Get(t, p, "", p.Name)
			return cluster.Client.Get(t.Context(), client.ObjectKey{Name: p.Status.ActiveRevision}, revision)
		})
		assert.EqualValues(t, 3, revision.Spec.Parts)
		assert.Equal(t, 3, modulesOf(t, revision.Spec.SHA256))
		// A change to the settings must not need the registry, because the stored module is used.
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"limits":{"fuel":%d}}}`, 12345))
		now := await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		assert.NotEqual(t, p.Status.ActiveRevision, now.Status.ActiveRevision)
	})
}

// TestSignaturesOfCosign checks the signatures that cosign 2 and 3 have written, in their two layouts, against a policy
// that requires a signature by one key: only images with such a signature become active, and their revisions name the
// key.
func TestSignaturesOfCosign(t *testing.T) {
	const folder = "../../internal/pluginsource/signature/testdata"
	i := registrytest.New(t, false)
	i.PushSigned(t, folder)
	text, err := os.ReadFile(filepath.Join(folder, "trusted.pub"))
	require.NoError(t, err)
	key, err := signature.ParseKey(string(text))
	require.NoError(t, err)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	required := fmt.Appendf(nil, "prefixes:\n- prefix: %s\n  mode: Require\n  keys: [%q]\n", i.Host(), text)
	require.NoError(t, os.WriteFile(policy, required, 0o600))
	start(t, func(o *plugin.Options) {
		o.TrustPolicy, o.Sources.InsecureRegistries = policy, []string{i.Host()}
	})
	for title, reason := range map[string]string{
		"v2": "", "v3": "", "other-v2": "WronglySigned", "other-v3": "WronglySigned", "attested": "WronglySigned", "unsigned": "Unsigned",
	} {
		t.Run(title, func(t *testing.T) {
			p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
				s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/plugins/" + title + ":1"}}
			})
			if reason != "" {
				p = await(t, p, plugins.VerifiedCondition, metav1.ConditionFalse, reason)
				p = await(t, p, plugins.AcceptedCondition, metav1.ConditionFalse, "NotVerified")
				assert.Empty(t, p.Status.ActiveRevision)
				return
			}
			p = await(t, p, plugins.VerifiedCondition, metav1.ConditionTrue, "Signed")
			p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
			p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
			revision := &plugins.PluginRevision{}
			cluster.Get(t, revision, "", p.Status.ActiveRevision)
			assert.Equal(t, key.Fingerprint(), revision.Spec.Signer)
			assert.Contains(t, revision.Spec.Source, i.Host()+"/plugins/"+title+"@sha256:")
		})
	}
}

// TestRevisionsOfWithdrawnKeysStayInactive checks that a revision does not become active if the policy does not list the
// key of its signer any more. spec.revision names one such revision, and a user approves another one.
func TestRevisionsOfWithdrawnKeysStayInactive(t *testing.T) {
	i := registrytest.New(t, false)
	oldKey, oldPublic := newKey(t)
	key, public := newKey(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	trust := func(keys ...string) {
		text := fmt.Sprintf("prefixes:\n- prefix: %s\n  mode: Require\n  keys:\n", i.Host())
		for _, key := range keys {
			text += fmt.Sprintf("  - %q\n", key)
		}
		require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
	}
	trust(oldPublic)
	start(t, func(o *plugin.Options) {
		o.TrustPolicy, o.Recheck, o.Sources.InsecureRegistries = policy, time.Second, []string{i.Host()}
	})
	image := i.Push(t, "a:1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+`(func (export "withdrawn"))`)))
	sign(t, image, oldKey)
	from := func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/a:1"}}
	}
	pinned := await(t, declare(t, nil, from), plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	withdrawn := pinned.Status.ActiveRevision
	rehearsed := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		from(s)
		s.Rollout = plugins.PluginRollout{Strategy: plugins.RehearseRollout, Rehearsal: &plugins.PluginRehearsal{Approval: plugins.ManualApproval}}
	})
	rehearsed = await(t, rehearsed, plugins.ReadyCondition, metav1.ConditionFalse, "WaitingForApproval")
	candidate := rehearsed.Status.CandidateRevision
	require.NotEmpty(t, candidate)

	// The same image gets a signature of another key, and the first key is withdrawn.
	sign(t, image, key)
	trust(public)
	controllertest.Eventually(t, "a revision with the other signer", func() error {
		cluster.Get(t, pinned, "", pinned.Name)
		cluster.Get(t, rehearsed, "", rehearsed.Name)
		if pinned.Status.ActiveRevision == withdrawn || rehearsed.Status.CandidateRevision == candidate {
			return fmt.Errorf("active is %q, the candidate %q", pinned.Status.ActiveRevision, rehearsed.Status.CandidateRevision)
		}
		return nil
	})
	active := pinned.Status.ActiveRevision
	cluster.Patch(t, pinned, fmt.Sprintf(`{"spec":{"revision":%q}}`, withdrawn))
	pinned = await(t, pinned, plugins.ReadyCondition, metav1.ConditionFalse, "NotVerified")
	assert.Contains(t, message(pinned, plugins.ReadyCondition), "which is not one of those for "+i.Host()+"/a")
	assert.Equal(t, active, pinned.Status.ActiveRevision)
	cluster.Patch(t, rehearsed, fmt.Sprintf(`{"spec":{"rollout":{"rehearsal":{"approved":%q}}}}`, candidate))
	rehearsed = await(t, rehearsed, plugins.ReadyCondition, metav1.ConditionFalse, "WaitingForApproval")
	assert.Empty(t, rehearsed.Status.ActiveRevision)

	// While the registry does not answer, the signature of a candidate cannot be verified again.
	candidate = rehearsed.Status.CandidateRevision
	i.Inject(refuseAll)
	trust(oldPublic)
	cluster.Patch(t, rehearsed, fmt.Sprintf(`{"spec":{"rollout":{"rehearsal":{"approved":%q}}}}`, candidate))
	rehearsed = await(t, rehearsed, plugins.VerifiedCondition, metav1.ConditionUnknown, "NotFetched")
	assert.Empty(t, rehearsed.Status.ActiveRevision)

	// With its key, the revision becomes active again.
	controllertest.Eventually(t, "the named revision to be active", func() error {
		if cluster.Get(t, pinned, "", pinned.Name); pinned.Status.ActiveRevision != withdrawn {
			return fmt.Errorf("%s is active", pinned.Status.ActiveRevision)
		}
		return nil
	})
}

// TestTheSameModuleOfAnotherSourceIsAnotherRevision checks that a module gets a new revision when the source of its
// plugin changes. Otherwise the policy of signatures for the former source would decide whether the module of the
// present source becomes active.
func TestTheSameModuleOfAnotherSourceIsAnotherRevision(t *testing.T) {
	_, public := newKey(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	trust := func(mode string) {
		require.NoError(t, os.WriteFile(policy, fmt.Appendf(nil, "default: Off\nprefixes:\n- prefix: configMap/guarded\n  mode: %s\n  keys: [%q]\n", mode, public), 0o600))
	}
	trust("Off")
	start(t, func(o *plugin.Options) { o.TrustPolicy, o.Recheck = policy, time.Second })
	wasm := assemble(t, manifest, "", hook+`(func (export "moved"))`)
	for _, name := range []string{"open", "guarded"} {
		configMap(t, name, wasm)
	}
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) { s.Source.ConfigMap.Name = "open" })
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	open := p.Status.ActiveRevision
	cluster.Patch(t, p, `{"spec":{"source":{"configMap":{"name":"guarded"}}}}`)
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	guarded := p.Status.ActiveRevision
	require.NotEqual(t, open, guarded)

	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, open))
	await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	trust("Require")
	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, guarded))
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "NotVerified")
	assert.Contains(t, message(p, plugins.ReadyCondition), "requires a signature for configMap/guarded")
	assert.Equal(t, open, p.Status.ActiveRevision)
}

// TestUnreadableSignaturesAreNotAcceptedWithAWarning checks that a module whose signatures cannot be read is not accepted
// in the mode Warn either. Otherwise an attacker on the way to the registry could replace a signed image. The signatures
// are read again later.
func TestUnreadableSignaturesAreNotAcceptedWithAWarning(t *testing.T) {
	i := registrytest.New(t, false)
	key, public := newKey(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, fmt.Appendf(nil, "prefixes:\n- prefix: %s\n  mode: Warn\n  keys: [%q]\n", i.Host(), public), 0o600))
	start(t, func(o *plugin.Options) {
		o.TrustPolicy, o.Recheck, o.Sources.InsecureRegistries = policy, time.Second, []string{i.Host()}
	})
	for image, signer := range map[string]*ecdsa.PrivateKey{"signed": key, "unsigned": nil} {
		digest := i.Push(t, image+":1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+`(func (export "`+image+`"))`)))
		if signer != nil {
			sign(t, digest, signer)
		}
	}
	i.Inject(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, ".sig") || strings.Contains(r.URL.Path, "/referrers/") {
			refuseAll(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	})
	declared := map[string]*plugins.ReflectionPlugin{}
	for _, image := range []string{"signed", "unsigned"} {
		p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
			s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/" + image + ":1"}}
		})
		p = await(t, p, plugins.VerifiedCondition, metav1.ConditionFalse, "SignaturesUnavailable")
		assert.Contains(t, message(p, plugins.VerifiedCondition), "next try at")
		p = await(t, p, plugins.AcceptedCondition, metav1.ConditionFalse, "NotVerified")
		assert.Empty(t, p.Status.ActiveRevision)
		declared[image] = p
	}
	i.Inject(nil)
	await(t, declared["signed"], plugins.VerifiedCondition, metav1.ConditionTrue, "Signed")
	p := await(t, declared["unsigned"], plugins.VerifiedCondition, metav1.ConditionFalse, "Unsigned")
	await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
}

// TestARevisionWithAnotherContentIsNotUsed checks that an existing revision is not used for a module because of its name
// alone. The name contains only a part of the digest of the content.
func TestARevisionWithAnotherContentIsNotUsed(t *testing.T) {
	manager := start(t)
	wasm := assemble(t, manifest, "", hook+`(func (export "taken"))`)
	p := await(t, declare(t, wasm, nil), plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	genuine := &plugins.PluginRevision{}
	cluster.Get(t, genuine, "", p.Status.ActiveRevision)
	manager.Stop(t)
	cluster.Delete(t, genuine)
	cluster.AwaitGone(t, genuine.DeepCopy())
	forged := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: genuine.Name, OwnerReferences: genuine.OwnerReferences}, Spec: genuine.Spec}
	forged.Spec.Signer = strings.Repeat("0", 64)
	cluster.Create(t, forged)
	cluster.PatchStatus(t, p, `{"status":{"activeRevision":""}}`)
	start(t)
	p = await(t, p, plugins.AcceptedCondition, metav1.ConditionFalse, "RevisionNameTaken")
	assert.Contains(t, message(p, plugins.AcceptedCondition), "PluginRevision "+genuine.Name+" has another content: change spec.config, or rename the plugin")
	assert.Empty(t, p.Status.ActiveRevision)
	cluster.Patch(t, p, `{"spec":{"config":{"size":1}}}`)
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	assert.NotEqual(t, genuine.Name, p.Status.ActiveRevision)
}

// TestADamagedModuleIsReplaced checks that a stored module whose content does not have the digest in its name is not
// used, but fetched again and replaced.
func TestADamagedModuleIsReplaced(t *testing.T) {
	i := registrytest.New(t, false)
	start(t, func(o *plugin.Options) { o.Sources.InsecureRegistries = []string{i.Host()} })
	wasm := assemble(t, manifest, "", hook+`(func (export "damaged"))`)
	i.Push(t, "plugins/a:1", registrytest.ModuleImage(t, wasm))
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/plugins/a:1"}}
	})
	p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	key := client.ObjectKey{Name: plugins.PluginModuleName(pluginsource.Digest(wasm), 0)}
	damage := func(damaged func(data []byte) []byte) (whole []byte) {
		module := &plugins.PluginModule{}
		cluster.Get(t, module, "", key.Name)
		replaced := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: key.Name}, Spec: module.Spec}
		cluster.Delete(t, module)
		replaced.Spec.Data = damaged(module.Spec.Data)
		cluster.Create(t, replaced)
		return module.Spec.Data
	}
	truncate := func(data []byte) []byte { return append([]byte{}, data[:len(data)-20]...) }
	another := func([]byte) []byte {
		others, err := pluginrevision.SplitModule(assemble(t, manifest, "", hook+`(func (export "unverified"))`), pluginsource.Digest(wasm))
		require.NoError(t, err)
		require.Len(t, others, 1)
		return others[0].Spec.Data
	}
	now := p
	for i, damaged := range []func([]byte) []byte{truncate, another} {
		whole := damage(damaged)
		cluster.Patch(t, now, fmt.Sprintf(`{"spec":{"config":{"size":%d}}}`, i+1))
		now = await(t, now, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
		assert.NotEqual(t, p.Status.ActiveRevision, now.Status.ActiveRevision)
		p = now
		mended := &plugins.PluginModule{}
		cluster.Get(t, mended, "", key.Name)
		assert.Equal(t, whole, mended.Spec.Data)
	}
	damage(another)
	// If the source does not exist, no module can be accepted, and the active revision must not change.
	cluster.Patch(t, now, `{"spec":{"config":{"size":9},"source":{"oci":{"image":"`+i.Host()+`/plugins/absent:1"}}}}`)
	last := await(t, now, plugins.FetchedCondition, metav1.ConditionFalse, "NotFound")
	assert.Equal(t, now.Status.ActiveRevision, last.Status.ActiveRevision)
}

// TestPartsOfAnotherCompressionAreKept checks that a module with more or fewer stored parts than its revision has loses
// no parts, and is not fetched again. Another version of Go may have compressed it.
func TestPartsOfAnotherCompressionAreKept(t *testing.T) {
	i := registrytest.New(t, false)
	var requests atomic.Int32
	i.Inject(func(w http.ResponseWriter, r *http.Request, next http.Handler) { requests.Add(1); next.ServeHTTP(w, r) })
	start(t, func(o *plugin.Options) {
		o.Recheck, o.Sources.InsecureRegistries = 200*time.Millisecond, []string{i.Host()}
	})
	noise := make([]byte, 1_000_000)
	_, _ = rand.Read(noise)
	wasm := append(assemble(t, manifest, "", hook), custom(noise)...)
	digest := pluginsource.Digest(wasm)
	store := func(parts int) {
		split, err := pluginrevision.SplitModule(wasm, digest)
		require.NoError(t, err)
		var packed []byte
		for _, part := range split {
			packed = append(packed, part.Spec.Data...)
		}
		for part := range parts {
			module := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: plugins.PluginModuleName(digest, part)}}
			module.Spec = plugins.PluginModuleSpec{SHA256: digest, Parts: int32(parts), Part: int32(part)}
			module.Spec.Data = packed[part*len(packed)/parts : (part+1)*len(packed)/parts]
			cluster.Create(t, module)
		}
	}
	remove := func(parts int) {
		for part := range parts {
			cluster.Delete(t, &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: plugins.PluginModuleName(digest, part)}})
		}
	}
	i.Push(t, "parts:1", registrytest.ModuleImage(t, wasm))
	store(3)
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/parts:1"}}
	})
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	revision := &plugins.PluginRevision{}
	cluster.Get(t, revision, "", p.Status.ActiveRevision)
	assert.EqualValues(t, 3, revision.Spec.Parts)

	remove(3)
	controllertest.Eventually(t, "the module to be stored again in fewer parts", func() error {
		if stored := modulesOf(t, digest); stored != 2 {
			return fmt.Errorf("there are %d parts", stored)
		}
		return nil
	})
	before, reconciled := requests.Load(), reconciliations(t)
	controllertest.Eventually(t, "the stored parts to be checked again", func() error {
		if now := reconciliations(t); now < reconciled+5 {
			return fmt.Errorf("%v of 5 reconciliations", now-reconciled)
		}
		return nil
	})
	assert.Equal(t, before, requests.Load(), "requests to the registry")

	i.Inject(refuseAll)
	remove(2)
	store(5)
	unused := assemble(t, manifest, "", hook+`(func (export "unused"))`)
	other := declare(t, unused, nil)
	await(t, other, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
	cluster.Delete(t, other)
	controllertest.Eventually(t, "the unused module to be deleted", func() error {
		if left := modulesOf(t, pluginsource.Digest(unused)); left > 0 {
			return fmt.Errorf("%d parts are left", left)
		}
		return nil
	})
	assert.Equal(t, 5, modulesOf(t, digest))
}

// TestWhatIsStoredNeedsNoRegistry checks that the stored module can get other settings even if its tag cannot be
// resolved again, or has moved to an image that the policy refuses, and that its revisions can become active even if
// the registry is unavailable.
func TestWhatIsStoredNeedsNoRegistry(t *testing.T) {
	i := registrytest.New(t, false)
	key, public := newKey(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, fmt.Appendf(nil, "prefixes:\n- prefix: %s\n  mode: Require\n  keys: [%q]\n", i.Host(), public), 0o600))
	options := func(o *plugin.Options) {
		o.TrustPolicy, o.Recheck, o.Sources.InsecureRegistries = policy, time.Second, []string{i.Host()}
	}
	manager := start(t, options)
	sign(t, i.Push(t, "a:1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+`(func (export "stored"))`))), key)
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/a:1", Interval: &metav1.Duration{Duration: time.Minute}}}
		s.Rollout = plugins.PluginRollout{Strategy: plugins.RehearseRollout, Rehearsal: &plugins.PluginRehearsal{Approval: plugins.ManualApproval}}
	})
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "WaitingForApproval")
	manager.Stop(t)
	// A controller manager that starts resolves the tag at once.
	i.Inject(refuseAll)
	manager = start(t, options)
	p = await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, "Unavailable")
	assert.Contains(t, message(p, plugins.FetchedCondition), "next try at")
	approve := func(p *plugins.ReflectionPlugin) {
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"rollout":{"rehearsal":{"approved":%q}}}}`, p.Status.CandidateRevision))
		now := await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
		assert.Equal(t, p.Status.CandidateRevision, now.Status.ActiveRevision)
	}
	approve(p)
	cluster.Patch(t, p, `{"spec":{"config":{"size":7}}}`)
	p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	p = await(t, p, plugins.RehearsedCondition, metav1.ConditionFalse, "WaitingForApproval")
	approve(p)
	// A rollback of the user needs no registry either.
	cluster.Get(t, p, "", p.Name)
	previous := p.Status.PreviousRevision
	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, previous))
	controllertest.Eventually(t, "the previous revision to be active", func() error {
		if cluster.Get(t, p, "", p.Name); p.Status.ActiveRevision != previous {
			return fmt.Errorf("%s is active", p.Status.ActiveRevision)
		}
		return nil
	})
	cluster.Patch(t, p, `{"spec":{"revision":""}}`)
	manager.Stop(t)

	i.Inject(nil)
	i.Push(t, "a:1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+`(func (export "unsigned"))`)))
	cluster.PatchStatus(t, p, `{"status":{"source":{"nextTry":null}}}`)
	start(t, options)
	p = await(t, p, plugins.VerifiedCondition, metav1.ConditionFalse, "Unsigned")
	cluster.Patch(t, p, `{"spec":{"config":{"size":8}}}`)
	p = await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	assert.Equal(t, metav1.ConditionFalse, apimeta.FindStatusCondition(p.Status.Conditions, plugins.VerifiedCondition).Status)
}

// TestALostModuleIsStoredAgain checks that a stored module that is lost while its revision exists is stored again
// without a change to the plugin.
func TestALostModuleIsStoredAgain(t *testing.T) {
	i := registrytest.New(t, false)
	start(t, func(o *plugin.Options) {
		o.Recheck, o.Sources.InsecureRegistries = 200*time.Millisecond, []string{i.Host()}
	})
	inImage := assemble(t, manifest, "", hook+`(func (export "lostImage"))`)
	inConfigMap := assemble(t, manifest, "", hook+`(func (export "lostConfigMap"))`)
	i.Push(t, "a:1", registrytest.ModuleImage(t, inImage))
	fromImage := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/a:1"}}
	})
	fromConfigMap := declare(t, inConfigMap, nil)
	for wasm, p := range map[string]*plugins.ReflectionPlugin{string(inImage): fromImage, string(inConfigMap): fromConfigMap} {
		await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "NoVirtualNodes")
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

// TestAModuleIsFetchedOnceUntilItIsStored checks that a module that cannot be stored is not fetched again for each
// attempt.
func TestAModuleIsFetchedOnceUntilItIsStored(t *testing.T) {
	i := registrytest.New(t, false)
	manager := start(t, func(o *plugin.Options) { o.Sources.InsecureRegistries = []string{i.Host()} })
	const policy = "no-modules"
	mend := cluster.Deny(t, policy, admissionv1.Create, plugins.GroupVersion.Group, "pluginmodules", "", func(c client.Client) error {
		probe := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: plugins.PluginModuleSpec{SHA256: strings.Repeat("0", 64), Parts: 1, Data: []byte("x")}}
		return c.Create(t.Context(), probe, client.DryRunAll)
	})
	i.Push(t, "a:1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+`(func (export "denied"))`)))
	i.TakeBlobs()
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/a:1"}}
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
	assert.LessOrEqual(t, i.TakeBlobs(), int64(2), "the configuration of the image and its layer")
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
