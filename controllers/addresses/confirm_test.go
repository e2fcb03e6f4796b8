// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package addresses_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	"github.com/refract-project/refract/controllers/addresses"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/ipmap"
)

// reader reads from the API server. It calls after when it has read the IPs, which a pass reads last.
type reader struct {
	client.Reader
	after func() error
}

func (r *reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := r.Reader.List(ctx, list, options...); err != nil {
		return err //nolint:wrapcheck // it stands for the reader
	}
	if _, ok := list.(*ipam.IPList); ok && r.after != nil {
		return r.after()
	}
	return nil
}

// pass makes one pass of its own controller. Each time the pass has read all objects, it calls the next function:
// before its decisions, and before it checks its grants.
type pass struct {
	*addresses.Controller
	between *reader
	events  *events.FakeRecorder
}

func newPass() *pass {
	return newPassWith(func() (ipmap.Ranges, error) { return ipmap.Ranges{netip.MustParsePrefix("172.31.0.0/16")}, nil })
}

func newPassWith(ownRanges func() (ipmap.Ranges, error)) *pass {
	between, recorder := &reader{Reader: rome.Client}, events.NewFakeRecorder(1000)
	return &pass{addresses.NewController(rome.Client, between, recorder, addresses.Options{OwnRanges: ownRanges}), between, recorder}
}

// run makes a pass. The n-th function is called after the pass has read all objects for the n-th time.
func (p *pass) run(t *testing.T, after ...func() error) error {
	t.Helper()
	p.between.after = func() error {
		if len(after) == 0 || after[0] == nil {
			after = after[min(1, len(after)):]
			return nil
		}
		next := after[0]
		after = after[1:]
		return next()
	}
	_, err := p.Reconcile(t.Context(), reconcile.Request{})
	p.between.after = nil
	return err //nolint:wrapcheck // the caller compares it
}

// granted returns the range of the Network and the address of the IP.
func granted(t *testing.T, n *ipam.Network, ip *ipam.IP) (string, string) {
	t.Helper()
	require.NoError(t, rome.Client.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	require.NoError(t, rome.Client.Get(t.Context(), client.ObjectKeyFromObject(ip), ip))
	return string(n.Status.CIDR), string(ip.Status.IP)
}

// wish creates a Network with a range, and an IP in another Network whose range is already granted.
func wish(t *testing.T, namespace, cidr, pool string) (*ipam.Network, *ipam.IP) {
	t.Helper()
	holder := network(namespace, "pool", pool, nil)
	rome.Create(t, holder)
	rome.PatchStatus(t, holder, `{"status":{"cidr":"`+pool+`"}}`)
	n, ip := network(namespace, "wish", cidr, nil), ipOf(namespace, "wish")
	rome.Create(t, n)
	rome.Create(t, ip)
	return n, ip
}

func ipOf(namespace, name string) *ipam.IP {
	return &ipam.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipam.IPSpec{IP: "192.0.2.1", NetworkRef: reference(namespace, "pool")},
	}
}

// TestADeposedLeaderOverwritesNothing checks that a controller manager that loses its lease after reading all objects
// does not overwrite grants that its successor makes in the meantime.
func TestADeposedLeaderOverwritesNothing(t *testing.T) {
	namespace := rome.Namespace(t)
	n, ip := wish(t, namespace, "10.21.0.0/16", "10.22.0.0/24")
	err := newPass().run(t, func() error {
		rome.PatchStatus(t, n.DeepCopy(), `{"status":{"cidr":"10.23.0.0/16"}}`)
		rome.PatchStatus(t, ip.DeepCopy(), `{"status":{"ip":"10.22.0.9","cidr":"10.22.0.0/24"}}`)
		return nil
	})
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	cidr, address := granted(t, n, ip)
	assert.Equal(t, "10.23.0.0/16 10.22.0.9", cidr+" "+address)
}

