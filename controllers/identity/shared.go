// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/rbac"
)

// Options are the settings of the controllers of this package.
type Options struct {
	// Enabled determines whether the controllers are started.
	Enabled bool
	// ClusterID is the ID of this cluster, the consumer.
	ClusterID core.ClusterID
	// Installation is the namespace of this process, which contains the key of this cluster.
	Installation string
	// RolePrefix is the prefix of the names of the installation's ClusterRoles.
	RolePrefix string
	// AcceptedLabels are the labels that every provider may offer for virtual nodes.
	AcceptedLabels negotiation.Acceptance
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// fieldManager is the field manager of the writes of this package, in both clusters.
const fieldManager = wire.ReplicatorFieldManager

const (
	// refreshInterval is how often objects are reconciled even without a watch event, to detect changes of Secrets,
	// which are not watched.
	refreshInterval = 5 * time.Minute
	// bindingDelay is how long an API server may take to apply a new RoleBinding. A shorter delay causes more requests
	// that are refused.
	bindingDelay = 500 * time.Millisecond
	// newBindingPeriod is how long a RoleBinding counts as new.
	newBindingPeriod = 10 * time.Second
)

// Access gives the controllers of this package access to tenant namespaces, and to the key of this cluster. It is safe
// for concurrent use.
type Access struct {
	client  client.Client
	live    client.Reader
	options Options
	// keyCreated receives the Secret of the key of this cluster when this process has created the key.
	keyCreated chan event.GenericEvent

	mu sync.Mutex
	// account is the user of this process. bound contains the tenant namespaces with access.
	account *rbacv1.Subject
	bound   map[string]time.Time // when this process found or created the RoleBinding
}

// NewAccess returns the access of the controllers; live must not be cached.
func NewAccess(c client.Client, live client.Reader, options Options) *Access {
	return &Access{client: c, live: live, options: options, keyCreated: make(chan event.GenericEvent, 1), bound: map[string]time.Time{}}
}

// providerOf returns the ID of the provider that a tenant namespace belongs to, or an empty string if the namespace
// belongs to no provider.
func (a *Access) providerOf(ctx context.Context, namespace string) (string, error) {
	id, err := tenancy.Consumer(ctx, a.client, namespace)
	if err != nil || id == "" || namespace != wire.TenantNamespace(id) {
		return "", client.IgnoreNotFound(err)
	}
	return id, nil
}

// bind gives this process access to the Secrets of a tenant namespace.
func (a *Access) bind(ctx context.Context, namespace string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.bound[namespace].IsZero() {
		return nil
	}
	if a.account == nil {
		review := &authenticationv1.SelfSubjectReview{}
		if err := a.client.Create(ctx, review); err != nil {
			return fmt.Errorf("finding the user of this process, %w", err)
		}
		user := rbac.User(review.Status.UserInfo.Username)
		a.account = &user
	}
	binding := rbac.Manager{Prefix: a.options.RolePrefix, Subject: *a.account}.CredentialsIn(namespace)
	found := &rbacv1.RoleBinding{}
	err := a.live.Get(ctx, client.ObjectKeyFromObject(binding), found)
	if apierrors.IsNotFound(err) {
		err = a.client.Create(ctx, binding, client.FieldOwner(fieldManager))
	}
	if err != nil {
		return fmt.Errorf("binding ClusterRole %s in namespace %s, %w", binding.RoleRef.Name, namespace, err)
	}
	if found.Name != "" && (found.RoleRef != binding.RoleRef || !slices.Equal(found.Subjects, binding.Subjects)) {
		return report.Errorf(report.Foreign, "RoleBinding %s in namespace %s does not give ClusterRole %s to %s: delete it", binding.Name, namespace, binding.RoleRef.Name, a.account.Name)
	}
	a.bound[namespace] = a.options.Clock.Now()
	return nil
}

// checkAccess returns err. If the API server has refused access to the Secrets of a tenant namespace whose RoleBinding is
// new, the returned error has a delay, after which it applies. Otherwise, the access is bound again in the next attempt.
func (a *Access) checkAccess(namespace string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.options.Clock.Since(a.bound[namespace]) < newBindingPeriod {
		return report.Later(err, bindingDelay)
	}
	delete(a.bound, namespace)
	return err
}

// getSecret reads a Secret of a tenant namespace. It returns nil if there is none.
func (a *Access) getSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if err := a.bind(ctx, namespace); err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	err := a.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as documented
	}
	if err != nil {
		return nil, a.checkAccess(namespace, fmt.Errorf("getting Secret %s/%s, %w", namespace, name, err))
	}
	return secret, nil
}
