// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// TokensAnnotation is an annotation of the Secrets with pods' tokens. It contains the expiry of each token as JSON, so
// that a virtual kubelet can continue to use the tokens after a restart. Liqo's annotation contains only the expiry of
// the first token.
const TokensAnnotation = "plugins.refract.io/tokens"

// tokenNote describes one token in TokensAnnotation.
type tokenNote struct {
	Expires time.Time `json:"expires"`
	Seconds int64     `json:"seconds"` // lifetime
	Sum     string    `json:"sum"`     // see tokenSum
}

// tokenSum returns a short hash of a token, by which a stored token is recognized.
func tokenSum(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:6])
}

// sumsField is a field in a Secret that is cached without its tokens. It contains "KEY:SUM" for each token, separated
// by commas.
const sumsField = "sums"

// tokenSums returns the part of a Secret's content that is cached: the sums, which are compared with the notes about
// the tokens.
func tokenSums(content map[string]any) map[string]any {
	var list []string
	for key, value := range raw.Map(content["data"]) {
		text, _ := value.(string)
		sum := ""
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil && len(decoded) > 0 {
			sum = tokenSum(string(decoded))
		}
		list = append(list, key+":"+sum)
	}
	slices.Sort(list)
	return map[string]any{sumsField: strings.Join(list, ",")}
}

// keptSums returns the sums by key. trimmed is false if the Secret contains the tokens themselves.
func keptSums(secret *unstructured.Unstructured) (sums map[string]string, trimmed bool) {
	if secret == nil {
		return nil, false
	}
	list, trimmed := secret.Object[sumsField].(string)
	sums = map[string]string{}
	for _, item := range strings.Split(list, ",") {
		if key, sum, ok := strings.Cut(item, ":"); ok {
			sums[key] = sum
		}
	}
	return sums, trimmed
}

// heldTokens returns the tokens that are on the provider or were issued recently, for the given sources. A token that
// cannot be read, or that differs from the written token, counts as missing. If the Secret is cached without its
// tokens, the values of the tokens are empty.
func heldTokens(secret *unstructured.Unstructured, sources []tokenSource, issued map[string]token) map[string]token {
	held := map[string]token{}
	notes := tokenNotes(secret, sources)
	sums, trimmed := keptSums(secret)
	for _, source := range sources {
		if fresh, ok := issued[source.key]; ok {
			held[source.key] = fresh
			continue
		}
		note, ok := notes[source.key]
		if !ok {
			continue
		}
		t := token{sum: sums[source.key], expires: note.Expires, life: time.Duration(note.Seconds) * time.Second}
		if !trimmed {
			text, _, _ := unstructured.NestedString(secret.Object, "data", source.key)
			if value, err := base64.StdEncoding.DecodeString(text); err == nil && len(value) > 0 {
				t.value, t.sum = string(value), tokenSum(string(value))
			}
		}
		if t.sum != "" && (note.Sum == "" || note.Sum == t.sum) {
			held[source.key] = t
		}
	}
	return held
}

// tokenNotes reads the notes about the tokens in a Secret. They were written by Refract or by Liqo.
func tokenNotes(secret *unstructured.Unstructured, sources []tokenSource) map[string]tokenNote {
	notes := map[string]tokenNote{}
	if secret == nil {
		return notes
	}
	annotations := raw.Annotations(secret.Object)
	if annotations[wire.ServiceAccountPodUIDAnnotation] == nil {
		// The notes cannot be used, because it is unknown to which pod the tokens belong.
		return notes
	}
	if text, ok := annotations[TokensAnnotation].(string); ok {
		if json.Unmarshal([]byte(text), &notes) != nil {
			return nil
		}
		return notes
	}
	text, _ := annotations[wire.ServiceAccountExpirationAnnotation].(string)
	if expires, err := time.Parse(time.RFC3339, text); err == nil {
		for _, source := range sources {
			notes[source.key] = tokenNote{Expires: expires, Seconds: source.seconds}
		}
	}
	return notes
}

// tokenSecret returns the content of the Secret with the tokens of a pod. This corresponds to Liqo's ServiceAccount
// reflection.
func tokenSecret(pod *unstructured.Unstructured, held map[string]token) map[string]any {
	data, notes := map[string]any{}, map[string]tokenNote{}
	var first time.Time
	for key, t := range held {
		data[key] = base64.StdEncoding.EncodeToString([]byte(t.value))
		notes[key] = tokenNote{Expires: t.expires.UTC(), Seconds: int64(t.life / time.Second), Sum: t.sum}
		if first.IsZero() || t.expires.Before(first) {
			first = t.expires
		}
	}
	// The error is ignored, because strings and numbers can always be encoded.
	text, _ := json.Marshal(notes)
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": false, "data": data,
		"metadata": map[string]any{
			"labels": map[string]any{wire.ServiceAccountNameLabel: labelValue(access.ServiceAccount(pod))},
			"annotations": map[string]any{
				wire.ServiceAccountPodNameAnnotation:    pod.GetName(),
				wire.ServiceAccountPodUIDAnnotation:     string(pod.GetUID()),
				wire.ServiceAccountExpirationAnnotation: first.UTC().Format(time.RFC3339),
				TokensAnnotation:                        string(text),
			},
		},
	}
}

// labelValue returns the name. If the name is too long for a label value, it returns the beginning of the name with a
// hash of the whole name.
func labelValue(name string) string {
	const sumLength = 8
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:validation.LabelValueMaxLength-1-sumLength] + "-" + hex.EncodeToString(sum[:sumLength/2])
}

// checkTokenNames returns an error if the name of the Secret is too long. It is derived from the name of the pod.
func (h *Handler) checkTokenNames(key queue.Key) error {
	if name := h.Copies.RemoteName(key.Name); len(name) > validation.DNS1123SubdomainMaxLength {
		return &failure.InputError{Problem: fmt.Sprintf("Secret name %s for the pod's tokens is too long (%d characters, maximum %d):"+
			" give the pod a shorter name, %s", name, len(name), validation.DNS1123SubdomainMaxLength, access.WithoutRemedy)}
	}
	return nil
}

// inTheWay adds a remedy for the pod's user to the error about another Secret with the same name.
func inTheWay(err error) error {
	var foreign *failure.ForeignError
	if !errors.As(err, &foreign) {
		return err
	}
	return fmt.Errorf("%w; this Secret name is needed for the pod's tokens; exclude the other Secret from reflection (annotation %s), %s", err, wire.SkipReflectionAnnotation, access.WithoutRemedy)
}
