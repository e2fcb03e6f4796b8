// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"fmt"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// Owned returns a label selector for the objects that the lab's manager creates.
func (l *Lab) Owned() string {
	return "offloading.liqo.io/origin: rome, offloading.liqo.io/destination: " + l.ID
}

// Pod creates a pod that is bound to the lab's virtual node.
func (l *Lab) Pod(name string) *unstructured.Unstructured {
	l.Helper()
	return l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}, annotations: {note: hello}}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  tolerations: [{operator: Exists}]`, name, name, l.Node))
}

// RunRemote does the work of the provider: it creates the pod of a ShadowPod and sets its status.
func (l *Lab) RunRemote(name, status string) *unstructured.Unstructured {
	l.Helper()
	return l.RunRemoteWith(name, `{containers: [{name: web, image: "web:1"}]}`, status)
}

// RunRemoteWith is like RunRemote, but creates the pod with the given spec. The spec determines whether the API server
// allows containers to restart.
func (l *Lab) RunRemoteWith(name, spec, status string) *unstructured.Unstructured {
	l.Helper()
	like := map[string]any{}
	require.NoError(l, yaml.Unmarshal([]byte(spec), &like))
	like["automountServiceAccountToken"] = false
	shadow := l.Present(l.Remote, "ShadowPod", l.RemoteNS, name)
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "labels": shadow.Object["metadata"].(map[string]any)["labels"],
			"annotations":     shadow.Object["metadata"].(map[string]any)["annotations"],
			"ownerReferences": []any{map[string]any{"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", "name": name, "uid": string(shadow.GetUID()), "controller": true}}},
		"spec": like,
	}}
	var created *unstructured.Unstructured
	// The service account of the namespace might not exist yet, so the creation is retried.
	l.Eventually(func() (err error) {
		created, err = l.Remote.Of("Pod", l.RemoteNS).Create(l.Context(), pod, metav1.CreateOptions{})
		return err
	})
	if status != "" {
		l.RemoteStatus(name, status)
	}
	return created
}

func (l *Lab) RemoteStatus(name, status string) {
	l.Helper()
	l.Remote.PatchYAML(l.T, "Pod", l.RemoteNS, name, "{status: "+status+"}", "status")
}

func (l *Lab) OwnedPod() string { return l.Owned() + ", offloading.liqo.io/nodename: " + l.Node }

// ChainsForPods sets chains that set the node IP, add restarts, and handle remoteUnavailable, like the default plugin
// for pods.
func (l *Lab) ChainsForPods() {
	l.Chains.Swap("Pod", host.Incoming, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		if err := doc.SetString("status.hostIP", env.Context["nodeIP"].(string)); err != nil {
			return nil, err
		}
		if _, err := doc.Remove("status.hostIPs"); err != nil {
			return nil, err
		}
		extra, _ := env.Context["extraRestarts"].(map[string]any)
		if n, ok := extra["web"].(int64); ok {
			count, _ := doc.At("status.containerStatuses[0].restartCount")
			now, _ := count.Int()
			if err := doc.SetInt("status.containerStatuses[0].restartCount", now+n); err != nil {
				return nil, err
			}
		}
		if env.Context["remoteUnavailable"] == true {
			return &host.Outcome{}, doc.SetString("status.conditions[0].status", "False")
		}
		return &host.Outcome{}, nil
	})
}
