// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	psapi "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// request is a pod that a consumer requests, with the expected decision.
type request struct {
	name   string
	limits map[string]string // limits of the consumer, by the name of the setting; defaults apply to all others
	says   string            // text that the rejection must contain; empty if the pod is allowed
	pod    string            // spec of the pod in YAML
}

const (
	anyNode     = "node-selectors"
	anyTaint    = "tolerations"
	longest     = "max-termination-grace-period-seconds"
	otherSpaces = "cross-namespace-affinity"
	tokens      = "service-account-tokens"
	accounts    = "service-accounts"
	volumes     = "volume-types"
	classes     = "storage-classes"
	sources     = "claim-data-sources"
	ofNode      = "host-namespaces"
	schedulers  = "scheduler-names"
)

var requests = []request{
	{name: "plain", pod: `{}`},
	{name: "node name", says: "spec.pod.nodeName", pod: `{nodeName: control-plane}`},

	{name: "architecture", pod: `{nodeSelector: {kubernetes.io/arch: arm64, topology.kubernetes.io/zone: a}}`},
	{name: "host name", says: "spec.pod.nodeSelector", pod: `{nodeSelector: {kubernetes.io/os: linux, kubernetes.io/hostname: control-plane}}`},
	{name: "role", says: "node-role.kubernetes.io/control-plane", pod: `{nodeSelector: {node-role.kubernetes.io/control-plane: ""}}`},
	{name: "label of a node that is allowed", limits: map[string]string{anyNode: "example.com/*"}, pod: `{nodeSelector: {example.com/pool: rome}}`},
	{name: "label of a node that is no longer allowed", limits: map[string]string{anyNode: "example.com/*"}, says: "spec.pod.nodeSelector", pod: `{nodeSelector: {kubernetes.io/os: linux}}`},
	{name: "selectors with an empty list", limits: map[string]string{anyNode: ""}, says: "spec.pod.nodeSelector", pod: `{nodeSelector: {kubernetes.io/os: linux}}`},
	{name: "no selectors with an empty list", limits: map[string]string{anyNode: ""}, pod: `{nodeSelector: {}, affinity: {nodeAffinity: {}}}`},
	{name: "null", pod: `{nodeSelector: null, tolerations: null, affinity: null, volumes: null, terminationGracePeriodSeconds: null, serviceAccountName: null}`},
	{name: "affinity to a zone", pod: `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]}]}}}}`},
	{name: "affinity to a host", says: "spec.pod.affinity.nodeAffinity", pod: `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [a]}]}]}}}}`},
	{name: "affinity away from a host, in the second term", says: "spec.pod.affinity.nodeAffinity", pod: `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: Exists}]}, {matchExpressions: [{key: dedicated, operator: DoesNotExist}]}]}}}}`},
	{name: "affinity to the name of a node", says: "spec.pod.affinity.nodeAffinity", pod: `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}}`},
	{name: "affinity to the name of a node that is allowed", limits: map[string]string{anyNode: "metadata.name"}, pod: `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}}`},
	{name: "preference of a host", says: "spec.pod.affinity.nodeAffinity", pod: `{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: dedicated, operator: Exists}]}}]}}}`},
	{name: "preference of a zone", pod: `{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: topology.kubernetes.io/zone, operator: Exists}]}}]}}}`},
	{name: "spread over hosts", pod: `{topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]}`},

	{name: "tolerations that Kubernetes adds", pod: `{tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}`},
	{name: "toleration of everything", says: "all taints", pod: `{tolerations: [{operator: Exists}]}`},
	{name: "toleration of everything, with an empty key", says: "all taints", pod: `{tolerations: [{key: "", operator: Exists, effect: NoSchedule}]}`},
	{name: "toleration of the control plane", says: "node-role.kubernetes.io/control-plane", pod: `{tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists}, {key: node-role.kubernetes.io/control-plane, operator: Exists}]}`},
	{name: "toleration of a cordon", says: "spec.pod.tolerations", pod: `{tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}]}`},
	{name: "toleration of virtual nodes", says: "spec.pod.tolerations", pod: `{tolerations: [{key: virtual-node.liqo.io/not-allowed, value: "true", effect: NoExecute}]}`},
	{name: "toleration of other tenants' nodes", says: "spec.pod.tolerations", pod: `{tolerations: [{key: dedicated, value: gpu-team}]}`},
	{name: "toleration that is allowed", limits: map[string]string{anyTaint: "dedicated"}, pod: `{tolerations: [{key: dedicated, value: rome}]}`},
	{name: "toleration of everything that is allowed", limits: map[string]string{anyTaint: "*"}, pod: `{tolerations: [{operator: Exists}]}`},
	{name: "toleration of everything where only a prefix is allowed", limits: map[string]string{anyTaint: "example.com/*"}, says: "all taints", pod: `{tolerations: [{operator: Exists}]}`},
	{name: "toleration of everything with an empty list", limits: map[string]string{anyTaint: ""}, says: "all taints", pod: `{tolerations: [{operator: Exists}]}`},

	{name: "spread from its own pods", pod: `{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}}`},
	{name: "near pods of its namespace", pod: `{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, namespaces: [$(NAMESPACE)], labelSelector: {}}}]}}}`},
	{name: "near other tenants", says: "spec.pod.affinity", pod: `{affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, namespaces: [kube-system], labelSelector: {}}]}}}`},
	{name: "near all namespaces", says: "spec.pod.affinity", pod: `{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, namespaceSelector: {}, labelSelector: {}}}]}}}`},
	{name: "repels all tenants", says: "spec.pod.affinity", pod: `{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, namespaceSelector: {}, labelSelector: {}}]}}}`},
	{name: "repels a tenant", says: "spec.pod.affinity", pod: `{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, namespaces: [shop-turin], labelSelector: {}}}]}}}`},
	{name: "other namespaces that are allowed", limits: map[string]string{otherSpaces: "true"}, pod: `{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, namespaces: [shop-turin], labelSelector: {}}]}}}`},

	{name: "priority class", pod: `{priorityClassName: batch, priority: 10}`},
	{name: "priority class of others", says: "spec.pod.priorityClassName", pod: `{priorityClassName: production}`},
	{name: "priority class of one consumer", limits: map[string]string{"priority-classes": "production"}, pod: `{priorityClassName: production}`},
	{name: "priority class of the system", limits: map[string]string{"priority-classes": "*"}, says: "spec.pod.priorityClassName", pod: `{priorityClassName: system-node-critical}`},
	{name: "priority without a class", says: "spec.pod.priority", pod: `{priority: 2000001000}`},
	{name: "runtime class", pod: `{runtimeClassName: gvisor}`},
	{name: "runtime class of others", says: "spec.pod.runtimeClassName", pod: `{runtimeClassName: kata}`},
	{name: "runtime class of one consumer", limits: map[string]string{"runtime-classes": "kata*"}, pod: `{runtimeClassName: kata-qemu}`},
	{name: "scheduler", says: "spec.pod.schedulerName", pod: `{schedulerName: batch-scheduler}`},
	{name: "default scheduler", pod: `{schedulerName: default-scheduler}`},
	{name: "scheduler that is allowed", limits: map[string]string{schedulers: "default-scheduler,batch-*"}, pod: `{schedulerName: batch-scheduler}`},
	{name: "default scheduler where it is not allowed", limits: map[string]string{schedulers: "batch-*"}, says: "spec.pod.schedulerName", pod: `{schedulerName: default-scheduler}`},

	{name: "grace period of an hour", pod: `{terminationGracePeriodSeconds: 3600}`},
	{name: "grace period of a year", says: "erminationGracePeriodSeconds", pod: `{terminationGracePeriodSeconds: 31536000}`},
	{name: "grace period of a probe", says: "erminationGracePeriodSeconds", pod: `{containers: [{name: a, image: a}, {name: b, image: b, livenessProbe: {terminationGracePeriodSeconds: 86400, tcpSocket: {port: 80}}}]}`},
	{name: "grace period of a sidecar's probe", says: "erminationGracePeriodSeconds", pod: `{initContainers: [{name: a, image: a, restartPolicy: Always, startupProbe: {terminationGracePeriodSeconds: 86400, tcpSocket: {port: 80}}}]}`},
	{name: "short grace period of a probe", pod: `{containers: [{name: a, image: a, livenessProbe: {terminationGracePeriodSeconds: 5, tcpSocket: {port: 80}}}]}`},
	{name: "grace period without a limit", limits: map[string]string{longest: "unlimited"}, pod: `{terminationGracePeriodSeconds: 31536000}`},
	{name: "grace period of one consumer", limits: map[string]string{longest: "60"}, says: "erminationGracePeriodSeconds", pod: `{terminationGracePeriodSeconds: 61}`},

	{name: "default service account", pod: `{serviceAccountName: default, serviceAccount: default, automountServiceAccountToken: true}`},
	{name: "service account", says: "spec.pod.serviceAccountName", pod: `{serviceAccountName: pipeline}`},
	{name: "service account by its old name", says: "spec.pod.serviceAccountName", pod: `{serviceAccount: pipeline}`},
	{name: "service account that is allowed", limits: map[string]string{accounts: "app-*"}, pod: `{serviceAccountName: app-reader}`},
	{name: "token on request", pod: `{volumes: [{name: token, projected: {sources: [{serviceAccountToken: {path: token}}]}}]}`},
	{name: "token although there are none", limits: map[string]string{tokens: "false"}, says: "credentials for the API server", pod: `{automountServiceAccountToken: true}`},
	{name: "token of a volume although there are none", limits: map[string]string{tokens: "false"}, says: "credentials for the API server", pod: `{volumes: [{name: token, projected: {sources: [{configMap: {name: a}}, {serviceAccountToken: {path: token}}]}}]}`},
	{name: "certificate although there are none", limits: map[string]string{tokens: "false"}, says: "credentials for the API server", pod: `{volumes: [{name: token, projected: {sources: [{podCertificate: {signerName: kubernetes.io/kube-apiserver-client-pod, keyType: ED25519, credentialBundlePath: a}}]}}]}`},
	{name: "no token where there are none", limits: map[string]string{tokens: "false"}, pod: `{automountServiceAccountToken: false, volumes: [{name: a, projected: {sources: [{configMap: {name: a}}]}}]}`},

	{name: "no namespaces of the node", pod: `{hostNetwork: false, hostPID: null, hostIPC: false}`},
	{name: "network of the node", says: "spec.pod.hostNetwork", pod: `{hostNetwork: true}`},
	{name: "network of the node where the others are allowed", limits: map[string]string{ofNode: "hostPID,hostIPC"}, says: "spec.pod.hostNetwork", pod: `{hostNetwork: true, hostPID: true}`},
	{name: "processes of the node", says: "spec.pod.hostPID", pod: `{hostPID: true}`},
	{name: "IPC of the node", says: "spec.pod.hostIPC", pod: `{hostIPC: true}`},
	{name: "processes of the node that are allowed", limits: map[string]string{ofNode: "hostPID"}, pod: `{hostPID: true, hostIPC: false}`},
	{name: "IPC of the node where only processes are allowed", limits: map[string]string{ofNode: "hostPID"}, says: "spec.pod.hostIPC", pod: `{hostPID: true, hostIPC: true}`},

	{name: "usual volumes", pod: `{volumes: [{name: a}, {name: b, emptyDir: {}}, {name: c, configMap: {name: c}}, {name: d, secret: {secretName: d}}, {name: e, persistentVolumeClaim: {claimName: e}}]}`},
	{name: "NFS", says: "spec.pod.volumes", pod: `{volumes: [{name: a, emptyDir: {}}, {name: b, nfs: {server: 10.0.0.1, path: /}}]}`},
	{name: "network storage by a driver", says: "spec.pod.volumes", pod: `{volumes: [{name: a, csi: {driver: nfs.csi.k8s.io, volumeAttributes: {server: 10.0.0.1, share: /}}}]}`},
	{name: "driver that is allowed", limits: map[string]string{volumes: "csi"}, pod: `{volumes: [{name: a, csi: {driver: secrets-store.csi.k8s.io}}]}`},
	{name: "iSCSI", says: "iscsi", pod: `{volumes: [{name: a, iscsi: {targetPortal: 10.0.0.1, iqn: a, lun: 0}}]}`},
	{name: "volume of a later version", says: "spec.pod.volumes", pod: `{volumes: [{name: a, invented: {of: tomorrow}}]}`},
	{name: "volume that is allowed", limits: map[string]string{volumes: "nfs,emptyDir"}, pod: `{volumes: [{name: a, nfs: {server: 10.0.0.1, path: /}}]}`},
	{name: "claim of a pod", limits: map[string]string{classes: "fast"}, pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {metadata: {labels: {app: a}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of the default class", says: "volumeClaimTemplate.spec.storageClassName", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of any class", says: "volumeClaimTemplate.spec.storageClassName", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of a class that is allowed", limits: map[string]string{classes: "fast"}, pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, selector: null, volumeName: null, dataSource: null, dataSourceRef: null, volumeAttributesClassName: null, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of another class", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate.spec.storageClassName", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: slow, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of no class", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate.spec.storageClassName", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod for a volume", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate.spec.volumeName", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeName: backup, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod that selects volumes", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate.spec.selector", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, selector: {}, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of a snapshot", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate.spec.dataSource", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: a}, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of a snapshot that is allowed", limits: map[string]string{classes: "fast", sources: "true"}, pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: a}, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of its own namespace", limits: map[string]string{classes: "fast", sources: "true"}, pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: $(NAMESPACE)}, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of another namespace", limits: map[string]string{classes: "fast", sources: "true"}, says: "volumeClaimTemplate.spec.dataSource", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: kube-system}, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod with attributes", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate.spec.volumeAttributesClassName", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeAttributesClassName: gold, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod with attributes that are allowed", limits: map[string]string{classes: "fast", "volume-attributes-classes": "gold"}, pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeAttributesClassName: gold, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod of 1 TiB", limits: map[string]string{classes: "fast"}, pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1024Gi}}}}}}]}`},
	{name: "claim of a pod of more", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate.spec.resources.requests[storage]", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1025Gi}}}}}}]}`},
	{name: "claim of a pod of more bytes", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate.spec.resources.requests[storage]", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1099511627777}}}}}}]}`},
	{name: "claim of a pod of any size", limits: map[string]string{classes: "fast", "max-claim-size": "unlimited"}, pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1025Gi}}}}}}]}`},
	{name: "claim of a pod that chooses its node", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {metadata: {annotations: {volume.kubernetes.io/selected-node: worker}}, spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}}}}]}`},
	{name: "claim of a pod with a label", limits: map[string]string{classes: "fast"}, says: "volumeClaimTemplate", pod: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {metadata: {labels: {velero.io/exclude-from-backup: "true"}}, spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}}}}]}`},
}

// malformed contains specs of pods in which a value does not have the type of its field.
var malformed = []string{
	`{nodeSelector: kubernetes.io/os}`, `{nodeSelector: [kubernetes.io/os]}`, `{tolerations: all}`, `{tolerations: {key: x}}`, `{tolerations: [x]}`, `{tolerations: [{key: 5}]}`,
	`{affinity: x}`, `{affinity: {nodeAffinity: x}}`, `{affinity: {nodeAffinity: [x]}}`, `{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: x}}}`, `{affinity: {podAffinity: [x]}}`,
	`{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [x]}}}`, `{terminationGracePeriodSeconds: a year}`, `{serviceAccountName: [pipeline]}`,
	`{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: [fast]}}}}]}`, `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: much}}}}}}]}`,
	`{volumes: x}`, `{volumes: [x]}`, `{priorityClassName: [system-node-critical]}`, `{runtimeClassName: {}}`,
}

func parse(t *testing.T, text, namespace string) map[string]any {
	t.Helper()
	pod := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "$(NAMESPACE)", namespace)), &pod), text)
	if pod["containers"] == nil {
		pod["containers"] = []any{map[string]any{"name": "web", "image": "web:1"}}
	}
	return integers(pod).(map[string]any)
}

// integers converts the numbers in a value that was decoded from YAML to the types that the API machinery uses.
func integers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = integers(value[key])
		}
	case []any:
		for i := range value {
			value[i] = integers(value[i])
		}
	case float64:
		return int64(value)
	}
	return value
}

func shadowOf(namespace string, pod map[string]any) *unstructured.Unstructured {
	shadow := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"pod": pod}}}
	shadow.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowPodKind))
	shadow.SetNamespace(namespace)
	shadow.SetName("web")
	shadow.SetLabels(map[string]string{wire.OriginLabel: "rome"})
	return shadow
}

// remote creates a namespace of the consumer rome with its own limits.
func (h *held) remote(name string, limits map[string]string) *corev1.Namespace {
	h.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{wire.RemoteClusterIDLabel: "rome"},
		Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/home"},
	}}
	for setting, value := range limits {
		namespace.Annotations[tenantlimits.AnnotationPrefix+setting] = value
	}
	h.must(h.admin.Create(h.Context(), namespace))
	return namespace
}

// policyOfGo returns the tenancy policy of the controllers, with the same limits as the API server of these tests.
func policyOfGo(t *testing.T) *controllers.TenancyPolicy {
	t.Helper()
	limits, err := tenantlimits.New(map[string]string{"priority-classes": "batch", "runtime-classes": "gvisor"})
	require.NoError(t, err)
	policy, err := controllers.NewTenancyPolicy(controllers.TenancyOptions{Limits: limits})
	require.NoError(t, err)
	return policy
}

// TestPoliciesAndControllersAgreeOnPods checks that the admission policies and the controllers make the same decision
// about each pod of a consumer, and name the same field.
func TestPoliciesAndControllersAgreeOnPods(t *testing.T) {
	h, policy := hold(t), policyOfGo(t)
	common := h.remote("common-rome", nil)
	for i, r := range requests {
		namespace := common
		if r.limits != nil {
			namespace = h.remote(fmt.Sprintf("limited-%d-rome", i), r.limits)
			if r.limits[ofNode] != "" {
				namespace.Labels[psapi.EnforceLevelLabel] = "privileged"
			}
		}
		pod := parse(t, r.pod, namespace.Name)
		h.attempt(r.name+" "+r.pod, r.says, func() error { return h.admin.Create(t.Context(), shadowOf(namespace.Name, pod), client.DryRunAll) })
		refusal := policy.CheckPod(namespace, nil, nil, pod)
		switch {
		case r.says == "" && refusal != nil:
			t.Errorf("%s: the controllers refuse it: %s", r.name, refusal)
		case r.says != "" && (refusal == nil || !strings.Contains(refusal.Error(), r.says)):
			t.Errorf("%s: the controllers say %v, want %q", r.name, refusal, r.says)
		}
	}
	for _, text := range malformed {
		pod := parse(t, text, common.Name)
		h.attempt(text, "denied request", func() error { return h.admin.Create(t.Context(), shadowOf(common.Name, pod), client.DryRunAll) })
		assert.NotNilf(t, policy.CheckPod(common, nil, nil, pod), "the controllers allow %s", text)
	}
}

// TestStricterLimitsKeepPods checks that after a limit has become stricter, existing ShadowPods that exceed it stay,
// and that updates to them are denied only if they change the spec.
func TestStricterLimitsKeepPods(t *testing.T) {
	h := hold(t)
	namespace := h.remote("strict-rome", map[string]string{"tolerations": "*"})
	shadow := shadowOf(namespace.Name, parse(t, `{tolerations: [{operator: Exists}]}`, namespace.Name))
	h.attempt("creating the pod", "", func() error { return h.admin.Create(t.Context(), shadow.DeepCopy()) })
	namespace.Annotations[tenantlimits.Tolerations.Annotation()] = ""
	h.must(h.admin.Update(t.Context(), namespace))
	h.attempt("creating another pod", "spec.pod.tolerations", func() error {
		another := shadow.DeepCopy()
		another.SetName("another")
		return h.admin.Create(t.Context(), another, client.DryRunAll)
	})
	stored := shadow.DeepCopy()
	h.must(h.admin.Get(t.Context(), client.ObjectKeyFromObject(shadow), stored))
	stored.SetLabels(map[string]string{wire.OriginLabel: "rome", "app": "web"})
	h.must(h.admin.Update(t.Context(), stored))
	require.NoError(t, unstructured.SetNestedField(stored.Object, "Never", "spec", "pod", "restartPolicy"))
	h.attempt("changing the spec", "spec.pod.tolerations", func() error { return h.admin.Update(t.Context(), stored.DeepCopy(), client.DryRunAll) })
}

// TestGracePeriodsOfDeletions checks that not only the grace period of a pod is limited, but also the grace period in
// a delete request, because it overrides the pod's.
func TestGracePeriodsOfDeletions(t *testing.T) {
	h := hold(t)
	for name, consumer := range map[string]client.Client{"certificate": h.as("rome-kubelet", "rome"), "token": h.as("system:serviceaccount:liqo-tenant-rome:refract-consumer")} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: name}, Spec: corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}
		h.must(h.admin.Create(t.Context(), pod))
		h.attempt("deleting a pod within a year", "gracePeriodSeconds is longer", func() error {
			return consumer.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(31536000), client.DryRunAll)
		})
		h.must(consumer.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(3600), client.DryRunAll))
		h.must(consumer.Delete(t.Context(), pod.DeepCopy(), client.DryRunAll))
		h.must(h.admin.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(31536000), client.DryRunAll))
	}
}
