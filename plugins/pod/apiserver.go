// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// mode is how the pod talks to an API server.
type mode int

const (
	// disabled: to none.
	disabled mode = iota
	// legacy: to the consumer's, with the token of a reflected Secret.
	legacy
	// tokenAPI: to the consumer's, with tokens that the virtual kubelet requests.
	tokenAPI
	// remote: to the provider's, with a service account there.
	remote
)

// access is what the steps of connect share.
type access struct {
	mode           mode
	podName        string
	serviceAccount string // the consumer's
	rootCA         string // name of the consumer's root CA config map on the provider
	tokenSecret    string // for the mode legacy
	storageClass   string // the virtual nodes'
	api            sdk.Node
	variables      [len(variableNames)]sdk.Node // as first set
}

// connect changes the service account, and what the pod's containers find of it.
func connect(ctx sdk.Context, pod sdk.Object) error {
	a := newAccess(ctx, pod)
	a.setServiceAccount(pod)
	if err := a.rewriteVolumes(pod.Get("spec.volumes")); err != nil {
		return err
	}
	if a.mode == remote {
		return nil
	}
	a.rewriteContainers(pod.Get("spec.initContainers"))
	a.rewriteContainers(pod.Get("spec.containers"))
	if a.reachesConsumer() {
		a.addHostAliases(pod)
	}
	return nil
}

func newAccess(ctx sdk.Context, pod sdk.Object) access {
	a := access{
		mode:           modeOf(ctx, pod),
		podName:        pod.Name(),
		serviceAccount: pod.String("spec.serviceAccountName"),
		rootCA:         rootCAName(ctx.LocalClusterID()),
		storageClass:   ctx.Config().String("virtualStorageClass"),
	}
	if a.serviceAccount == "" {
		a.serviceAccount = "default"
	}
	if a.storageClass == "" {
		a.storageClass = "liqo"
	}
	if a.mode == legacy {
		a.tokenSecret = ctx.ServiceAccountSecretName()
	}
	if a.reachesConsumer() {
		a.api = ctx.APIServer()
	}
	return a
}

func (a *access) reachesConsumer() bool { return a.mode == legacy || a.mode == tokenAPI }

// modeOf returns the mode of the pod's annotation, else that of the virtual
// kubelet.
func modeOf(ctx sdk.Context, pod sdk.Object) mode {
	annotation := pod.Annotations().Get(wire.APIServerSupportAnnotation)
	switch annotation {
	case "":
	case wire.APIServerSupportRemote:
		return remote
	case wire.APIServerSupportDisabled:
		return disabled
	default:
		ctx.Warn("annotation ", wire.APIServerSupportAnnotation, ": ", annotation, " is none of remote, disabled")
	}
	switch ctx.APIServerSupport() {
	case "Legacy":
		return legacy
	case "TokenAPI":
		return tokenAPI
	case "Remote":
		return remote
	}
	return disabled
}

// setServiceAccount: the consumer's means nothing to the provider, which must
// not mount a token of its own in the place of the consumer's.
func (a *access) setServiceAccount(pod sdk.Object) {
	if a.mode != remote {
		pod.Remove("spec.serviceAccountName\nspec.serviceAccount")
		pod.SetBool("spec.automountServiceAccountToken", false)
		return
	}
	pod.Remove("spec.serviceAccount") // the deprecated alias
	if name := pod.Annotations().Get(wire.RemoteServiceAccountNameAnnotation); name != "" {
		pod.SetString("spec.serviceAccountName", name)
	}
	if !pod.Has("spec.automountServiceAccountToken") {
		pod.SetBool("spec.automountServiceAccountToken", true)
	}
}

// rootCAName is the name on the provider of the consumer's root CA config map.
func rootCAName(cluster string) string {
	const significant = 5
	if len(cluster) > significant {
		cluster = cluster[:significant]
	}
	name := wire.RootCAConfigMap + "." + cluster
	if last := name[len(name)-1]; last == '.' || last == '-' {
		name += "a" // a name ends with a letter or a digit
	}
	return name
}

const apiServerName = "kubernetes.default"

// addHostAliases lets the pod resolve the consumer's API server by the name
// that its certificate has. Without addresses the name is one that the DNS
// knows.
func (a *access) addHostAliases(pod sdk.Object) {
	ips := a.api.Get("ips")
	if !ips.Exists() {
		return
	}
	aliases := pod.Get("spec.hostAliases")
	for i := range ips.Len("") {
		ip := ips.At(i).String("")
		if hasAlias(aliases, ip) {
			continue
		}
		if !aliases.Exists() {
			aliases = pod.SetList("spec.hostAliases")
		}
		alias := aliases.SetMap("-")
		alias.SetString("ip", ip)
		names := alias.SetList("hostnames")
		names.SetString("-", apiServerName)
		names.SetString("-", apiServerName+".svc")
	}
}

func hasAlias(aliases sdk.Node, ip string) bool {
	for i := range aliases.Len("") {
		if alias := aliases.At(i); alias.Is("ip", ip) && alias.Is("hostnames.0", apiServerName) {
			return true
		}
	}
	return false
}
