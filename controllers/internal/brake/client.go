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

// restoreAction is the action of the Events about objects that restrict consumers.
const restoreAction = "Restore"

// Client returns a client that sends creations and patches of some kinds through inner, but at most every ten seconds
// while another client keeps deleting or reverting the objects. It is for objects that restrict consumers, which are
// never left as another client has changed them. Attempts before the ten seconds fail with
// *oscillation.QuarantineError.
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

// restored identifies an object that is created and patched.
type restored struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
}

// Unguarded returns the inner client of a RestoringClient, and any other client unchanged. Use it for writes that
// this cluster itself reverts later.
func Unguarded(c client.Client) client.Client {
	if restoring, ok := c.(*RestoringClient); ok {
		return restoring.Client
	}
	return c
}

// Quarantined returns the number of objects that are not restored at the moment.
func (b *RestoringClient) Quarantined() int { return b.guard.Quarantined() }

// Create implements client.Client.
func (b *RestoringClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return b.write(ctx, object, func() ([]byte, error) { return json.Marshal(object) }, func() error { return b.Client.Create(ctx, object, options...) })
}

// Patch implements client.Client.
func (b *RestoringClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return b.write(ctx, object, func() ([]byte, error) { return patch.Data(object) }, func() error { return b.Client.Patch(ctx, object, patch, options...) })
}

// write calls send unless the same content was written and reverted too often.
func (b *RestoringClient) write(ctx context.Context, object client.Object, content func() ([]byte, error), send func() error) error {
	kind, err := b.GroupVersionKindFor(object)
	if err != nil || !slices.Contains(b.kinds, kind) {
		return send()
	}
	text, err := content()
	if err != nil {
		return fmt.Errorf("encoding %s %s, %w", kind.Kind, client.ObjectKeyFromObject(object), err)
	}
	target, state := restored{kind, client.ObjectKeyFromObject(object)}, hashOf(string(text))
	var fight *oscillation.QuarantineError
	if err := b.guard.MayWrite(target, 0, state); errors.As(err, &fight) {
		if blame(ctx, b.live, kind, target.key, object, nil, fight, func(rival string) { b.guard.RecordRival(target, rival) }) {
			b.report.Warn(object, wire.ReflectionQuarantinedReason, restoreAction, fight.Error())
		}
		return err
	}
	if err := send(); err != nil {
		return err
	}
	b.guard.RecordWrite(target, 0, state)
	return nil
}
