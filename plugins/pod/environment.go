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
		if a.reachesConsumer() {
			a.addVariables(container, env, present)
		}
	}
}

// rewriteEnvironment replaces references to what the provider's pod does not
// have, and returns which of the variables it met, as a set of bits.
func (a *access) rewriteEnvironment(env sdk.Node) (present int) {
	for i := range env.Len("") {
		variable := env.At(i)
		present |= a.variable(variable.String("name"))
		source := variable.Get("valueFrom")
		if !source.Exists() {
			continue
		}
		a.renameRootCA(source, "configMapKeyRef.name")
		if source.Is("fieldRef.fieldPath", "spec.serviceAccountName") {
			variable.Remove("valueFrom")
			variable.SetString("value", a.serviceAccount)
		}
	}
	return present
}

// variableNames are the variables by which clients find the API server. A # is
// the port.
var variableNames = [...]string{
	"KUBERNETES_SERVICE_HOST",
	"KUBERNETES_SERVICE_PORT",
	"KUBERNETES_PORT",
	"KUBERNETES_PORT_#_TCP",
	"KUBERNETES_PORT_#_TCP_PROTO",
	"KUBERNETES_PORT_#_TCP_ADDR",
	"KUBERNETES_PORT_#_TCP_PORT",
}

// variable returns the bit of the variable that has this name.
func (a *access) variable(name string) int {
	if !a.reachesConsumer() || !strings.HasPrefix(name, "KUBERNETES_") {
		return 0
	}
	for i, template := range variableNames {
		if name == strings.Replace(template, "#", a.port(), 1) {
			return 1 << i
		}
	}
	return 0
}

// addVariables appends the variables that the container does not set itself.
func (a *access) addVariables(container, env sdk.Node, present int) {
	if !env.Exists() {
		env = container.SetList("env")
	}
	for i, template := range variableNames {
		switch {
		case present&(1<<i) != 0:
		case a.variables[i].Exists():
			env.Copy("-", a.variables[i])
		default:
			a.variables[i] = env.SetMap("-")
			a.variables[i].SetString("name", strings.Replace(template, "#", a.port(), 1))
			a.variables[i].SetString("value", a.variableValue(i))
		}
	}
}

func (a *access) variableValue(i int) string {
	switch i {
	case 0, 5:
		return a.host()
	case 1, 6:
		return a.port()
	case 4:
		return "tcp"
	}
	host := a.host()
	if strings.IndexByte(host, ':') >= 0 {
		host = "[" + host + "]" // IPv6
	}
	return "tcp://" + host + ":" + a.port()
}

func (a *access) host() string {
	if host := a.api.String("host"); host != "" {
		return host
	}
	return apiServerName
}

// port of the API server; the context may have it as a number or as a string.
func (a *access) port() string {
	switch a.api.Kind("port") {
	case sdk.KindInt:
		return strconv.FormatInt(a.api.Int("port", 0), 10)
	case sdk.KindString:
		return a.api.String("port")
	}
	return "443"
}