// TestADeposedLeaderTakesItsGrantsBack checks that a controller manager revokes a grant if its successor has granted
// the same to another object in the meantime. It must do so immediately, or later if reading or writing fails at first.
func TestADeposedLeaderTakesItsGrantsBack(t *testing.T) {
	for name, disturb := range map[string]func(t *testing.T, n *ipam.Network, ip *ipam.IP) error{
		"at once":                         func(*testing.T, *ipam.Network, *ipam.IP) error { return nil },
		"after a reading that has failed": func(*testing.T, *ipam.Network, *ipam.IP) error { return errors.New("etcd is away") },
		"after a write that has failed": func(t *testing.T, n *ipam.Network, ip *ipam.IP) error {
			t.Helper()
			rome.Patch(t, n.DeepCopy(), `{"metadata":{"labels":{"changed":"meanwhile"}}}`)
			rome.Patch(t, ip.DeepCopy(), `{"metadata":{"labels":{"changed":"meanwhile"}}}`)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := rome.Namespace(t)
			n, ip := wish(t, namespace, "10.21.0.0/16", "10.22.0.0/24")
			deposed := newPass()
			others := func() error {
				other := network(namespace, "other", "10.21.0.0/16", nil)
				rome.Create(t, other)
				rome.PatchStatus(t, other, `{"status":{"cidr":"10.21.0.0/16"}}`)
				otherIP := ipOf(namespace, "other")
				rome.Create(t, otherIP)
				rome.PatchStatus(t, otherIP, `{"status":{"ip":"10.22.0.0","cidr":"10.22.0.0/24"}}`)
				return nil
			}
			require.Error(t, deposed.run(t, others, func() error { return disturb(t, n, ip) }))
			if name == "at once" {
				cidr, address := granted(t, n, ip)
				assert.Equal(t, " ", cidr+" "+address, "both are taken back")
			}
			controllertest.Eventually(t, "other grants", func() error { return deposed.run(t) })
			cidr, address := granted(t, n, ip)
			assert.NotContains(t, []string{"", "10.21.0.0/16"}, cidr)
			assert.Equal(t, "10.22.0.1", address)
			other, pool := network(namespace, "other", "", nil), network(namespace, "pool", "", nil)
			for _, object := range []client.Object{n, ip, other, ipOf(namespace, "other"), pool} {
				rome.Delete(t, object)
			}
		})
	}
}

// TestNothingIsGrantedOnDoubt checks that nothing is granted while the ranges of this cluster are unknown.
func TestNothingIsGrantedOnDoubt(t *testing.T) {
	n, ip := wish(t, rome.Namespace(t), "10.26.0.0/16", "10.27.0.0/24")
	unknown := errors.New("the nodes cannot be read")
	require.ErrorIs(t, newPassWith(func() (ipmap.Ranges, error) { return nil, unknown }).run(t), unknown)
	cidr, address := granted(t, n, ip)
	assert.Equal(t, " ", cidr+" "+address)
}

// TestGrantedTwice checks that there is an Event if two objects already have the same grant, because a controller
// manager ended before it checked its grants. Neither grant may be revoked.
func TestGrantedTwice(t *testing.T) {
	namespace := rome.Namespace(t)
	n, ip := wish(t, namespace, "10.24.0.0/16", "10.25.0.0/24")
	rome.PatchStatus(t, n, `{"status":{"cidr":"10.25.0.0/16"}}`)
	rome.PatchStatus(t, ip, `{"status":{"ip":"10.25.0.7","cidr":"10.25.0.0/24"}}`)
	second := ipOf(namespace, "second")
	rome.Create(t, second)
	rome.PatchStatus(t, second, `{"status":{"ip":"10.25.0.7","cidr":"10.25.0.0/24"}}`)
	rome.Create(t, ipOf(namespace, "third"))
	p := newPass()
	require.NoError(t, p.run(t))
	close(p.events.Events)
	said := ""
	for event := range p.events.Events {
		said += event + "\n"
	}
	for _, part := range []string{
		"GrantedTwice status has 10.25.0.0/16, as has Network " + namespace + "/pool",
		"GrantedTwice status has 10.25.0.7, as has IP " + namespace,
	} {
		assert.Contains(t, said, part)
	}
	cidr, address := granted(t, n, ip)
	assert.Equal(t, "10.25.0.0/16 10.25.0.7", cidr+" "+address)
}
