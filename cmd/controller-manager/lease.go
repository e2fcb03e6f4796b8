// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/refract-project/refract/internal/cmdutil"
)

// leaseTimeout limits one request for the lease. Several requests must fit into the renew deadline.
const leaseTimeout = 5 * time.Second

// lease is the leader election lease of this process. It has one identity during the whole lifetime of the process. If
// each manager created its own lease, a new manager would be a new candidate, and would have to wait until the lease of
// the previous manager expires.
type lease struct {
	resourcelock.Interface
	broadcaster record.EventBroadcaster
}

func newLease(ctx context.Context, config *rest.Config, namespace, id string) (*lease, error) {
	client, err := cmdutil.LeaseClient(config, leaseTimeout)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the hostname, which identifies this replica in the lease, %w", err)
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(namespace)})
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: id},
		Client:    client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{
			Identity:      host + "_" + string(uuid.NewUUID()),
			EventRecorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "controller-manager", Host: host}),
		},
	}
	// When ctx is done, the manager may release the lease. It does so after everything else has ended.
	ending := func() bool { return ctx.Err() != nil }
	return &lease{broadcaster: broadcaster, Interface: cmdutil.KeepUntil(lock, ending)}, nil
}

func (l *lease) closeBroadcaster() { l.broadcaster.Shutdown() }
