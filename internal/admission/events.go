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

// DenialEvents writes Events about objects whose status a virtual node cannot write because an admission policy denies
// the write. Only an Event can report this denial, because a condition would have to be written to the same status. The
// zero value is ready for use. DenialEvents is safe for concurrent use.
type DenialEvents struct {
	reported eventrecorder.Memory[types.UID]
}

// Report writes an Event about the object if err is a denial by a policy. The same denial is reported only once. After
// a call with an err that is not a denial, the same denial is reported again. If recorder is nil, Report writes no
// Event.
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
