// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package brake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/oscillation"
)

// restoreAction is the action of Events about objects that restrict consumers.
const restoreAction = "Restore"

// Client returns a client that limits creations and patches of some kinds to one every ten seconds while another client
// keeps deleting or reverting the object. It sends requests through inner. Earlier attempts fail with a
// *oscillation.QuarantineError. It is for objects that restrict or admit a party: a change of them by another client
// must never persist.
func Client(inner client.Client, live client.Reader, recorder events.EventRecorder, c clock.PassiveClock, kinds ...schema.GroupVersionKind) *RestoringClient {
	if c == nil {
		c = clock.RealClock{}
	}
	return &RestoringClient{Client: inner, live: live, report: report.New(recorder), guard: oscillation.New[restored](c, oscillation.Protective), kinds: kinds}
}

// RestoringClient is the client that Client returns. It is safe for concurrent use.
type RestoringClient struct {
	client.Client
	live   client.Reader
	report *report.Reporter
	guard  *oscillation.Guard[restored]
	kinds  []schema.GroupVersionKind
}

// restored identifies an object that is restored.
type restored struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
}

// Unguarded returns the inner client of a RestoringClient. It returns any other client unchanged. Use it for writes
// that this cluster itself reverts later.
func Unguarded(c client.Client) client.Client {
	if restoring, ok := c.(*RestoringClient); ok {
		return restoring.Client
	}
	return c
}

// Quarantined returns the number of objects that a RestoringClient does not restore at the moment. It returns 0 for any
// other client.
func Quarantined(c client.Client) int {
	if restoring, ok := c.(*RestoringClient); ok {
		return restoring.guard.Quarantined()
	}
	return 0
}

// Desired is an option of Create and Patch. It contains the desired content of the object. If it has changed, a write
// is not part of a fight. Use it unless the content depends only on a few settings that rarely change.
type Desired string

// ApplyToCreate implements client.CreateOption.
func (Desired) ApplyToCreate(*client.CreateOptions) {}

// ApplyToPatch implements client.PatchOption.
func (Desired) ApplyToPatch(*client.PatchOptions) {}

// causeIn returns a hash of the option Desired, or 0 if the option is not set.
func causeIn[O any](options []O) uint64 {
	for _, option := range options {
		if desired, ok := any(option).(Desired); ok {
			return hashOf(string(desired))
		}
	}
	return 0
}

// Create implements client.Client.
func (b *RestoringClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	content := func() (string, []string, error) {
		text, err := json.Marshal(object)
		return string(text), nil, err
	}
	return b.write(ctx, object, causeIn(options), content, func() error { return b.Client.Create(ctx, object, options...) })
}

// Patch implements client.Client.
func (b *RestoringClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	content := func() (string, []string, error) { return readPatch(patch, object) }
	return b.write(ctx, object, causeIn(options), content, func() error { return b.Client.Patch(ctx, object, patch, options...) })
}

// Delete implements client.Client. If this client itself has deleted an object, the next creation does not count as
// part of a fight.
func (b *RestoringClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	err := b.Client.Delete(ctx, object, options...)
	if kind, known := b.GroupVersionKindFor(object); err == nil && known == nil {
		b.guard.DropKey(restored{kind, client.ObjectKeyFromObject(object)})
	}
	return err
}

// readPatch returns the content and the fields of a patch. The resource version in a merge patch is not part of the
// content, because it differs each time.
func readPatch(patch client.Patch, object client.Object) (text string, fields []string, err error) {
	data, err := patch.Data(object)
	if err != nil || patch.Type() != types.MergePatchType {
		return string(data), nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return "", nil, err
	}
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "resourceVersion")
	}
	data, err = json.Marshal(content)
	return string(data), oscillation.PatchedFields(content), err
}

// write calls send, unless the same content has been written and reverted too often. content returns the content of the
// write and the names of the written fields.
func (b *RestoringClient) write(ctx context.Context, object client.Object, cause uint64, content func() (string, []string, error), send func() error) error {
	kind, err := b.GroupVersionKindFor(object)
	if err != nil || !slices.Contains(b.kinds, kind) {
		return send()
	}
	text, fields, err := content()
	if err != nil {
		return fmt.Errorf("encoding %s %s, %w", kind.Kind, client.ObjectKeyFromObject(object), err)
	}
	target, state := restored{kind, client.ObjectKeyFromObject(object)}, hashOf(text)
	var fight *oscillation.QuarantineError
	if err := b.guard.MayWrite(target, cause, state); errors.As(err, &fight) {
		if blame(ctx, b.live, kind, target.key, object, fields, fight, func(rival string) { b.guard.RecordRival(target, rival) }) {
			b.report.Warn(object, wire.ReflectionQuarantinedReason, restoreAction, fight.Error())
		}
		return err
	}
	if err := send(); err != nil {
		return err
	}
	b.guard.RecordWrite(target, cause, state)
	return nil
}
