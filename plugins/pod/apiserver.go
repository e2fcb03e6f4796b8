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

// access is what the steps of connect share. What few pods need is read when
// it is needed.
type access struct {
	offloading
	mode           mode
	serviceAccount string     // the consumer's
	storageClass   string     // the virtual nodes'
	rootCA         string     // see rootCAName; "" until it is needed
	api            sdk.Node   // the API server
	variables      []variable // by which clients find it, once located
	located        bool
	downwardRead   bool // whether the annotation below was read
	downwardRemote bool // the pod's annotation asks for the provider's names
}

// connect changes the service account, and what the pod's containers find of it.
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

// mode returns the mode in the pod's annotation, or of the virtual kubelet.
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

// setServiceAccount: the consumer's means nothing to the provider, which must
// not mount a token of its own in the place of the consumer's.
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

// renameRootCA makes a reference to the root CA config map name the copy of
// the consumer's.
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
// domain of the consumer's DNS, unless the API server has another.
var apiServerNames = [...]string{apiServerName, apiServerName + ".svc", "kubernetes", apiServerName + ".svc." + clusterDomain}

// addHostAliases lets the pod resolve the consumer's API server by the names
// that its certificate has. Without addresses, as with a name that was set by
// value, they are left to the provider's DNS, which knows its own API server by
// them.
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
