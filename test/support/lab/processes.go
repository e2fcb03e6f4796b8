// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/test/support/testenv"
)

// stopTimeout limits how long a process may take to end after SIGTERM. This includes releasing its leases.
const stopTimeout = 10 * time.Second

// The names of Refract's processes in logs and measurements.
const (
	kubeletName         = "virtual-kubelet"
	standbyName         = "virtual-kubelet-standby"
	consumerManagerName = "controller-manager-home"
	secondManagerName   = "controller-manager-home-2"
	providerManagerName = "controller-manager-cloud"
)

// StartAll starts the controller managers of both clusters and the virtual kubelet. It waits until the API server calls
// the scheduling webhook for pods.
func (l *Lab) StartAll(ctx context.Context) error {
	if err := l.StartProviderManager(ctx); err != nil {
		return err
	}
	if err := l.StartConsumerManager(ctx); err != nil {
		return err
	}
	if err := l.StartKubelet(ctx); err != nil {
		return err
	}
	return l.AwaitWebhook(ctx)
}

// StartKubelet starts the virtual kubelet. Use AwaitNodeReady to wait until it is ready.
func (l *Lab) StartKubelet(ctx context.Context) error {
	return l.startReplica(ctx, kubeletName, l.ports.kubelet, l.ports.kubeletMetrics, l.ports.kubeletHealth)
}

// StartStandby starts a second replica of the virtual kubelet. Use AwaitStandby to wait until it can take over.
func (l *Lab) StartStandby(ctx context.Context) error {
	return l.startReplica(ctx, standbyName, l.ports.standby, l.ports.standbyMetrics, l.ports.standbyHealth)
}

// AwaitStandby waits until the second replica of the virtual kubelet is ready. It is ready if it is the leader, or if
// it has read the objects that a leader needs.
func (l *Lab) AwaitStandby(ctx context.Context) error {
	return l.awaitReady(ctx, l.ports.standbyHealth)
}

func (l *Lab) startReplica(ctx context.Context, name string, port, metrics, health int) error {
	kubeconfig := filepath.Join(l.dir, "kubelet.conf")
	if err := l.Consumer.account(ctx, kubeconfig, TenantNamespace, kubeletAccount); err != nil {
		return err
	}
	certificate, key, err := l.servingCertificate()
	if err != nil {
		return err
	}
	server, err := url.Parse(l.Consumer.Config().Host)
	if err != nil {
		return fmt.Errorf("reading the address of the consumer's API server, %w", err)
	}
	return l.start(l.Consumer, name, "virtual-kubelet", append([]string{
		"--home-kubeconfig=" + kubeconfig,
		"--foreign-kubeconfig-secret-name=" + kubeconfigSecret,
		"--nodename=" + NodeName, "--node-ip=127.0.0.1", "--listen-address=127.0.0.1", fmt.Sprintf("--listen-port=%d", port),
		"--tls-cert-file=" + certificate, "--tls-private-key-file=" + key,
		"--tenant-namespace=" + TenantNamespace, "--liqo-namespace=" + SystemNamespace,
		"--home-cluster-id=" + ConsumerID, "--foreign-cluster-id=" + ProviderID,
		"--local-podcidr=" + l.Consumer.PodCIDR(),
		fmt.Sprintf("--enable-apiserver-support=%t", l.opts.APIServerSupport), "--home-api-server-host=" + server.Hostname(), "--home-api-server-port=" + server.Port(),
		"--node-check-network=false",
		"--plugin-dir=" + l.PluginDir, "--plugin-cache-dir=" + filepath.Join(l.dir, "plugin-cache"),
		"--metrics-enabled", "--metrics-address=" + address(metrics), "--health-probe-address=" + address(health),
	}, l.opts.KubeletArgs...)...)
}

// SetKubeletArgs sets additional flags for the next start of the virtual kubelet.
func (l *Lab) SetKubeletArgs(args ...string) { l.opts.KubeletArgs = args }

