// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/refract-project/refract/internal/eventrecorder"
)

// DenialEvents remembers for which objects an Event says that an admission policy denies their status to a virtual
// node. Nothing else shows such a denial, because the condition would be in the status. The zero value is ready for use.
// DenialEvents is safe for concurrent use.
type DenialEvents struct {
	reported eventrecorder.Memory[types.UID]
}

// Report writes an Event on the object if err is the denial of a policy. The same denial is reported once, until Report
// is called with the result of a write that no policy has denied. No Event is written if recorder is nil.
func (d *DenialEvents) Report(recorder record.EventRecorder, object runtime.Object, uid types.UID, nodeName string, err error) {
	policy := DenyingPolicy(err)
	if policy == "" {
		d.reported.Clear(uid)
		return
	}
	if recorder == nil {
		return
	}
	d.reported.WriteOnce(uid, DeniedReason, "virtual node "+nodeName+": "+Note(policy, err), func(message string) bool {
		recorder.Event(object, corev1.EventTypeWarning, DeniedReason, message)
		return true
	})
}
