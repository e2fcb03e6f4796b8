{{- /*
Copyright The Refract Authors
SPDX-License-Identifier: Apache-2.0
*/ -}}
{{/*
refract.labelsWith: (dict "root" $ "own" a map "extra" a map of the user): the labels of an object of the chart. Each key is written once: the
chart's own labels take precedence over the extra labels, and these over the global labels.
*/}}
{{- define "refract.labelsWith" -}}
{{- $chart := dict "app.kubernetes.io/name" "refract" "app.kubernetes.io/instance" .root.Release.Name "app.kubernetes.io/managed-by" (toString .root.Release.Service) "app.kubernetes.io/version" .root.Chart.AppVersion "helm.sh/chart" (printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_")) -}}
{{ merge dict (.own | default dict) $chart (.extra | default dict) (.root.Values.common.globalLabels | default dict) | toYaml }}
{{- end -}}

{{/* refract.labels: of every object of the chart. */}}
{{- define "refract.labels" -}}
{{ include "refract.labelsWith" (dict "root" .) }}
{{- end -}}

{{/* refract.annotationsWith: (dict "root" $ "own" a map): the field annotations of an object of the chart, with the global ones; empty without any. */}}
{{- define "refract.annotationsWith" -}}
{{- with merge dict (.own | default dict) (.root.Values.common.globalAnnotations | default dict) -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* refract.metadata: labels and annotations of every object of the chart. */}}
{{- define "refract.metadata" -}}
{{ include "refract.monitoring" (dict "root" .) }}
{{- end -}}

{{/* refract.monitoring: refract.metadata with further labels; (dict "root" $ "labels" a map). */}}
{{- define "refract.monitoring" -}}
labels:
  {{- include "refract.labelsWith" (dict "root" .root "extra" .labels) | nindent 2 }}
{{- with include "refract.annotationsWith" (dict "root" .root) }}
{{ . }}
{{- end }}
{{- end -}}

{{/*
refract.kubeletMetadata: refract.metadata of the objects that a virtual kubelet needs until its node is drained; (dict "root" $ "kubelet" an
entry of virtualKubelets). Helm keeps these objects when the entry is removed. The controller manager deletes them with the VirtualNode.
*/}}
{{- define "refract.kubeletMetadata" -}}
labels:
  {{- include "refract.labelsWith" (dict "root" .root "own" (dict "liqo.io/virtual-node" .kubelet.name)) | nindent 2 }}
{{ include "refract.annotationsWith" (dict "root" .root "own" (ternary (dict "helm.sh/resource-policy" "keep") dict .root.Values.controllerManager.enabled)) }}
{{- end -}}

{{/* refract.defaultTemplate: the name of the VkOptionsTemplate of virtual nodes without settings of their own. */}}
{{- define "refract.defaultTemplate" -}}
{{ .Release.Name }}-virtual-kubelet-default
{{- end -}}

{{/* refract.rolePrefix: the prefix of the chart's roles. If Liqo is installed, the prefix "liqo" belongs to Liqo's release. */}}
{{- define "refract.rolePrefix" -}}
{{ if and .Values.adoptLiqo (eq .Values.rolePrefix "liqo") }}refract{{ else }}{{ .Values.rolePrefix }}{{ end }}
{{- end -}}

{{/* refract.distinctPorts: fails if a process would listen on one port twice. The argument is a list of pairs of the name of a value and its port. */}}
{{- define "refract.distinctPorts" -}}
{{- $used := dict "8081" "the health probes" -}}
{{- range . -}}
{{- $name := first . -}}
{{- $port := last . | toString -}}
{{- with get $used $port }}{{ fail (printf "%s is %s, the port of %s in the same process: choose another one." $name $port .) }}{{ end -}}
{{- $_ := set $used $port $name -}}
{{- end -}}
{{- end -}}

{{/* refract.authentication: not empty if consumers that peer with Liqo's protocol are admitted. */}}
{{- define "refract.authentication" -}}
{{- if and .Values.authentication.enabled .Values.adoptLiqo }}{{ fail "authentication.enabled: beside Liqo (adoptLiqo) its own authentication module admits consumers. Leave one of them false." }}{{ end -}}
{{- if and .Values.authentication.enabled (not .Values.tenants.maxResources) (not .Values.tenants.unlimitedResources) }}{{ fail "tenants.maxResources is empty: with authentication.enabled each consumer would be granted whatever it requests. Set it, such as {cpu: \"16\", memory: 64Gi}, or set tenants.unlimitedResources to allow that." }}{{ end -}}
{{- if .Values.authentication.enabled }}true{{ end -}}
{{- end -}}

{{/* refract.joinsProviders: not empty if this cluster joins providers by Liqo's protocol. */}}
{{- define "refract.joinsProviders" -}}
{{- if and .Values.authentication.joinProviders .Values.adoptLiqo }}{{ fail "authentication.joinProviders: beside Liqo (adoptLiqo) its own authentication module joins providers. Leave one of them false." }}{{ end -}}
{{- if and .Values.authentication.joinProviders (not .Values.offloading.enabled) }}{{ fail "authentication.joinProviders needs offloading.enabled: a cluster without virtual kubelets has no use for providers" }}{{ end -}}
{{- if and .Values.authentication.joinProviders (not .Values.tenants.admissionPolicies) }}{{ fail "authentication.joinProviders needs tenants.admissionPolicies: without them, the controller manager could read the Secrets of every namespace" }}{{ end -}}
{{- if and .Values.authentication.joinProviders .Values.authentication.peeringUsers }}{{ fail "authentication.peeringUsers: with authentication.joinProviders, such a user of a cluster that is peered in both directions would read the key with which this cluster accesses all of its providers. Leave one of them false." }}{{ end -}}
{{- if and .Values.controllerManager.enabled .Values.authentication.joinProviders }}true{{ end -}}
{{- end -}}

{{/* refract.tenantAccess: not empty if consumers joined with refractctl have Tenants. With adoptLiqo, Liqo's controllers would take the Tenants for their own. */}}
{{- define "refract.tenantAccess" -}}
{{- if and .Values.tenants.objects (not .Values.adoptLiqo) }}true{{ end -}}
{{- end -}}

{{/* refract.pairs: a map as key=value, separated by commas, sorted. */}}
{{- define "refract.pairs" -}}
{{- $pairs := list }}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $key (toString $value)) }}{{ end -}}
{{- join "," $pairs }}
{{- end -}}