// StartProviderManager starts the controller manager of the provider, which serves the consumer's requests.
func (l *Lab) StartProviderManager(ctx context.Context) error {
	kubeconfig := filepath.Join(l.dir, "manager-cloud.conf")
	if err := l.Provider.account(ctx, kubeconfig, SystemNamespace, managerAccount); err != nil {
		return err
	}
	return l.start(l.Provider, providerManagerName, "controller-manager", append(webhookArgs(l.ports.providerWebhook),
		"--kubeconfig="+kubeconfig, "--cluster-id="+ProviderID, "--liqo-namespace="+SystemNamespace, fmt.Sprintf("--enable-leader-election=%t", l.opts.Elect),
		// Benchmarks create many pods in one namespace.
		"--tenant-object-counts=count/shadowpods.offloading.liqo.io=20000,count/secrets=40000",
		"--metrics-address="+address(l.ports.providerMetrics), "--health-probe-address="+address(l.ports.providerHealth))...)
}

// StartConsumerManager starts the controller manager of the consumer, which offloads its namespaces.
func (l *Lab) StartConsumerManager(ctx context.Context) error {
	return l.startManagerReplica(ctx, consumerManagerName, l.ports.consumerWebhook, l.ports.consumerMetrics, l.ports.consumerHealth)
}

// StartSecondManager starts a second replica of the consumer's controller manager. It waits until the replica serves
// the webhook.
func (l *Lab) StartSecondManager(ctx context.Context) error {
	if err := l.startManagerReplica(ctx, secondManagerName, l.ports.secondWebhook, l.ports.secondMetrics, l.ports.secondHealth); err != nil {
		return err
	}
	return l.awaitReady(ctx, l.ports.secondHealth)
}

// StopConsumerManager stops the first replica of the consumer's controller manager with SIGTERM, as in an upgrade.
func (l *Lab) StopConsumerManager(ctx context.Context) error { return l.stop(ctx, consumerManagerName) }

// StopSecondManager stops the second replica of the consumer's controller manager with SIGTERM, as in an upgrade.
func (l *Lab) StopSecondManager(ctx context.Context) error { return l.stop(ctx, secondManagerName) }

// WebhookAddresses returns the addresses at which the replicas of the consumer's controller manager serve the
// webhook.
func (l *Lab) WebhookAddresses() []string {
	return []string{address(l.ports.consumerWebhook), address(l.ports.secondWebhook)}
}

func (l *Lab) startManagerReplica(ctx context.Context, name string, webhook, metrics, health int) error {
	kubeconfig := filepath.Join(l.dir, "manager-home.conf")
	if err := l.Consumer.account(ctx, kubeconfig, SystemNamespace, managerAccount); err != nil {
		return err
	}
	return l.start(l.Consumer, name, "controller-manager", append(webhookArgs(webhook),
		"--kubeconfig="+kubeconfig, "--cluster-id="+ConsumerID, "--liqo-namespace="+SystemNamespace, fmt.Sprintf("--enable-leader-election=%t", l.opts.Elect),
		fmt.Sprintf("--enable-declared-plugins=%t", l.opts.DeclaredPlugins),
		"--metrics-address="+address(metrics), "--health-probe-address="+address(health))...)
}

func (l *Lab) start(side *Side, name, program string, args ...string) error {
	command, err := side.StartCommand(name, filepath.Join(l.bin, program), args...)
	if err != nil {
		return fmt.Errorf("starting %s, %w", name, err)
	}
	l.running[name] = command
	return nil
}

// servingCertificate returns the certificate and the key with which the virtual kubelet serves requests from the
// consumer's API server, such as requests for logs.
func (l *Lab) servingCertificate() (certificate, key string, err error) {
	certPEM, keyPEM, err := l.Consumer.IssueServing("system:node:"+NodeName, []string{"system:nodes"}, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return "", "", err
	}
	certificate, key = filepath.Join(l.dir, "kubelet.crt"), filepath.Join(l.dir, "kubelet.key")
	if err := os.WriteFile(certificate, certPEM, 0o600); err != nil {
		return "", "", err
	}
	return certificate, key, os.WriteFile(key, keyPEM, 0o600)
}

