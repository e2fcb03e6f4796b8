// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package clients contains the clients for both clusters. Each call has a deadline. While the provider is known to be
// unreachable, calls to it fail immediately.
package clients

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/internal/apifailure"
	"github.com/refract-project/refract/internal/dynamicclient"
	"github.com/refract-project/refract/internal/retryafter"
	"github.com/refract-project/refract/internal/serverversion"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/readonly"
)

// FieldValidation is the field validation that is requested for writes. The default of API servers is to decode an
// object a second time, strictly, in order to warn about unknown fields. These warnings are not needed: the objects
// come from another API server, and fields that were dropped are found by comparing the stored object.
const FieldValidation = metav1.FieldValidationIgnore

// Options are the options of New. All fields are required.
type Options struct {
	Local, Remote   *rest.Config // they are not modified; clients use copies without client-side rate limits
	RemoteClusterID string
	CallTimeout     time.Duration // timeout of each call
	ProbeEvery      time.Duration // interval at which an unreachable provider is probed
	Changed         func(reachable bool)
	Clock           clock.WithTicker
	Log             *slog.Logger
}

// Clients contains the clients for this cluster (Local) and for the provider (Remote). It is safe for concurrent use.
type Clients struct {
	// Local is the client for this cluster. Use it through CallLocal.
	Local dynamic.Interface
	// Core is the client for the core API of this cluster. Use it through CallLocal.
	Core v1.CoreV1Interface
	// Remote is the client for the provider. Use it through CallRemote.
	Remote dynamic.Interface
	// RemoteWriter is a client for the provider whose responses contain managedFields. They show which changes were
	// made by admission.
	RemoteWriter dynamic.Interface
	// Here is the source of informers for this cluster. There is the source of informers for the provider.
	Here, There informer.Source

	breaker       *breaker.Breaker
	reviews       authorization.SelfSubjectAccessReviewInterface // access reviews on the provider
	probe         rest.Interface                                 // client for the provider that bypasses the breaker
	remoteVersion func(context.Context) (string, error)
	options       Options
}

// New creates the clients. It sends no requests. The clients have no client-side rate limit, because the number of
// workers is limited, and the API server's priority and fairness is better at flow control.
func New(options Options) (*Clients, error) {
	c := &Clients{options: options}
	c.remoteVersion = serverversion.Cached(c.readRemoteVersion, options.Clock)
	local, remote := rest.CopyConfig(options.Local), rest.CopyConfig(options.Remote)
	local.QPS, remote.QPS = -1, -1
	retryafter.Wrap(local)
	local.Wrap(readonly.Transport)
	retryafter.Wrap(remote)
	return c, errors.Join(c.connectLocal(local), c.connectRemote(remote))
}

func (c *Clients) connectLocal(config *rest.Config) error {
	var faults [3]error
	c.Local, faults[0] = dynamicclient.New(config, dynamicclient.Options{DropManagedFields: true})
	c.Core, faults[1] = v1.NewForConfig(config)
	c.Here = informer.Source{Client: c.Local, Strings: informer.NewStrings()}
	c.Here.Metadata, faults[2] = metadata.NewForConfig(config)
	return describeFaults("creating a client for this cluster, %w", faults[:])
}

func (c *Clients) connectRemote(config *rest.Config) error {
	probe, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the provider, %w", err)
	}
	c.probe = probe.RESTClient()
	c.breaker = breaker.New(breaker.Options{Clock: c.options.Clock, Every: c.options.ProbeEvery, Log: c.options.Log, Changed: c.options.Changed, Probe: c.probeRemote})
	config.Wrap(c.breaker.Transport)
	config.Wrap(readonly.Transport)
	var faults [4]error
	c.Remote, faults[0] = dynamicclient.New(config, dynamicclient.Options{DropManagedFields: true})
	c.RemoteWriter, faults[1] = dynamicclient.New(config, dynamicclient.Options{})
	c.There = informer.Source{Client: c.Remote, Breaker: c.breaker, Strings: c.Here.Strings}
	c.There.Metadata, faults[2] = metadata.NewForConfig(config)
	reviews, err := authorization.NewForConfig(config)
	if faults[3] = err; err == nil {
		c.reviews = reviews.SelfSubjectAccessReviews()
	}
	return describeFaults("creating a client for the provider, %w", faults[:])
}

func describeFaults(format string, faults []error) error {
	for i, err := range faults {
		if err != nil {
			faults[i] = fmt.Errorf(format, err)
		}
	}
	return errors.Join(faults...)
}

// probeRemote checks whether the provider's API server responds. It bypasses the breaker.
func (c *Clients) probeRemote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout/2)
	defer cancel()
	err := c.probe.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		if code := status.Status().Code; code == http.StatusUnauthorized || code == http.StatusForbidden {
			return &breaker.DeniedError{Err: err}
		}
		// Any other response below 500 also shows that the API server is reachable, for example a 404 from a server
		// that hides this path.
		return nil
	}
	return err
}

// Start enables probes of an unreachable provider until ctx is done.
func (c *Clients) Start(ctx context.Context) { c.breaker.Start(ctx) }

// Reachable returns an error while the provider is known to be unreachable.
func (c *Clients) Reachable() error { return c.breaker.Allow() }

// CallRemote makes a call to the provider, with a deadline. It fails immediately while the provider is known to be
// unreachable. If the call exceeds its deadline although the provider responds to a probe, the error is a
// *failure.SlowError.
func (c *Clients) CallRemote(ctx context.Context, call func(context.Context) error) error {
	if err := c.breaker.Allow(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
	defer cancel()
	err := call(bounded)
	if err != nil && ctx.Err() == nil && !c.breaker.Heed(err) && apifailure.IsOverdue(err) {
		return &failure.SlowError{Limit: c.options.CallTimeout}
	}
	return failure.WrapThrottled("the API server of cluster "+c.options.RemoteClusterID, err)
}

// CallLocal makes a call to this cluster, with a deadline.
func (c *Clients) CallLocal(ctx context.Context, call func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
	defer cancel()
	return failure.WrapThrottled("this cluster's API server", call(bounded))
}

// ReviewRemote reports whether the provider grants this cluster a permission. It returns an error if no rule grants the
// permission but the provider could not evaluate all rules.
func (c *Clients) ReviewRemote(ctx context.Context, attributes authorizationv1.ResourceAttributes) (allowed bool, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	err = c.CallRemote(ctx, func(ctx context.Context) (err error) {
		review, err = c.reviews.Create(ctx, review, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("reviewing the access of this cluster, %w", err)
	}
	problem := review.Status.EvaluationError
	if strings.Contains(review.Status.Reason, "RBAC: ") {
		// If a binding refers to a role that does not exist, the RBAC authorizer reports this only in the reason.
		problem = review.Status.Reason
	}
	if !review.Status.Allowed && problem != "" {
		return false, fmt.Errorf("reviewing the access of this cluster, %s", problem)
	}
	return review.Status.Allowed, nil
}

// DescribeRemoteVersion returns a text with the version of the provider's API server, for messages.
func (c *Clients) DescribeRemoteVersion(ctx context.Context) string {
	version, err := c.remoteVersion(ctx)
	if err != nil {
		return "Kubernetes of unknown version"
	}
	return "Kubernetes " + version
}

func (c *Clients) readRemoteVersion(ctx context.Context) (version string, err error) {
	err = c.CallRemote(ctx, func(ctx context.Context) (err error) {
		version, err = serverversion.Read(ctx, c.probe)
		return err
	})
	return version, err
}