{{/* refract.classes: names, one of which may be the default, as Liqo writes them in flags. */}}
{{- define "refract.classes" -}}
{{- $classes := list }}
{{- range . }}{{ $classes = append $classes (ternary (printf "%s;default" .name) .name (default false .default)) }}{{ end -}}
{{- join "," $classes }}
{{- end -}}

{{/* refract.ownTemplate: not empty when an entry of virtualKubelets has individual settings. */}}
{{- define "refract.ownTemplate" -}}
{{- if or .extraArgs .cidrs }}true{{ end -}}
{{- end -}}

{{/* refract.image: (dict "root" $ "image" .Values.x.image "of" "x"); if "needed" is empty, an image without a name is not an error. The digest of an image is part of its name, or is its version. */}}
{{- define "refract.image" -}}
{{- $name := .image.name -}}
{{- if and (hasKey . "needed") (not .needed) (not $name) }}{{ $name = "virtual-kubelet" }}{{ end -}}
{{- $name = $name | required (printf "%s.image.name is required: no images are published, go run ./build/images makes yours" .of) -}}
{{- $version := .image.version | toString -}}
{{- if contains "@" $name }}
{{- if .image.version }}{{ fail (printf "%s.image: the name %s has a digest, which determines the version: remove image.version" .of $name) }}{{ end -}}
{{ $name }}
{{- else if hasPrefix "sha256:" $version -}}
{{ $name }}@{{ $version }}
{{- else -}}
{{ $name }}:{{ .image.version | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* refract.rules: the generated rules of a role; (dict "root" $ "role" NAME), with "kubelet" for the names that only an entry of virtualKubelets knows. */}}
{{- define "refract.rules" -}}
{{- $rules := .root.Files.Get (printf "files/rbac/%s.yaml" .role) | required (printf "files/rbac/%s.yaml is missing: run make generate" .role) -}}
{{- $rules = $rules | replace "$(REMOTE_ROLE)" (printf "%s-virtual-kubelet-remote" (include "refract.rolePrefix" .root)) -}}
{{- $rules = $rules | replace "$(TENANT_ROLE)" (printf "%s-remote-tenant" (include "refract.rolePrefix" .root)) -}}
{{- $rules = $rules | replace "$(CONTROL_PLANE_ROLE)" (printf "%s-remote-controlplane" (include "refract.rolePrefix" .root)) -}}
{{- $rules = $rules | replace "$(RENEWAL_ROLE)" (printf "%s-remote-renewal" (include "refract.rolePrefix" .root)) -}}
{{- $rules = $rules | replace "$(EXTENDED_ROLE)" (printf "%s-virtual-kubelet-extended" (include "refract.rolePrefix" .root)) -}}
{{- $rules = $rules | replace "$(LOCAL_ROLE)" (printf "%s-virtual-kubelet-local" (include "refract.rolePrefix" .root)) -}}
{{- $rules = $rules | replace "$(CREDENTIALS_ROLE)" (printf "%s-controller-manager-credentials" (include "refract.rolePrefix" .root)) -}}
{{- $rules = $rules | replace "$(GATEWAY_ROLE)" (printf "%s-gateway" (include "refract.rolePrefix" .root)) -}}
{{- $rules = $rules | replace "$(GATEWAY_NODES_ROLE)" (printf "%s-gateway-nodes" (include "refract.rolePrefix" .root)) -}}
{{- with .kubelet }}
{{- $rules = $rules | replace "$(NODE_NAME)" (quote .name) | replace "$(KUBECONFIG_SECRET)" (quote .kubeconfigSecretName) -}}
{{- end -}}
{{ $rules }}
{{- end -}}

