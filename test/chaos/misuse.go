// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// The following faults are actions of administrators. While an API server is broken, such an action has no effect, and
// this is reported.

// attempt runs an action that may have no effect.
func (g *game) attempt(ctx context.Context, name string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := do(ctx); err != nil {
		g.say("%s had no effect: %v", name, err)
	}
	return nil
}

// fillQuota creates ResourceQuotas that prevent new pods in the remote namespaces.
func fillQuota() fault {
	const name = "fill-quota"
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}
	var filled []string
	return fault{name: name, of: name, late: true,
		inflict: func(ctx context.Context, g *game) error {
			filled = g.users.all()
			return g.attempt(ctx, name, func(ctx context.Context) error {
				var problems []error
				for _, namespace := range filled {
					_, err := g.Provider.Client.CoreV1().ResourceQuotas(remote(namespace)).Create(ctx, quota, metav1.CreateOptions{})
					problems = append(problems, err)
				}
				return errors.Join(problems...)
			})
		},
		repair: func(ctx context.Context, g *game) error {
			return eventually(ctx, func(ctx context.Context) error {
				var problems []error
				for _, namespace := range filled {
					err := g.Provider.Client.CoreV1().ResourceQuotas(remote(namespace)).Delete(ctx, name, metav1.DeleteOptions{})
					if !apierrors.IsNotFound(err) {
						problems = append(problems, err)
					}
				}
				return errors.Join(problems...)
			})
		},
	}
}

// credentials replaces the kubeconfig for the provider with the result of the function with. The repair replaces it
// with a new one.
func credentials(name string, with func(*lab.Lab) ([]byte, error)) fault {
	replace := func(ctx context.Context, g *game, with func(*lab.Lab) ([]byte, error)) error {
		kubeconfig, err := with(g.Lab)
		if err != nil {
			return err
		}
		return g.ReplaceIdentity(ctx, kubeconfig)
	}
	return fault{name: name, of: "credentials", late: true,
		inflict: func(ctx context.Context, g *game) error {
			return g.attempt(ctx, name, func(ctx context.Context) error { return replace(ctx, g, with) })
		},
		repair: func(ctx context.Context, g *game) error {
			return eventually(ctx, func(ctx context.Context) error { return replace(ctx, g, (*lab.Lab).NewIdentity) })
		},
	}
}

// expired returns a kubeconfig whose credentials the provider does not accept.
func expired(l *lab.Lab) ([]byte, error) {
	kubeconfig, err := l.NewIdentity()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "expired"}
	}
	return clientcmd.Write(*config)
}

// swapPlugins loads a plugin, makes its file invalid, and loads it again. The repair removes the file.
func swapPlugins() fault {
	path := func(g *game) string { return filepath.Join(g.PluginDir, "strip-vendor-labels.wasm") }
	return fault{name: "swap-plugins", of: "plugins",
		inflict: func(ctx context.Context, g *game) error {
			module, err := g.ReadModule("examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm")
			if err != nil {
				return err
			}
			for _, content := range [][]byte{module, append(slices.Clone(module[:1000]), "rubbish"...), module} {
				if err := os.WriteFile(path(g), content, 0o600); err != nil {
					return err
				}
				pause(ctx, 500*time.Millisecond)
			}
			return nil
		},
		repair: func(_ context.Context, g *game) error { return os.Remove(path(g)) },
	}
}

// drain evicts all pods from the virtual node. New pods are not scheduled to it until it is uncordoned.
func drain() fault {
	const name = "drain"
	return fault{name: name, of: name, late: true,
		inflict: func(ctx context.Context, g *game) error {
			g.witness.expectEvictions()
			return g.attempt(ctx, name, func(ctx context.Context) error {
				patch := []byte(`{"metadata":{"annotations":{"` + wire.DrainAnnotation + `":"true"}}}`)
				_, err := g.Consumer.Dynamic.Resource(offloading.VirtualNodeGVR).Namespace(lab.TenantNamespace).Patch(ctx, lab.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			})
		},
		repair: func(ctx context.Context, g *game) error {
			err := eventually(ctx, func(ctx context.Context) error {
				_, err := g.Refractctl(ctx, "uncordon", "virtualnode", lab.NodeName)
				return err
			})
			g.users.forget(g.witness.evictions())
			return err
		},
	}
}
