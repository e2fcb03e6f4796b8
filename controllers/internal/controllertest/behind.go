// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Behind returns a client that reads an outdated version of one object, as a cache does for some seconds after a
// restore of etcd.
func Behind(c client.Client, shown client.Object) client.Client {
	return &behind{Client: c, shown: shown}
}

type behind struct {
	client.Client
	shown client.Object
}

func (b *behind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if reflect.TypeOf(object) != reflect.TypeOf(b.shown) || key != client.ObjectKeyFromObject(b.shown) {
		return b.Client.Get(ctx, key, object, options...)
	}
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(b.shown.DeepCopyObject()).Elem())
	return nil
}

// Deleted returns a copy of the object with a deletion timestamp.
func Deleted[T client.Object](object T) T {
	deleted := object.DeepCopyObject().(T)
	now := metav1.Now()
	deleted.SetDeletionTimestamp(&now)
	return deleted
}
