// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// TestLogsNameAKindWithItsGroup checks that the log entries about an object and about its chain have the same kind.
func TestLogsNameAKindWithItsGroup(t *testing.T) {
	var log bytes.Buffer
	m, err := New(Options{
		Local: &rest.Config{Host: "https://127.0.0.1:1"}, Remote: &rest.Config{Host: "https://127.0.0.1:2"}, LocalClusterID: "rome", RemoteClusterID: "milan",
		NodeName: "milan", NodeIP: "10.9.8.7", TenantNamespace: "tenant", Registry: host.NewRegistry(nil),
		Kinds: []Kind{{Name: "Ingress.networking.k8s.io", Source: networkingv1.SchemeGroupVersion.WithResource("ingresses"), Policy: DenyList, Workers: 1}},
		Log:   slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	m.reflector("Ingress.networking.k8s.io").failed(queue.Key{Namespace: "shop", Name: "web"}, evaluation.Out, errors.New("no"))
	m.chainSwapped("Ingress.networking.k8s.io", host.Outgoing, 1)
	if lines := strings.Count(log.String(), "kind=Ingress.networking.k8s.io "); lines != 2 {
		t.Errorf("%d lines have the kind, want 2:\n%s", lines, &log)
	}
}
