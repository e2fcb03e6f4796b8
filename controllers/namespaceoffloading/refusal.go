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

// describeRefusals returns a note about the providers that do not create the remote namespace, with their reasons.
// The note is empty if there are no such providers. It is for users of the namespace, who cannot read NamespaceMaps.
func (c *Controller) describeRefusals(nso *offloading.NamespaceOffloading, providers []*provider) string {
	var notes []string
	for _, p := range providers {
		if p.mapping == nil || !p.isRequired(nso.Namespace) {
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

// refuseName reports, for the selected providers, that the remote namespace cannot be requested under its name.
func (c *Controller) refuseName(nso *offloading.NamespaceOffloading, providers []*provider, answers map[*provider]selection, problem string) {
	for _, p := range providers {
		if answers[p] == yes {
			p.picked, p.refusal = true, problem
		}
	}
	c.writeWarning(nso, invalidReason, problem)
}

// writeWarning writes an Event about the NamespaceOffloading and another one about its namespace. Both Events are in
// the namespace, where its users can read them even if they do not know about the NamespaceOffloading.
func (c *Controller) writeWarning(nso *offloading.NamespaceOffloading, reason, note string) {
	c.report.Warn(nso, reason, offloadAction, note)
	c.report.Warn(namespaceOf(nso.Namespace), reason, offloadAction, "not offloaded as requested: "+note)
}

// clearReports records that the problems of a namespace are solved, so that the next problem is reported again.
func (c *Controller) clearReports(namespace string) {
	c.report.Clear(client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName})
	c.report.Clear(client.ObjectKeyFromObject(namespaceOf(namespace)))
}

// namespaceOf returns a reference to a namespace for Events. An Event is written into the namespace in the metadata of
// its object. Without it, the Event would be in "default".
func namespaceOf(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
}

// withReason appends the provider's reason to the message of a condition if the provider refused the namespace.
func withReason(message string, status offloading.RemoteNamespaceStatus) string {
	if !isRefused(status) {
		return message
	}
	if status.Phase == offloading.MappingCreationLoopBackOff {
		message = "The provider does not create the remote namespace"
	}
	return message + ": " + reasonOf(status)
}

// isRefused reports whether the provider has given a reason why the remote namespace cannot be used. If the namespace
// is accepted or terminating, the message may belong to an earlier attempt.
func isRefused(status offloading.RemoteNamespaceStatus) bool {
	return status.Message != "" && status.Phase != offloading.MappingAccepted && status.Phase != offloading.MappingTerminating
}

// reasonOf returns the message of a provider, shortened and on one line. The text comes from another cluster, and an
// earlier version of the replicator may have copied it unchanged.
func reasonOf(status offloading.RemoteNamespaceStatus) string {
	return printable.Shorten(printable.Line(status.Message), offloading.MaxMappingMessage)
}
