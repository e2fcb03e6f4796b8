// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/internal/testenv"
	"github.com/refract-project/refract/vk/node"
)

func TestElection(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{NoScheduler: true})[0]
	client, err := kubernetes.NewForConfig(cluster.Config())
	must(t, err)
	election := func(identity string) node.Election {
		return node.Election{Client: client, Namespace: "default", Name: "milan", Identity: identity,
			Duration: 5 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond}
	}
	// run competes; the lead function reports when it begins, and ends 300 ms after its context.
	type run struct {
		began, ended chan struct{}
		result       chan error
		stop         context.CancelFunc
	}
	compete := func(identity string) run {
		ctx, stop := context.WithCancel(context.Background())
		t.Cleanup(stop)
		r := run{began: make(chan struct{}), ended: make(chan struct{}), result: make(chan error, 1), stop: stop}
		go func() {
			r.result <- election(identity).Run(ctx, func(leading context.Context) error {
				close(r.began)
				<-leading.Done()
				time.Sleep(300 * time.Millisecond) // shutting down takes its time
				close(r.ended)
				return nil
			})
		}()
		return r
	}
	await := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s did not happen", what)
		}
	}

	first := compete("first")
	await("the first leads", first.began)
	second := compete("second")
	first.stop()
	await("the second leads", second.began)
	select {
	case <-first.ended:
	default:
		t.Error("the second led before the first had ended")
	}
	if err := <-first.result; err != nil {
		t.Errorf("a clean end gives %v", err)
	}
	third := compete("third")
	third.stop()
	if err := <-third.result; err != nil {
		t.Errorf("standing by and leaving gives %v", err)
	}
	must(t, cluster.StopAPIServer())
	if err := <-second.result; !errors.Is(err, node.ErrLeadershipLost) {
		t.Errorf("a lost lease gives %v, want %v", err, node.ErrLeadershipLost)
	}
	await("the work ends with the lease", second.ended)
}
