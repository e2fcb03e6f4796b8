// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// Side is a cluster in a story, accessed with the permissions of its administrator.
type Side struct {
	Namespace string          // default namespace of objects
	Writes    func() []string // returns the writes of the tested processes so far; may be nil

	client dynamic.Interface
	mapper meta.RESTMapper
}

// NewSide returns a Side for a cluster.
func NewSide(config *rest.Config, namespace string, writes func() []string) (*Side, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(found)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	return &Side{Namespace: namespace, Writes: writes, client: client, mapper: mapper}, nil
}

// of returns a client and the name of the object "KIND/NAME" or "KIND/NAMESPACE/NAME".
func (s *Side) of(what string) (resource dynamic.ResourceInterface, name string, err error) {
	parts := strings.Split(what, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return nil, "", fmt.Errorf("%q is no KIND/NAME", what)
	}
	gvr, err := s.mapper.ResourceFor(schema.ParseGroupResource(strings.ToLower(parts[0])).WithVersion(""))
	if err != nil {
		return nil, "", err
	}
	namespace := s.Namespace
	if len(parts) == 3 {
		namespace = parts[1]
	}
	resource, err = s.resource(gvr, namespace)
	return resource, parts[len(parts)-1], err
}

func (s *Side) resource(gvr schema.GroupVersionResource, namespace string) (dynamic.ResourceInterface, error) {
	kind, err := s.mapper.KindFor(gvr)
	if err != nil {
		return nil, err
	}
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return s.client.Resource(gvr), nil
	}
	return s.client.Resource(gvr).Namespace(namespace), nil
}

// Get returns the object "KIND/NAME" or "KIND/NAMESPACE/NAME".
func (s *Side) Get(ctx context.Context, what string) (*unstructured.Unstructured, error) {
	resource, name, err := s.of(what)
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, name, metav1.GetOptions{})
}

// create creates the objects in a YAML stream. If an object has a status, create also sets the status.
func (s *Side) create(ctx context.Context, text string) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		mapping, err := s.mapper.RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
		if err != nil {
			return err
		}
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = s.Namespace
		}
		resource, err := s.resource(mapping.Resource, namespace)
		if err != nil {
			return err
		}
		status, hasStatus := object.Object["status"]
		if _, err := resource.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		if hasStatus {
			if err := patch(ctx, resource, object.GetName(), map[string]any{"status": status}, "status"); err != nil {
				return err
			}
		}
	}
}

func (s *Side) patch(ctx context.Context, what, text string, subresources ...string) error {
	resource, name, err := s.of(what)
	if err != nil {
		return err
	}
	change := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &change); err != nil {
		return err
	}
	return patch(ctx, resource, name, change, subresources...)
}

func patch(ctx context.Context, resource dynamic.ResourceInterface, name string, change map[string]any, subresources ...string) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = resource.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
	return err
}
