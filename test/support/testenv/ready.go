// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pollInterval is how often a condition is checked while a cluster is starting. It is short enough not to delay the
// start, and long enough not to take CPU time from it.
const pollInterval = 50 * time.Millisecond

// await checks a condition until it holds. If ctx ends, or a component of the cluster has ended, it returns an error.
// The error contains the last lines of the logs: of the component that has ended, or else of all components.
func (c *Cluster) await(ctx context.Context, what string, holds func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		if ended := c.endedComponent(); ended != nil {
			return fmt.Errorf("waiting for %s, %w", what, ended)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s, %w: %w\n%s", what, context.Cause(ctx), err, c.tails())
		case <-ticker.C:
		}
	}
}

// endedComponent returns an error if a component of the cluster has ended. It ignores Commands, because they may end at
// any time, and components that are restarted.
func (c *Cluster) endedComponent() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.processes {
		if slices.Contains(components, name) && p.HasEnded() && !c.kept[name] {
			return p.Failure()
		}
	}
	return nil
}

func (c *Cluster) tails() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all string
	for name, p := range c.processes {
		all += fmt.Sprintf("the log of %s ends:\n%s\n", name, p.Tail())
	}
	return all
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.clients.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// awaitDefaults waits for the objects that the controller manager creates in a new namespace. Without them, pods are
// not admitted or started.
func (c *Cluster) awaitDefaults(ctx context.Context) error {
	return c.await(ctx, "the default service account and the root CA config map", func(ctx context.Context) error {
		_, accountErr := c.clients.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		_, rootErr := c.clients.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return errors.Join(accountErr, rootErr)
	})
}
