// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/test/support/lab"
)

//go:embed app
var files embed.FS

// configuration shows the other objects that an application needs besides pods and Services, and that the status of an
// Ingress is reflected from the provider to the consumer.
func (s *story) configuration(ctx context.Context) error {
	err := s.during("the ConfigMap, the Secret and the Ingress are in the cloud", func() error {
		return s.lab.Wait(ctx, "configuration", func(ctx context.Context) (string, error) {
			cloud := s.lab.Provider.Client
			_, err := cloud.CoreV1().ConfigMaps(remoteNamespace).Get(ctx, "web-settings", metav1.GetOptions{})
			if err == nil {
				_, err = cloud.CoreV1().Secrets(remoteNamespace).Get(ctx, "web-payment", metav1.GetOptions{})
			}
			if err == nil {
				_, err = cloud.NetworkingV1().Ingresses(remoteNamespace).Get(ctx, "web", metav1.GetOptions{})
			}
			return absence(err)
		})
	})
	if err != nil {
		return err
	}
	if err := s.kubectl(ctx, "--context=cloud", "get", "configmaps,secrets,ingresses", "-n", remoteNamespace); err != nil {
		return err
	}
	status := `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.80"}]}}}`
	if err := s.kubectl(ctx, "--context=cloud", "patch", "ingress", "web", "-n", remoteNamespace, "--subresource=status", "--type=merge", "-p", status); err != nil {
		return err
	}
	err = s.during("the address that the cloud's ingress controller has assigned is shown in the home cluster", func() error {
		return s.lab.Wait(ctx, "the address", func(ctx context.Context) (string, error) {
			ingress, err := s.lab.Consumer.Client.NetworkingV1().Ingresses(namespace).Get(ctx, "web", metav1.GetOptions{})
			if err != nil || len(ingress.Status.LoadBalancer.Ingress) == 1 {
				return "", err
			}
			return "home shows no address yet", nil
		})
	})
	if err != nil {
		return err
	}
	return s.kubectl(ctx, "--context=home", "get", "ingress", "web", "-n", namespace)
}

// absence returns a description of the missing object if err means that an object does not exist. It returns any other
// error.
func absence(err error) (string, error) {
	if apierrors.IsNotFound(err) {
		return err.Error(), nil
	}
	return "", err
}

// anyResource reflects objects of a kind that is not reflected by default.
func (s *story) anyResource(ctx context.Context) error {
	for _, cluster := range []string{lab.ConsumerID, lab.ProviderID} {
		if err := s.apply(ctx, cluster, "monitor-definition.yaml"); err != nil {
			return err
		}
		// The API server serves the resource of a new CRD only after a moment.
		if err := s.kubectl(ctx, "--context="+cluster, "wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com"); err != nil {
			return err
		}
	}
	if err := s.apply(ctx, lab.ConsumerID, "monitor.yaml"); err != nil {
		return err
	}
	var message string
	err := s.during("the ReflectedResource says which permission is missing", func() (err error) {
		message, err = s.awaitCondition(ctx, pluginsv1alpha1.MissingPermissionReason)
		return err
	})
	if err != nil {
		return err
	}
	s.text(message)
	for _, cluster := range []string{lab.ConsumerID, lab.ProviderID} {
		if err := s.apply(ctx, cluster, "monitor-access-"+cluster+".yaml"); err != nil {
			return err
		}
	}
	err = s.during("it is permitted now, and reflected", func() error {
		_, err := s.awaitCondition(ctx, pluginsv1alpha1.ReflectingReason)
		return err
	})
	if err != nil {
		return err
	}
	monitors := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"}
	err = s.during("the ServiceMonitor is in the cloud", func() error {
		return s.lab.Wait(ctx, "the ServiceMonitor", func(ctx context.Context) (string, error) {
			_, err := s.lab.Provider.Dynamic.Resource(monitors).Namespace(remoteNamespace).Get(ctx, "web", metav1.GetOptions{})
			return absence(err)
		})
	})
	if err != nil {
		return err
	}
	return s.kubectl(ctx, "--context=home", "get", "reflectedresources")
}

// awaitCondition waits until a condition of the ReflectedResource has the given reason. It returns the condition's
// message.
func (s *story) awaitCondition(ctx context.Context, reason string) (message string, err error) {
	err = s.lab.Wait(ctx, "the ReflectedResource", func(ctx context.Context) (string, error) {
		object, err := s.lab.Consumer.Dynamic.Resource(pluginsv1alpha1.ReflectedResourceGVR).Get(ctx, "servicemonitors.monitoring.coreos.com", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		asked := &pluginsv1alpha1.ReflectedResource{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, asked); err != nil {
			return "", err
		}
		for _, node := range asked.Status.VirtualNodes {
			for _, condition := range node.Conditions {
				if condition.Reason == reason {
					message = condition.Message
					return "", nil
				}
			}
		}
		return fmt.Sprintf("no virtual node says %s", reason), nil
	})
	return message, err
}

// apply applies a manifest of the application with kubectl.
func (s *story) apply(ctx context.Context, cluster, name string) error {
	content, err := files.ReadFile("app/" + name)
	if err != nil {
		return err
	}
	if err := s.lab.Apply(ctx, cluster, content); err != nil {
		return err
	}
	s.shell("kubectl --context="+cluster+" apply -f app/"+name, "")
	return nil
}
