// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// mode determines which API server the pod uses, and how the pod authenticates.
type mode int

const (
	// disabled means that the pod does not use an API server.
	disabled mode = iota
	// legacy means that the pod uses the consumer's API server, with the token in a reflected Secret.
	legacy
	// tokenAPI means that the pod uses the consumer's API server, with tokens that the virtual kubelet requests.
	tokenAPI
	// remote means that the pod uses the provider's API server, with a service account of the provider.
	remote
)

// access is the state that the steps of connect share. Values that only few pods need are computed when they are first
// needed.
type access struct {
	offloading
	mode           mode
	serviceAccount string     // name of the consumer's service account
	storageClass   string     // storage class of virtual nodes
	rootCA         string     // name of the copy of the ConfigMap, or "" until it is needed (see renameRootCA)
	api            sdk.Node   // description of the API server in the context
	variables      []variable // environment variables with the address of the API server (see locate)
	located        bool
	downwardRead   bool // whether the annotation for downwardRemote has been read
	downwardRemote bool // whether the pod's annotation requests the provider's names
}

// connect changes the service account, and all references to the service account and the API server in the pod's
// containers and volumes.
func (o *offloading) connect() error {
	a := access{
		offloading:     *o,
		mode:           o.mode(),
		serviceAccount: o.spec.String("serviceAccountName"),
		storageClass:   o.ctx.Config().String("virtualStorageClass"),
	}
	if a.serviceAccount == "" {
		a.serviceAccount = "default"
	}
	if a.storageClass == "" {
		a.storageClass = "liqo"
	}
	if a.reachesConsumer() {
		a.api = o.ctx.APIServer()
	}
	a.setServiceAccount()
	if err := a.rewriteVolumes(); err != nil || a.mode == remote {
		return err
	}
	a.rewriteContainers(o.spec.Get("initContainers"))
	a.rewriteContainers(o.spec.Get("containers"))
	a.rewriteContainers(o.spec.Get("ephemeralContainers"))
	a.addHostAliases()
	return nil
}

func (a *access) reachesConsumer() bool { return a.mode == legacy || a.mode == tokenAPI }

// mode returns the mode in the pod's annotation, or the virtual kubelet's default mode.
func (o *offloading) mode() mode {
	annotation := o.annotation("[" + wire.APIServerSupportAnnotation + "]")
	switch annotation {
	case "":
	case wire.APIServerSupportRemote:
		return remote
	case wire.APIServerSupportDisabled:
		return disabled
	default:
		o.ctx.Warn("annotation ", wire.APIServerSupportAnnotation, ": ", annotation, " is none of remote, disabled")
	}
	switch o.ctx.APIServerSupport() {
	case "Legacy":
		return legacy
	case "TokenAPI":
		return tokenAPI
	case "Remote":
		return remote
	}
	return disabled
}

// setServiceAccount removes the consumer's service account, because it does not exist on the provider, and disables the
// mounting of a token of the provider. In the mode remote, it sets the provider's service account.
func (a *access) setServiceAccount() {
	if a.mode != remote {
		a.spec.Remove("serviceAccountName\nserviceAccount")
		a.spec.SetBool("automountServiceAccountToken", false)
		return
	}
	a.spec.Remove("serviceAccount") // serviceAccount is the deprecated alias of serviceAccountName
	if name := a.annotation("[" + wire.RemoteServiceAccountNameAnnotation + "]"); name != "" {
		a.spec.SetString("serviceAccountName", name)
	}
	if !a.spec.Has("automountServiceAccountToken") {
		a.spec.SetBool("automountServiceAccountToken", true)
	}
}

// renameRootCA changes a reference to the ConfigMap with the root CA to a reference to the copy of the consumer's
// ConfigMap.
func (a *access) renameRootCA(n sdk.Node, path string) {
	if !n.Is(path, wire.RootCAConfigMap) {
		return
	}
	if a.rootCA == "" {
		a.rootCA = wire.RemoteRootCAConfigMap(a.ctx.LocalClusterID())
	}
	n.SetString(path, a.rootCA)
}

const (
	apiServerName = "kubernetes.default"
	clusterDomain = "cluster.local" // the default in Kubernetes
)

// apiServerNames are the host names of the API server in the pods of its cluster, all of which are in its certificate.
// The last one is the issuer of tokens. It contains the DNS domain of the consumer, unless the API server is configured
// differently.
var apiServerNames = [...]string{apiServerName, apiServerName + ".svc", "kubernetes", apiServerName + ".svc." + clusterDomain}

// addHostAliases makes the names in the certificate of the consumer's API server resolve to its addresses. If the
// addresses are unknown, for example because a host name is configured, it does not add a host alias. The provider's
// DNS then resolves the names to the provider's API server.
func (a *access) addHostAliases() {
	ips := a.api.Get("ips")
	for i := range ips.Len("") {
		a.addHostAlias(ips.At(i).String(""))
	}
}

func (a *access) addHostAlias(ip string) {
	aliases := a.spec.Get("hostAliases")
	if hasAlias(aliases, ip) {
		return
	}
	if !aliases.Exists() {
		aliases = a.spec.SetList("hostAliases")
	}
	alias := aliases.SetMap("-")
	alias.SetString("ip", ip)
	names := alias.SetList("hostnames")
	for _, name := range apiServerNames {
		names.SetString("-", name)
	}
	if domain := a.api.String("domain"); domain != "" && domain != clusterDomain {
		names.SetString("-", sdk.Concat(apiServerName, ".svc.", domain))
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
