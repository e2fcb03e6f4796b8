// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
)

// awaitOwn waits until ReflectedResources are defined and this process may watch them, and logs each missing
// requirement once. It returns false when ctx has ended. The installation may be older than ReflectedResources, and a
// watch without permission would log errors forever.
func (f *Follower) awaitOwn(ctx context.Context) bool {
	said := ""
	for {
		err := f.ownLack(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			f.log.Info("ReflectedResources are not processed yet", "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-f.options.Clock.After(f.options.RetryMost):
		}
	}
}

func (f *Follower) ownLack(ctx context.Context) error {
	if _, err := f.local.discoverResource(ctx, pluginsv1alpha1.ReflectedResourceGVR); err != nil {
		return f.undefinedHere(pluginsv1alpha1.ReflectedResourceGVR, err)
	}
	own := rulesOfResource(rbac.VirtualKubeletLocal(), pluginsv1alpha1.ReflectedResourceGVR.GroupResource())
	denied, err := f.local.deniedPermissions(ctx, own, []string{metav1.NamespaceAll})
	if err == nil && len(denied) > 0 {
		err = &fault{reason: pluginsv1alpha1.MissingPermissionReason, message: f.local.describeDenials(own, denied)}
	}
	return err
}

// watchDefinitions reconciles a ReflectedResource again when the definition of its resource is created, changed or
// deleted. This only makes the reconciliation faster: if definitions may not be watched, they are checked periodically.
func (f *Follower) watchDefinitions(ctx context.Context, s *side) {
	for !s.mayWatchDefinitions(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-f.options.Clock.After(f.options.RetryMost):
		}
	}
	informer := metadatainformer.NewFilteredMetadataInformer(s.metadata, definitionsResource, "", 0, cache.Indexers{}, nil).Informer()
	changed := func(object any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			f.definitionChanged(s, name)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed})
	if err == nil {
		err = informer.SetTransform(onlyName)
	}
	if err != nil {
		f.log.Error("Definitions cannot be watched", "cluster", s.id, "err", err)
		return
	}
	informer.RunWithContext(ctx)
}

// mayWatchDefinitions reports whether definitions may be watched. It returns false if the review fails.
func (s *side) mayWatchDefinitions(ctx context.Context) bool {
	for _, verb := range []string{"list", "watch"} {
		if allowed, err := s.isAllowed(ctx, metav1.NamespaceAll, verb, definitionsResource.Group, definitionsResource.Resource); err != nil || !allowed {
			return false
		}
	}
	return true
}

// onlyName removes all unused fields from a definition, because some definitions contain their full text in an
// annotation.
func onlyName(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}}, nil
	}
	return object, nil
}

// definitionChanged reconciles the ReflectedResources whose source or target has this definition. A ReflectedResource
// has the name of its source's definition, but the definition may also be the target of other ReflectedResources.
func (f *Follower) definitionChanged(s *side, name string) {
	for _, object := range f.informer.GetStore().List() {
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		spec, err := decodeSpec(u)
		if err != nil {
			continue
		}
		about := spec.GroupVersionResource()
		if s.remote {
			about = targetResource(spec)
		}
		if about.GroupResource().String() == name {
			f.reconcileSoon(u.GetName())
		}
	}
}
