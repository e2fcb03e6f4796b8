// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// mode is the API server that the pod uses, and how the pod authenticates to it.
type mode int

const (
	// disabled is no API server.
	disabled mode = iota
	// legacy is the consumer's, with the token of a reflected Secret.
	legacy
	// tokenAPI is the consumer's, with tokens that the virtual kubelet requests.
	tokenAPI
	// remote is the provider's, with a service account there.
	remote
)

// access has the state that the steps of connect share.
// Values that few pods need are read when they are needed.
type access struct {
	offloading
	mode           mode
	serviceAccount string     // name on the consumer
	storageClass   string     // class of the virtual nodes
	rootCA         string     // see renameRootCA; "" until it is needed
	api            sdk.Node   // the API server
	variables      []variable // API server variables for clients, once located
	located        bool
	downwardRead   bool // whether the annotation below was read
	downwardRemote bool // the pod's annotation requests the provider's names
}

// connect changes the service account, and the references to it in the pod's containers and volumes.
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

// mode returns the mode in the pod's annotation, or the default of the virtual kubelet.
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

// setServiceAccount removes the consumer's service account, unless the mode is remote:
// the provider does not have it, and must not mount a token of its own instead.
func (a *access) setServiceAccount() {
	if a.mode != remote {
		a.spec.Remove("serviceAccountName\nserviceAccount")
		a.spec.SetBool("automountServiceAccountToken", false)
		return
	}
	a.spec.Remove("serviceAccount") // the deprecated alias
	if name := a.annotation("[" + wire.RemoteServiceAccountNameAnnotation + "]"); name != "" {
		a.spec.SetString("serviceAccountName", name)
	}
	if !a.spec.Has("automountServiceAccountToken") {
		a.spec.SetBool("automountServiceAccountToken", true)
	}
}

// renameRootCA changes a reference to the root CA
// config map to the copy of the consumer's config map.
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
	clusterDomain = "cluster.local" // the default of Kubernetes
)

// apiServerNames are the host names of the API server in a pod of its cluster.
// The certificate has them all. The issuer of a token is the last one, in the
// DNS domain of the consumer, unless the API server is configured otherwise.
var apiServerNames = [...]string{apiServerName, apiServerName + ".svc", "kubernetes", apiServerName + ".svc." + clusterDomain}

// addHostAliases makes the names in the certificate of the
// consumer's API server resolve to its addresses. If there are
// no addresses, for example because the configuration has a host
// name, the provider's DNS resolves them to its own API server.
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