{{/*
refract.kubeletAccounts: "true" if the controller manager creates the ServiceAccounts of virtual kubelets. Admission policies limit the permissions that it
has for this.
*/}}
{{- define "refract.kubeletAccounts" -}}
{{- if and .Values.offloading.enabled .Values.controllerManager.enabled (or .Values.offloading.createServiceAccounts (include "refract.joinsProviders" .)) -}}
{{- if not .Values.tenants.admissionPolicies }}{{ fail "offloading.createServiceAccounts needs tenants.admissionPolicies: without them, the controller manager could give these permissions to anybody" }}{{ end -}}
true
{{- end -}}
{{- end -}}

{{/* refract.rotatesKeys: empty if the keys of gateways stay. Without the admission policies, the controller manager could delete any Secret. */}}
{{- define "refract.rotatesKeys" -}}
{{- if and .Values.networking.gateways.enabled .Values.tenants.admissionPolicies (regexMatch "[1-9]" .Values.networking.gateways.keyRotationInterval) }}true{{ end -}}
{{- end -}}

{{/* refract.isKubeletRole is a CEL expression for admission policies: whether a RoleBinding refers to a Role of one virtual kubelet. */}}
{{- define "refract.isKubeletRole" -}}
{{- $prefix := printf "%s-virtual-kubelet" (include "refract.rolePrefix" .) -}}
object.roleRef.kind == 'Role' && ['{{ $prefix }}-tenant-', '{{ $prefix }}-lease-', '{{ $prefix }}-authentication-'].exists(p, object.roleRef.name.startsWith(p))
{{- end -}}

{{/* refract.shadowPodsScale: empty if the CRD of ShadowPods in the cluster has no scale subresource, such as Liqo's. Kubernetes then cannot count the pods of a PodDisruptionBudget, and allows no eviction. */}}
{{- define "refract.shadowPodsScale" -}}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "shadowpods.offloading.liqo.io" -}}
{{- if not $crd }}true{{ end -}}
{{- range dig "spec" "versions" list ($crd | default dict) }}{{ if dig "subresources" "scale" false . }}true{{ end }}{{ end -}}
{{- end -}}

{{/* refract.requestsTokens: empty if every virtual kubelet has the argument --enable-apiserver-support=false or --apiserver-support-mode=Legacy, and does not repeat the flag with another value. If the values list no virtual kubelets, this is about those that refractctl peer creates. */}}
{{- define "refract.requestsTokens" -}}
{{- range .Values.virtualKubelets | default (list dict) -}}
{{- $arguments := concat $.Values.virtualKubelet.extra.args (.extraArgs | default list) | join "\n" -}}
{{- $said := regexFindAll "(?m)^--enable-apiserver-support(=.*)?$" $arguments -1 | uniq | join " " -}}
{{- $mode := regexFindAll "(?m)^--apiserver-support-mode(=.*)?$" $arguments -1 | uniq | join " " -}}
{{- if not (or (eq $said "--enable-apiserver-support=false") (eq $mode "--apiserver-support-mode=Legacy")) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* refract.tenantNamespace: of an entry of virtualKubelets. */}}
{{- define "refract.tenantNamespace" -}}
{{ .namespace | default (printf "liqo-tenant-%s" .clusterID) }}
{{- end -}}

