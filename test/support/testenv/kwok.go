// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/test/support/testenv/internal/ports"
)

// KwokNodeLabel is the key of a label on every simulated node. Its value is "kwok".
const KwokNodeLabel = "type"

// nobody is the user as which commands of `kubectl exec` run on this machine if this process runs as root.
const nobody = 65534

// simulatedCIDR is the address range of the pods on simulated nodes in a cluster that also has real nodes, whose pods
// use PodCIDR. It is TEST-NET-1 of RFC 5737.
const simulatedCIDR = "192.0.2.0/24"

// kwokConfig is the template of kwok's configuration, which is read after kwok's default stages. A KwokConfiguration
// must set all parallelisms, because zero would block pods or end kwok.
var kwokConfig = template.Must(template.New("kwok").Parse(`---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec: {logs: [{logsFile: "{{.Log}}", previousLogsFile: "{{.Log}}", follow: true}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterAttach
metadata: {name: all}
spec: {attaches: [{logsFile: "{{.Log}}"}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: all}
spec:
  execs:
  - local:
      workDir: /
{{- if .User}}
      securityContext: {runAsUser: {{.User}}, runAsGroup: {{.User}}}
{{- end}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: all}
spec: {forwards: [{target: {address: 127.0.0.1, port: {{.Port}}}}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
metadata: {name: kwok}
options:
  podPlayStageParallelism: 16
  podsOnNodeSyncParallelism: 4
  nodePlayStageParallelism: 4
  nodeLeaseParallelism: 4
  nodeLeaseDurationSeconds: 40
  enableDebuggingHandlers: true
`))

// ExitCodeAnnotation makes a pod end as a kubelet would end it: when it is deleted with a grace period, its
// containers exit with this code, the pod is reported as Succeeded or Failed, and is removed a moment later. Pods
// without the annotation are removed at once, which is kwok's default.
const ExitCodeAnnotation = "testenv.example.com/exit-code"

// endingStages replaces kwok's stage pod-delete.
const endingStages = `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-stop}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
    - {key: '.metadata.annotations["` + ExitCodeAnnotation + `"]', operator: Exists}
    - {key: .status.phase, operator: NotIn, values: [Succeeded, Failed]}
  delay: {durationMilliseconds: 300}
  next:
    statusTemplate: |
      {{ $now := Now }}
      {{ $code := index .metadata.annotations "` + ExitCodeAnnotation + `" }}
      conditions:
      - {type: Ready, status: "False", lastTransitionTime: {{ $now | Quote }}}
      - {type: ContainersReady, status: "False", lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: false
        started: false
        restartCount: 0
        state: {terminated: {exitCode: {{ $code }}, finishedAt: {{ $now | Quote }}, startedAt: {{ $now | Quote }}}}
      {{ end }}
      phase: {{ if eq $code "0" }}Succeeded{{ else }}Failed{{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-stopped}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
    - {key: '.metadata.annotations["` + ExitCodeAnnotation + `"]', operator: Exists}
    - {key: .status.phase, operator: In, values: [Succeeded, Failed]}
  delay: {durationMilliseconds: 500}
  next: {delete: true}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-vanish}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
    - {key: '.metadata.annotations["` + ExitCodeAnnotation + `"]', operator: DoesNotExist}
  next: {delete: true}
`

// withoutStage removes the stage with the given name from a file with several stages.
func withoutStage(stages []byte, name string) (string, error) {
	var kept strings.Builder
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stages))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return kept.String(), nil
		}
		stage := &metav1.PartialObjectMetadata{}
		if err == nil {
			err = yaml.Unmarshal(document, stage)
		}
		if err != nil {
			return "", fmt.Errorf("reading the stages of kwok, %w", err)
		}
		if stage.Name != name {
			kept.WriteString("---\n" + string(document) + "\n")
		}
	}
}

