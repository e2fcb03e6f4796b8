// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package deployments runs the programs of Refract's Deployments as processes on this machine. Tests use it with
// control planes whose nodes are simulated.
package deployments

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

// Cluster is a control plane whose Deployments run as processes on this machine.
type Cluster struct {
	*testenv.Cluster
	// Client has the permissions of an administrator.
	Client kubernetes.Interface
	// WebhookPort is the port of the controller manager's webhook. RedirectWebhooks sets it.
	WebhookPort int
}

// Run starts a process for each Deployment of Refract and stops it when the Deployment is deleted, until stop is
// called. The process runs the program of the Deployment's first container. The number of replicas has no effect.
func (c *Cluster) Run(t *testing.T, bin string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		look := time.NewTicker(200 * time.Millisecond)
		defer look.Stop()
		running := map[string]*testenv.Command{}
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
				continue
			case <-look.C:
			}
			list, err := c.Client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			wanted := map[string]bool{}
			for i := range list.Items {
				d := &list.Items[i]
				key := d.Namespace + "/" + d.Name
				command := d.Spec.Template.Spec.Containers[0].Command
				if len(command) == 0 || filepath.Base(command[0]) == "gateway" {
					continue // only Refract's Deployments have a command, and gateways need a network of their own
				}
				wanted[key] = d.DeletionTimestamp == nil
				if running[key] != nil {
					c.locate(ctx, d)
				}
				if running[key] == nil && wanted[key] {
					command, err := c.start(ctx, t, bin, d)
					if err != nil {
						t.Errorf("running Deployment %s: %v", key, err)
						return
					}
					running[key] = command
				}
			}
			for key, command := range running {
				if !wanted[key] {
					end(t, command)
					delete(running, key)
				} else if err := command.Failure(); err != nil {
					t.Errorf("Deployment %s has ended: %v", key, err)
					return
				}
			}
		}
		for _, command := range running {
			end(t, command)
		}
	}()
	return func() { cancel(); <-ended }
}

// locate writes the address of the process to the status of the Deployment's pods, because simulated nodes assign
// fictitious addresses. It ignores errors, because Run's loop calls it again every 200 ms.
func (c *Cluster) locate(ctx context.Context, d *appsv1.Deployment) {
	pods, err := c.Client.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	if err != nil {
		return
	}
	for _, pod := range pods.Items {
		if pod.Status.PodIP != "" && pod.Status.PodIP != "127.0.0.1" {
			_, _ = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
				[]byte(`{"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}`), metav1.PatchOptions{}, "status")
		}
	}
}

// RedirectWebhooks makes the API server call the chart's webhooks on this machine, because the API server cannot reach
// their Service.
func (c *Cluster) RedirectWebhooks(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.WebhookPort = listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	configurations := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configuration, err := configurations.Get(t.Context(), rbac.WebhookName, metav1.GetOptions{})
	require.NoError(t, err)
	for i := range configuration.Webhooks {
		at := &configuration.Webhooks[i].ClientConfig
		at.URL, at.Service = ptr.To(fmt.Sprintf("https://localhost:%d%s", c.WebhookPort, *at.Service.Path)), nil
	}
	_, err = configurations.Update(t.Context(), configuration, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func end(t *testing.T, command *testenv.Command) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := command.Interrupt(ctx); err != nil {
		t.Error(err)
	}
}

// start runs the program of a Deployment's container, with the container's arguments and ServiceAccount.
func (c *Cluster) start(ctx context.Context, t *testing.T, bin string, d *appsv1.Deployment) (*testenv.Command, error) {
	pod := &d.Spec.Template.Spec
	container := &pod.Containers[0]
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.ServiceAccountKubeconfig(ctx, kubeconfig, d.Namespace, pod.ServiceAccountName); err != nil {
		return nil, err
	}
	program := filepath.Base(container.Command[0])
	var args []string
	for _, argument := range container.Args {
		args = append(args, strings.ReplaceAll(argument, "$(POD_IP)", "127.0.0.1"))
	}
	// If a flag is repeated, its last value applies.
	args = append(args, "--health-probe-address=0")
	switch program {
	case "controller-manager":
		args = append(args, "--kubeconfig="+kubeconfig, "--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", c.WebhookPort))
	case "virtual-kubelet":
		args = append(args, "--home-kubeconfig="+kubeconfig, "--listen-address=127.0.0.1", "--listen-port=0", "--plugin-cache-dir="+filepath.Join(t.TempDir(), "plugins"))
	default:
		return nil, fmt.Errorf("it runs %s", program)
	}
	return c.StartCommand(d.Name, filepath.Join(bin, program), args...)
}
