// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package onepass_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/onepass"
	"github.com/refract-project/refract/test/support/testenv"
)

var cluster = controllertest.Cluster{ID: "cluster", Options: testenv.Options{NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &cluster)) }

func unstructuredSlice() *unstructured.Unstructured {
	slice := &unstructured.Unstructured{}
	slice.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	return slice
}

// source replaces the source that controller-runtime would use, and records how it is called.
type source chan string

func (s source) List(metav1.ListOptions) (runtime.Object, error) { return nil, s.tell("list") }

func (s source) Watch(metav1.ListOptions) (watch.Interface, error) { return nil, s.tell("watch") }

func (s source) tell(what string) error {
	select {
	case s <- what:
	default:
	}
	return errors.New("nothing is to be had here")
}

func TestUnstructuredObjectsComeFromTheClientThatIsFast(t *testing.T) {
	namespace := cluster.Namespace(t)
	for name, app := range map[string]string{"meant": "meant", "other-label": "other", "other-name": "meant"} {
		cluster.Create(t, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
			AddressType: discoveryv1.AddressTypeIPv4,
		})
	}
	construct, err := onepass.NewInformer(cluster.Config(), map[client.Object]cache.ByObject{
		unstructuredSlice(): {
			Label: labels.SelectorFromSet(labels.Set{"app": "meant"}),
			Field: fields.OneTermNotEqualSelector("metadata.name", "other-name"),
		},
	}, nil)
	require.NoError(t, err)
	usual := make(source, 1)
	informer := construct(usual, unstructuredSlice(), 0, nil)
	go informer.RunWithContext(t.Context())
	controllertest.Eventually(t, "the first objects", func() error { return holds(informer, "meant") })

	slice := &discoveryv1.EndpointSlice{}
	cluster.Get(t, slice, namespace, "meant")
	cluster.Delete(t, slice)
	slice.ResourceVersion, slice.Name = "", "new"
	cluster.Create(t, slice)
	controllertest.Eventually(t, "what the watch tells", func() error { return holds(informer, "new") })
	if len(usual) > 0 {
		t.Errorf("the usual source was asked to %s", <-usual)
	}
}

func holds(informer toolscache.SharedIndexInformer, name string) error {
	objects := informer.GetStore().List()
	if len(objects) != 1 || objects[0].(*unstructured.Unstructured).GetName() != name {
		return fmt.Errorf("there are %d objects: %v", len(objects), objects)
	}
	return nil
}

func TestEverythingElseIsReadAsUsual(t *testing.T) {
	construct, err := onepass.NewInformer(cluster.Config(), map[client.Object]cache.ByObject{
		unstructuredSlice():          {Namespaces: map[string]cache.Config{"one": {}}},
		&discoveryv1.EndpointSlice{}: {},
	}, nil)
	require.NoError(t, err)
	for name, object := range map[string]runtime.Object{
		"narrowed to a namespace": unstructuredSlice(),
		"typed":                   &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}},
	} {
		usual := make(source, 1)
		informer := construct(usual, object, 0, nil)
		go informer.RunWithContext(t.Context())
		select {
		case <-usual:
		case <-t.Context().Done():
			t.Errorf("%s: the usual source was not asked", name)
		}
	}
}
