// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// listenPorts are where our processes listen, all on 127.0.0.1. They stay the same when a process is started again.
type listenPorts struct {
	kubelet, kubeletMetrics, kubeletHealth           int
	consumerMetrics, consumerHealth, consumerWebhook int
	providerMetrics, providerHealth, providerWebhook int
}

// firstPort and lastPort lie below the range from which kernels take the ports of outgoing connections (32768 and up by
// default), so that a port that is free stays free but for another server's choice.
const firstPort, lastPort = 20000, 32000

func pickPorts() (listenPorts, error) {
	var p listenPorts
	taken := map[int]bool{}
	for _, port := range []*int{
		&p.kubelet, &p.kubeletMetrics, &p.kubeletHealth,
		&p.consumerMetrics, &p.consumerHealth, &p.consumerWebhook,
		&p.providerMetrics, &p.providerHealth, &p.providerWebhook,
	} {
		found, err := pickPort(taken)
		if err != nil {
			return p, err
		}
		*port, taken[found] = found, true
	}
	return p, nil
}

func pickPort(taken map[int]bool) (int, error) {
	const attempts = 200
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if taken[port] {
			continue
		}
		listener, err := net.Listen("tcp4", address(port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("looking for a free port, none of %d tried between %d and %d was", attempts, firstPort, lastPort)
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
