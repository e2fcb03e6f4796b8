// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/controllers/podscheduling"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/internal/rbac"
)

// installWebhook installs the scheduling webhook and, if quotas is true, the quota webhook. It does so in the same way
// as the chart, but without a Service, because there is no pod network. at is the loopback address at which the API
// server calls the controller manager.
func (s *Side) installWebhook(ctx context.Context, at string, quotas bool) error {
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: rbac.WebhookName}}
	if _, err := s.Client.CoreV1().Secrets(SystemNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the webhook's Secret in %s, %w", s.ID, err)
	}
	url := fmt.Sprintf("https://localhost:%s%s", port, podscheduling.Path)
	configuration := podscheduling.Configuration(rbac.WebhookName, SystemNamespace, admissionregistrationv1.WebhookClientConfig{URL: &url}, admissionregistrationv1.Ignore)
	if quotas {
		url := fmt.Sprintf("https://localhost:%s%s", port, quota.Path)
		configuration.Webhooks = append(configuration.Webhooks, quota.Configuration(admissionregistrationv1.WebhookClientConfig{URL: &url}, admissionregistrationv1.Fail))
	}
	_, err = s.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the webhook configuration in %s, %w", s.ID, err)
	}
	return nil
}

// webhookArgs returns the flags with which a controller manager serves the webhook on the given port.
func webhookArgs(port int) []string {
	return []string{"--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", port)}
}

// AwaitWebhook waits until the consumer's API server can call the controller manager's webhook. For this, the webhook
// needs a certificate, and the webhook configuration needs the CA bundle.
func (l *Lab) AwaitWebhook(ctx context.Context) error {
	if err := l.awaitReady(ctx, l.ports.consumerHealth); err != nil {
		return err
	}
	return l.Wait(ctx, "the scheduling webhook", func(ctx context.Context) (string, error) {
		configuration, err := l.Consumer.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, rbac.WebhookName, metav1.GetOptions{})
		if err == nil && len(configuration.Webhooks[0].ClientConfig.CABundle) == 0 {
			return "the webhook's configuration has no CA bundle", nil
		}
		return "", err
	})
}

func (l *Lab) awaitReady(ctx context.Context, port int) error {
	return l.Wait(ctx, "the replica to be ready", func(ctx context.Context) (string, error) {
		if err := ready(ctx, address(port)); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}

// ready returns an error if a process is not ready. The error contains the response of the process.
func ready(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz?verbose", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("not ready: %s", body)
	}
	return err
}
