// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"fmt"
	"net/http"
)

// meaningless lists the kubelet paths that make no sense for a virtual node. Each reason also contains an alternative.
var meaningless = []struct{ path, reason string }{
	{"/configz", "it has no KubeletConfiguration: the flags of its virtual kubelet, in the tenant namespace of the provider, are its settings"},
	{"/flagz", "the flags of its virtual kubelet are those of its Deployment in the tenant namespace of the provider"},
	{"/statusz", "see the conditions of the Node and of its VirtualNode, and /metrics"},
	{"/logs", "it has no log files: kubectl logs shows the logs of its pods, and those of its virtual kubelet in the tenant namespace of the provider"},
	{"/checkpoint", "its containers run on nodes of the provider, whose kubelets take no requests of this cluster: create the checkpoint there"},
	{"/run", "use exec"},
	{"/debug", "the virtual kubelet serves profiles on its own address with --enable-profiling"},
	{"/stats", "/stats/summary has the statistics of its pods"},
	{"/metrics", "/metrics, /metrics/resource, /metrics/cadvisor and /metrics/probes have its metrics"},
}

// serveRefusal responds to requests that no other handler serves, and explains why they are refused.
func (s *Server) serveRefusal(w http.ResponseWriter, r *http.Request) {
	reason := "it is not a path of the kubelet API, or the method is not"
	for _, known := range meaningless {
		if isWithin(r.URL.Path, known.path) {
			reason = known.reason
			break
		}
	}
	http.Error(w, fmt.Sprintf("%s %s is not served by virtual node %s: %s", r.Method, r.URL.Path, s.config.NodeName, reason), http.StatusNotFound)
}