// KillKubelet kills the virtual kubelet, as a crash would.
func (l *Lab) KillKubelet() { l.kill(kubeletName) }

// KillStandby kills the second replica of the virtual kubelet.
func (l *Lab) KillStandby() { l.kill(standbyName) }

// KillConsumerManager kills the consumer's controller manager, which also serves the scheduling webhook.
func (l *Lab) KillConsumerManager() { l.kill(consumerManagerName) }

// KillProviderManager kills the provider's controller manager.
func (l *Lab) KillProviderManager() { l.kill(providerManagerName) }

func (l *Lab) kill(name string) {
	if command := l.running[name]; command != nil {
		command.Kill()
		delete(l.running, name)
	}
}

// ConsumerManager returns the consumer's controller manager, or nil if it is not running.
func (l *Lab) ConsumerManager() *testenv.Command { return l.running[consumerManagerName] }

// ProviderManager returns the provider's controller manager, or nil if it is not running.
func (l *Lab) ProviderManager() *testenv.Command { return l.running[providerManagerName] }

// AwaitProviderManager waits until the caches of the provider's controller manager are synced.
func (l *Lab) AwaitProviderManager(ctx context.Context) error {
	return l.awaitReady(ctx, l.ports.providerHealth)
}

// StopStandby stops the second replica of the virtual kubelet with SIGTERM, and waits until it has ended.
func (l *Lab) StopStandby(ctx context.Context) error { return l.stop(ctx, standbyName) }

// StopKubelet stops the virtual kubelet with SIGTERM, as in an upgrade.
func (l *Lab) StopKubelet(ctx context.Context) error { return l.stop(ctx, kubeletName) }

func (l *Lab) stop(ctx context.Context, name string) error {
	command := l.running[name]
	if command == nil {
		return nil
	}
	delete(l.running, name)
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return command.Interrupt(ctx)
}

// Kubelet returns the virtual kubelet, or nil if it is not running.
func (l *Lab) Kubelet() *testenv.Command { return l.running[kubeletName] }

// Standby returns the second replica of the virtual kubelet, or nil if it is not running.
func (l *Lab) Standby() *testenv.Command { return l.running[standbyName] }

// Usage returns the resource usage of each running process since it was started.
func (l *Lab) Usage() (map[string]testenv.Usage, error) {
	usage := map[string]testenv.Usage{}
	for name, command := range l.running {
		used, err := testenv.ProcessUsage(command.Pid())
		if err != nil {
			return nil, fmt.Errorf("measuring %s, %w", name, err)
		}
		usage[name] = used
	}
	return usage, nil
}

// AwaitNodeReady waits until the virtual node is Ready on the consumer.
func (l *Lab) AwaitNodeReady(ctx context.Context) error {
	return l.Wait(ctx, "the virtual node to be Ready", func(ctx context.Context) (string, error) {
		node, err := l.Consumer.Client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "it is not registered", nil
		}
		if err != nil {
			return "", err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				if condition.Status == corev1.ConditionTrue {
					return "", nil
				}
				return fmt.Sprintf("Ready is %s, %s: %s", condition.Status, condition.Reason, condition.Message), nil
			}
		}
		return "it has no condition Ready", nil
	})
}

// Memory returns the resident memory of the control plane's processes, in bytes.
func (s *Side) Memory() (int64, error) {
	var sum int64
	for name, pid := range s.Processes() {
		used, err := testenv.ProcessUsage(pid)
		if err != nil {
			return 0, fmt.Errorf("measuring %s of %s, %w", name, s.ID, err)
		}
		sum += used.RSS
	}
	return sum, nil
}
