// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
)

// warnMissing warns with an Event if a pod that starts containers needs objects that are not reflected and do not exist
// on the provider. The pod is offloaded nevertheless, because it starts as soon as the object is created there or
// reflected, and only the provider's kubelet knows that. Optional references are ignored, as are kinds in
// RemoteReferencesAnnotation.
func (h *Handler) warnMissing(ctx context.Context, w *evaluation.Worker, v *podView, spec document.View) {
	var missing []string
	for _, excluded := range v.scope.Exclusions(listReferences(spec, true)) {
		if h.isRemote(v, excluded.Kind) || !h.isMissing(ctx, v, excluded) {
			continue
		}
		missing = append(missing, fmt.Sprintf("%s %s (%s): %s", excluded.Kind, excluded.Object.GetName(), excluded.Reason, h.remedyMissing(v, excluded)))
	}
	if len(missing) == 0 {
		return
	}
	shown := missing[:min(len(missing), shownLags)]
	if more := len(missing) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	w.Warned = true
	h.Events.Warn(v.local, MissingReferencesReason, fmt.Sprintf("containers may not start on cluster %s, because the pod refers to objects that are not reflected and do not exist there: %s",
		h.Options().RemoteClusterID, strings.Join(shown, "; ")))
}

// isMissing reports whether the provider has no object with the name of an object that is not reflected. It reads
// metadata only. If the provider does not respond or denies the request, the object does not count as missing.
func (h *Handler) isMissing(ctx context.Context, v *podView, excluded engine.Exclusion) bool {
	err := h.Clients.CallRemote(ctx, func(ctx context.Context) error {
		_, err := h.Clients.There.Metadata.Resource(excluded.Resource).Namespace(v.scope.Remote).Get(ctx, excluded.RemoteName, metav1.GetOptions{})
		return err
	})
	return apierrors.IsNotFound(err)
}

// remedyMissing returns what to do about an object that is not reflected.
func (h *Handler) remedyMissing(v *podView, excluded engine.Exclusion) string {
	remedy := fmt.Sprintf("create it in namespace %s of the provider", v.scope.Remote)
	switch {
	case excluded.ByPolicy:
		return "change the annotation, or " + remedy
	case excluded.Kind == secretKind && excluded.Object.Object["type"] == string(corev1.SecretTypeServiceAccountToken):
		return "use a projected volume with the source serviceAccountToken instead"
	}
	return remedy
}
