// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/oscillation"
)

func TestErrorsHaveADirection(t *testing.T) {
	out, back := errors.New("out"), errors.New("back")
	assert.Equal(t, map[Direction]error{Out: out, Back: back}, directions(Directed(out, back)))
	assert.Equal(t, map[Direction]error{Out: nil, Back: back}, directions(Directed(nil, back)))
	assert.Equal(t, map[Direction]error{Out: out, Back: nil}, directions(out))
	assert.NoError(t, Directed(nil, nil))
	assert.ErrorIs(t, Directed(out, back), back)
}

// The status of an object whose copy is quarantined is tried again at its own pace: the quarantine does not begin it anew.
func TestDirectionsBackOffApart(t *testing.T) {
	m, err := New(Options{
		Local: &rest.Config{Host: "https://127.0.0.1:1"}, Remote: &rest.Config{Host: "https://127.0.0.1:2"}, LocalClusterID: "rome", RemoteClusterID: "milan",
		NodeName: "milan", TenantNamespace: "tenant", Registry: host.NewRegistry(nil),
		Kinds: []Kind{{Name: "Service", Source: corev1.SchemeGroupVersion.WithResource("services"), Policy: DenyList, Workers: 1}},
	})
	assert.NoError(t, err)
	r, key := m.all()[0], Key{Namespace: "shop", Name: "web"}
	for range 5 {
		r.failed(key, Out, &oscillation.QuarantineError{})
		r.failed(key, Back, errors.New("refused"))
	}
	assert.Equal(t, 5, r.retries.count(key, Back))
	assert.Zero(t, r.retries.count(key, Out))
	_, failures := r.judge(key, Directed(nil, errors.New("refused")))
	assert.Len(t, failures, 1)
	r.failed(key, Out, errors.New("refused"))
	assert.Equal(t, 1, r.retries.count(key, Out))
}
