// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"strings"

	"github.com/refract-project/refract/sdk"
)

// rewriteContainers changes the environment of each container.
func (a *access) rewriteContainers(containers sdk.Node) {
	for i := range containers.Len("") {
		container := containers.At(i)
		sources := container.Get("envFrom")
		for i := range sources.Len("") {
			a.renameRootCA(sources.At(i), "configMapRef.name")
		}
		env := container.Get("env")
		present := a.rewriteEnvironment(env)
		if a.knowsAPIServer() {
			a.addVariables(container, env, present)
		}
	}
}

// rewriteEnvironment replaces references to objects that the provider's pod does not have. It returns a bit set of the
// environment variables with the API server's address that the container already has.
func (a *access) rewriteEnvironment(env sdk.Node) (present int) {
	for i := range env.Len("") {
		variable := env.At(i)
		present |= a.variable(variable.String("name"))
		source := variable.Get("valueFrom")
		if !source.Exists() {
			continue
		}
		a.renameRootCA(source, "configMapKeyRef.name")
		a.translateVariable(variable, source)
	}
	return present
}

// variable is an environment variable from which clients read the address of the API server.
type variable struct{ name, value string }

// variable returns the bit of the environment variable with the given name.
func (a *access) variable(name string) int {
	if !strings.HasPrefix(name, "KUBERNETES_") || !a.knowsAPIServer() {
		return 0
	}
	a.locate()
	for i := range a.variables {
		if name == a.variables[i].name {
			return 1 << i
		}
	}
	return 0
}

// addVariables appends the environment variables that the container does not set itself.
func (a *access) addVariables(container, env sdk.Node, present int) {
	a.locate()
	if !env.Exists() {
		env = container.SetList("env")
	}
	for i := range a.variables {
		if present&(1<<i) == 0 {
			added := env.SetMap("-")
			added.SetString("name", a.variables[i].name)
			added.SetString("value", a.variables[i].value)
		}
	}
}

// knowsAPIServer reports whether the address of the consumer's API server is known. If the network has not reported the
// address yet, pods that do not wait for a token must not get the variables. They would be wrong for the whole lifetime
// of the pod.
func (a *access) knowsAPIServer() bool { return a.reachesConsumer() && !a.api.True("pending") }

// servicePort is the port of the API server's Service in every cluster.
const servicePort = "443"

// locate computes the environment variables that the consumer's kubelets would set for the API server's Service. They
// are needed because the provider's kubelet sets the variables for the provider's API server. The names of some
// variables contain the port. If the two API servers have different ports, these variables are set for both ports.
func (a *access) locate() {
	if a.located {
		return
	}
	a.located = true
	host, port := a.address()
	bracketed := host
	if strings.IndexByte(host, ':') >= 0 {
		bracketed = sdk.Concat("[", host, "]") // an IPv6 address
	}
	url := sdk.Concat("tcp://", bracketed, ":", port)
	a.variables = append(a.variables,
		variable{"KUBERNETES_SERVICE_HOST", host},
		variable{"KUBERNETES_SERVICE_PORT", port},
		variable{"KUBERNETES_SERVICE_PORT_HTTPS", port},
		variable{"KUBERNETES_PORT", url})
	for _, named := range [...]string{port, servicePort} {
		prefix := sdk.Concat("KUBERNETES_PORT_", named, "_TCP")
		a.variables = append(a.variables,
			variable{prefix, url},
			variable{sdk.Concat(prefix, "_PROTO"), "tcp"},
			variable{sdk.Concat(prefix, "_ADDR"), host},
			variable{sdk.Concat(prefix, "_PORT"), port})
		if port == servicePort {
			break
		}
	}
}

// address returns the address of the API server. The port in the context may be a number or a string.
func (a *access) address() (host, port string) {
	if host = a.api.String("host"); host == "" {
		host = apiServerName
	}
	switch a.api.Kind("port") {
	case sdk.KindInt:
		return host, strconv.FormatInt(a.api.Int("port", 0), 10)
	case sdk.KindString:
		return host, a.api.String("port")
	}
	return host, servicePort
}