// AddKwokNodes adds n simulated nodes with the given labels, and returns when they are Ready. The nodes are named
// <cluster>-kwok-1, -2, …; the numbers continue over several calls.
func (c *Cluster) AddKwokNodes(ctx context.Context, n int, labels map[string]string) error {
	if n <= 0 {
		return nil
	}
	if err := c.startKwok(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	first := c.nodes + 1
	c.nodes += n
	c.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := first; i < first+n; i++ {
		group.Go(func() error { return c.addKwokNode(ctx, fmt.Sprintf("%s-kwok-%d", c.opts.Name, i), labels) })
	}
	return group.Wait()
}

func (c *Cluster) addKwokNode(ctx context.Context, name string, labels map[string]string) error {
	if _, err := c.clients.CoreV1().Nodes().Create(ctx, kwokNode(name, labels), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the node %s, %w", name, err)
	}
	return c.await(ctx, "the node "+name+" to be Ready", func(ctx context.Context) error { return c.nodeReady(ctx, name) })
}

func kwokNode(name string, labels map[string]string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("5000"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
			Labels: map[string]string{
				KwokNodeLabel: "kwok", corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			},
		},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
	for key, value := range labels {
		node.Labels[key] = value
	}
	return node
}

// startKwok starts kwok unless it is already running. It cannot share a reserved port. If the port was taken between
// the check and the start, startKwok tries another one.
func (c *Cluster) startKwok(ctx context.Context) error {
	c.kwokMu.Lock()
	defer c.kwokMu.Unlock()
	if _, runs := c.Processes()["kwok"]; runs {
		return nil
	}
	if err := c.writeKwokState(); err != nil {
		return fmt.Errorf("preparing kwok, %w", err)
	}
	for attempt := 1; ; attempt++ {
		port, err := ports.Free()
		if err != nil {
			return err
		}
		err = c.runKwok(ctx, port)
		if err == nil || attempt == 5 || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
		c.forget("kwok")
	}
}

func (c *Cluster) runKwok(ctx context.Context, port int) error {
	if err := c.writeKwokConfig(port); err != nil {
		return fmt.Errorf("preparing kwok, %w", err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cidr := c.opts.PodCIDR
	if len(c.machines) > 0 {
		cidr = simulatedCIDR
	}
	err := c.run("kwok", c.tools.Kwok, []string{
		"--kubeconfig=" + c.path("kwok.conf"), "--config=" + c.path("kwok.yaml"),
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--cidr=" + cidr,
		"--node-ip=127.0.0.1", "--node-port=" + strconv.Itoa(port), "--server-address=" + address,
		"--tls-cert-file=" + c.crt("kwok"), "--tls-private-key-file=" + c.key("kwok"), "--node-lease-duration-seconds=40",
	})
	if err != nil {
		return err
	}
	return c.await(ctx, "kwok to listen", func(ctx context.Context) error {
		conn, err := c.dial(ctx, address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (c *Cluster) writeKwokState() error {
	cert, key, err := c.IssueServing("system:node:kwok", []string{"system:nodes"}, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return err
	}
	line := time.Now().UTC().Format(time.RFC3339Nano) + " stdout F simulated by kwok: nothing runs in this container\n"
	return errors.Join(
		c.writePair("kwok", cert, key),
		c.componentKubeconfig("kwok.conf", "kwok", "system:masters"),
		os.WriteFile(c.path("container.log"), []byte(line), 0o600),
	)
}

func (c *Cluster) writeKwokConfig(port int) error {
	stages, err := os.ReadFile(c.tools.KwokStages)
	if err != nil {
		return err
	}
	values := map[string]any{"Log": c.path("container.log"), "Port": port, "User": 0}
	if os.Getuid() == 0 {
		values["User"] = nobody
	}
	var config strings.Builder
	kept, err := withoutStage(stages, "pod-delete")
	if err != nil {
		return err
	}
	config.WriteString(kept)
	config.WriteString(endingStages)
	if err := kwokConfig.Execute(&config, values); err != nil {
		return err
	}
	return os.WriteFile(c.path("kwok.yaml"), []byte(config.String()), 0o600)
}
