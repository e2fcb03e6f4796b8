// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Kubelet options that have other names in the API of the API server.
const (
	kubeletStdin  = "input"
	kubeletStdout = "output"
	kubeletStderr = "error"
	kubeletTTY    = "tty"
	kubeletPort   = "port"
)

// logQuery keeps all options, including options of newer Kubernetes versions, because kubelets and API servers use the
// same names. The only exception is "tail", which is a deprecated name of tailLines.
func logQuery(container string, query url.Values) (url.Values, error) {
	if tail := query.Get("tail"); tail != "" && tail != "all" {
		query.Set("tailLines", tail)
	}
	query.Del("tail")
	query.Del("insecureSkipTLSVerifyBackend")
	query.Set("container", container)
	return query, nil
}

// execQuery returns the result of streamQuery together with the command to run.
func execQuery(container string, query url.Values) (url.Values, error) {
	if len(query["command"]) == 0 {
		return nil, fmt.Errorf("no command given: the parameter \"command\" is missing")
	}
	translated, err := streamQuery(container, query)
	if err != nil {
		return nil, err
	}
	translated["command"] = query["command"]
	return translated, nil
}

// streamQuery translates the options that request the streams stdin, stdout, stderr and tty.
func streamQuery(container string, query url.Values) (url.Values, error) {
	translated := url.Values{"container": {container}}
	for from, to := range map[string]string{
		kubeletStdin: "stdin", kubeletStdout: "stdout", kubeletStderr: "stderr", kubeletTTY: "tty",
	} {
		set, err := parseFlag(query, from)
		if err != nil {
			return nil, err
		}
		// The value is always set explicitly, because the API server's default for stdout and stderr is true.
		translated.Set(to, strconv.FormatBool(set))
	}
	return translated, nil
}

// parseFlag parses a boolean parameter. The default is false.
func parseFlag(query url.Values, name string) (bool, error) {
	value := query.Get(name)
	if value == "" {
		return false, nil
	}
	parsed, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("parameter %q is %q: use 1 or 0", name, value)
	}
	return parsed, nil
}

// portForwardQuery returns the ports that WebSocket clients of the older protocol specify in the query. Other clients
// specify the ports for each stream.
func portForwardQuery(_ string, query url.Values) (url.Values, error) {
	translated := url.Values{}
	for _, list := range query[kubeletPort] {
		for port := range strings.SplitSeq(list, ",") {
			if _, err := strconv.ParseUint(port, 10, 16); err != nil {
				return nil, fmt.Errorf("parameter %q is %q: use numbers from 1 to 65535", kubeletPort, list)
			}
			translated.Add("ports", port)
		}
	}
	return translated, nil
}
