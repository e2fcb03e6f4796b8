// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/printable"
)

// refusals returns the note about the providers that do not create the remote namespace, with the reason that each of them gives; "" if none
// refuses. Users of the namespace do not see the NamespaceMaps.
func (c *Controller) refusals(nso *offloading.NamespaceOffloading, providers []*provider) string {
	var notes []string
	for _, p := range providers {
		if p.mapping == nil || !p.requires(nso.Namespace) {
			continue
		}
		if status := p.mapping.Status.CurrentMapping[nso.Namespace]; isRefused(status) {
			notes = append(notes, fmt.Sprintf("cluster %s: %s", p.id, reasonOf(status)))
		}
	}
	if len(notes) == 0 {
		return ""
	}
	return "the remote namespace " + c.remoteNamespaceName(nso) + " cannot be used: " + strings.Join(notes, "; ")
}

// refuseName reports that the remote namespace cannot be requested under its name, on the providers that are selected.
func (c *Controller) refuseName(nso *offloading.NamespaceOffloading, providers []*provider, answers map[*provider]answer, problem string) {
	for _, p := range providers {
		if answers[p] == yes {
			p.picked, p.refusal = true, problem
		}
	}
	c.warn(nso, invalidReason, problem)
}

// warn writes an Event on the NamespaceOffloading, and one on its namespace for those who do not know of the other: it is in the namespace,
// too, where its users may read it.
func (c *Controller) warn(nso *offloading.NamespaceOffloading, reason, note string) {
	c.report.Warn(nso, reason, offloadAction, note)
	c.report.Warn(namespaceOf(nso.Namespace), reason, offloadAction, "not offloaded as requested: "+note)
}

// clearReports forgets the Events about the offloading of a namespace: it works now, and the next problem is reported again.
func (c *Controller) clearReports(namespace string) {
	c.report.Clear(client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName})
	c.report.Clear(client.ObjectKeyFromObject(namespaceOf(namespace)))
}

// namespaceOf returns a namespace for Events about it. They are written into the namespace of their object, which for a Namespace would be
// "default" if this one had none.
func namespaceOf(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
}

// withReason appends the reason of the provider to the message of a condition, unless there is none or the namespace can be used.
func withReason(message string, status offloading.RemoteNamespaceStatus) string {
	if !isRefused(status) {
		return message
	}
	if status.Phase == offloading.MappingCreationLoopBackOff {
		message = "The provider does not create the remote namespace"
	}
	return message + ": " + reasonOf(status)
}

// isRefused reports whether the provider has given a reason why the remote namespace cannot be used. One that can be, or is being deleted, may have the
// message of an earlier attempt.
func isRefused(status offloading.RemoteNamespaceStatus) bool {
	return status.Message != "" && status.Phase != offloading.MappingAccepted && status.Phase != offloading.MappingTerminating
}

// reasonOf returns the message of a provider on one line and bounded. It is the text of another party, and an earlier version of the replicator may have
// copied it unchanged.
func reasonOf(status offloading.RemoteNamespaceStatus) string {
	return printable.Shorten(printable.Line(status.Message), offloading.MaxMappingMessage)
}