{{/* refract.scheduling: where the pods of the chart run. */}}
{{- define "refract.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: "{{ . }}"
{{- end }}
{{- with .imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* refract.podSecurity (of a map of values) and refract.containerSecurity satisfy the restricted Pod Security Standard. */}}
{{- define "refract.podSecurity" -}}
{{- range $field, $value := . }}
{{- if ne (toString $value) "<nil>" }}
{{ $field }}: {{ toJson $value }}
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}
{{- define "refract.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* refract.gatewaySecurity: of the containers that configure the network. */}}
{{- define "refract.gatewaySecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: [NET_ADMIN]
{{- end -}}

{{/* refract.clusterID: of this cluster. */}}
{{- define "refract.clusterID" -}}
{{ .Values.discovery.config.clusterID | required "discovery.config.clusterID is required: a name for this cluster that its peers do not bear" }}
{{- end -}}

{{/*
refract.tenantLimits: the values below tenants that are limits of consumers. The Go package tenantlimits has the same
limits, and the same names of flags and annotations: the name of the value in kebab case.
*/}}
{{- define "refract.tenantLimits" -}}
schedulerNames maxNamespaces namespaceNames reservedNamespaces endpointCidrs fqdnEndpoints egressPolicy egressCidrs widerEgress nodeSelectors tolerations crossNamespaceAffinity priorityClasses runtimeClasses maxTerminationGracePeriodSeconds serviceAccounts serviceAccountTokens volumeTypes hostNamespaces deniedLabels allowedLabels deniedAnnotations allowedAnnotations storageClasses maxClaimSize volumeAttributesClasses claimDataSources externalNames chosenNodePorts chosenAddresses loadBalancerClasses ingressClasses ingressHosts
{{- end }}

{{/* refract.limit: a limit in the form of a flag or annotation. */}}
{{- define "refract.limit" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* refract.tenantLimit: the limit for all consumers. Classes that this cluster offers are allowed. Arguments: root, value. */}}
{{- define "refract.tenantLimit" -}}
{{- $limit := get .root.Values.tenants .value -}}
{{- $reflection := .root.Values.offloading.reflection -}}
{{- $offered := list -}}
{{- if eq .value "loadBalancerClasses" }}{{ $offered = $reflection.service.loadBalancerClasses }}{{ end -}}
{{- if eq .value "ingressClasses" }}{{ $offered = $reflection.ingress.ingressClasses }}{{ end -}}
{{- range $offered }}{{ $limit = append $limit .name }}{{ end -}}
{{- with .root.Values.storage }}{{ if and (eq $.value "storageClasses") .enabled .realStorageClassName }}{{ $limit = append $limit .realStorageClassName }}{{ end }}{{ end -}}
{{- if kindIs "slice" $limit }}{{ $limit = uniq $limit }}{{ end -}}
{{- include "refract.limit" $limit -}}
{{- end }}

{{/* refract.isRemoteNamespace: CEL, whether the namespace of the request was created for a consumer. */}}
{{- define "refract.isRemoteNamespace" -}}
has(namespaceObject.metadata.labels) && 'liqo.io/remote-cluster-id' in namespaceObject.metadata.labels && has(namespaceObject.metadata.annotations) && 'liqo.io/managed-by-namespace-map' in namespaceObject.metadata.annotations
{{- end }}

{{/* refract.isConsumer: CEL, whether a consumer makes the request, in one of its namespaces: with a certificate of its group, or a token of its ServiceAccount. */}}
{{- define "refract.isConsumer" -}}
{{ include "refract.isRemoteNamespace" . }} && (has(request.userInfo.groups) && namespaceObject.metadata.labels['liqo.io/remote-cluster-id'] in request.userInfo.groups || request.userInfo.username == 'system:serviceaccount:' + namespaceObject.metadata.annotations['liqo.io/managed-by-namespace-map'].split('/')[0] + ':refract-consumer')
{{- end }}

{{/* refract.isTenant: CEL, whether a consumer makes the request, in its tenant namespace. */}}
{{- define "refract.isTenant" -}}
has(namespaceObject.metadata.labels) && 'liqo.io/tenant-namespace' in namespaceObject.metadata.labels && 'liqo.io/remote-cluster-id' in namespaceObject.metadata.labels && (has(request.userInfo.groups) && namespaceObject.metadata.labels['liqo.io/remote-cluster-id'] in request.userInfo.groups || request.userInfo.username == namespaceObject.metadata.labels['liqo.io/remote-cluster-id'] || request.userInfo.username == 'system:serviceaccount:' + namespaceObject.metadata.name + ':refract-consumer')
{{- end }}

{{/* refract.allowedBy: the remedy in the message of a policy. */}}
{{- define "refract.allowedBy" -}}
An administrator of this cluster can change that in the values of the Refract chart (tenants.{{ . }}), or for one consumer with refractctl peer --tenant-limit={{ kebabcase . }}=….
{{- end }}

{{/* refract.allowedToAll: the remedy in the message of a policy whose value applies to all consumers alike. */}}
{{- define "refract.allowedToAll" -}}
An administrator of this cluster can change that for all consumers in the values of the Refract chart (tenants.{{ . }}).
{{- end }}

{{/* refract.limitOf: CEL, the limit of the consumer that the namespace belongs to, as a string. Arguments: root, value. */}}
{{- define "refract.limitOf" -}}
{{- $key := printf "'tenants.refract.io/%s'" (kebabcase .value) -}}
(has(namespaceObject.metadata.annotations) && {{ $key }} in namespaceObject.metadata.annotations ? namespaceObject.metadata.annotations[{{ $key }}] : '{{ include "refract.tenantLimit" . }}')
{{- end }}

{{/* refract.limitPattern: CEL, a regular expression that the globs in the limit match. An empty limit matches nothing. Arguments: root, value. */}}
{{- define "refract.limitPattern" -}}
[{{ include "refract.limitOf" . }}].map(globs, '(?s)^(' + (globs == '' ? 'x^' : globs.replace('.', '[.]').replace('*', '.*').replace(',', '|')) + ')$')[0]
{{- end }}

{{/* refract.limitMatches: CEL, whether one of the globs in the limit matches the text. Arguments: root, value, text. */}}
{{- define "refract.limitMatches" -}}
{{ .text }}.matches({{ include "refract.limitPattern" . }})
{{- end }}

{{/* refract.deniedKeys: CEL variables, regular expressions of the keys of labels and annotations that objects of the consumer must not have. */}}
{{- define "refract.deniedKeys" -}}
{{- range $value := list "deniedLabels" "allowedLabels" "deniedAnnotations" "allowedAnnotations" }}
- name: "{{ $value }}"
  expression: {{ include "refract.limitPattern" (dict "root" $ "value" $value) | quote }}
{{- end }}
{{- end }}

{{/*
refract.memoryLimit: the environment of a container with these resources: its memory limit. Close to this limit, the garbage collector works harder.
*/}}
{{- define "refract.memoryLimit" -}}
{{- if dig "limits" "memory" "" (default dict .) }}
- name: REFRACT_MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      resource: limits.memory
{{- end }}
{{- end }}

{{- /*
refract.isVirtualKubelet is a CEL expression for admission policies: whether a request is one of a virtual kubelet, which is a ServiceAccount that the role
virtual-kubelet-local marks with a permission of its own, in whichever namespace it is; one that is allowed anything, and thus also "administer", is an
administrator. Those of Liqo have Liqo's roles, and are recognised by their namespace.
*/}}
{{- define "refract.isVirtualKubelet" -}}
{{- $user := "request.userInfo.username" }}
{{- $marked := "authorizer.group('plugins.refract.io').resource('virtualkubelets')" }}
{{- $liqo := printf "%s.startsWith('system:serviceaccount:liqo-tenant-') && !%s.endsWith(':refract-consumer') && !%s.endsWith(':refract-gateway')" $user $user $user }}
{{- printf "%s.startsWith('system:serviceaccount:') && (%s || %s.check('run').allowed() && !%s.check('administer').allowed())" $user $liqo $marked $marked }}
{{- end }}

{{- /* refract.nodeOfVirtualKubelet is a CEL expression for the node of a virtual kubelet: its ServiceAccount has the name of the node. */}}
{{- define "refract.nodeOfVirtualKubelet" -}}
request.userInfo.username.split(':')[3]
{{- end }}
