// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// listenPorts contains the ports of Refract's processes on 127.0.0.1. A process has the same ports after a restart.
type listenPorts struct {
	kubelet, kubeletMetrics, kubeletHealth           int
	standby, standbyMetrics, standbyHealth           int
	consumerMetrics, consumerHealth, consumerWebhook int
	secondMetrics, secondHealth, secondWebhook       int
	providerMetrics, providerHealth, providerWebhook int

	claims []io.Closer
}

// release releases the ports.
func (p *listenPorts) release() {
	for _, claim := range p.claims {
		_ = claim.Close()
	}
}

// firstPort and lastPort are the range that ports are picked from. It is lower than the range that kernels use for
// outgoing connections (32768 and higher by default), so that only another server can take a free port.
const firstPort, lastPort = 20000, 32000

func pickPorts() (listenPorts, error) {
	var p listenPorts
	for _, port := range []*int{
		&p.kubelet, &p.kubeletMetrics, &p.kubeletHealth,
		&p.standby, &p.standbyMetrics, &p.standbyHealth,
		&p.consumerMetrics, &p.consumerHealth, &p.consumerWebhook,
		&p.secondMetrics, &p.secondHealth, &p.secondWebhook,
		&p.providerMetrics, &p.providerHealth, &p.providerWebhook,
	} {
		found, claim, err := pickPort()
		if err != nil {
			p.release()
			return listenPorts{}, err
		}
		*port, p.claims = found, append(p.claims, claim)
	}
	return p, nil
}

// pickPort returns a free TCP port. Labs in other processes may pick ports at the same time. Therefore it also binds
// the UDP port with the same number. This marks the TCP port as taken while no server listens on it. The servers of a
// Lab do not use UDP.
func pickPort() (int, io.Closer, error) {
	const attempts = 200
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
		claim, err := net.ListenPacket("udp4", address(port))
		if err != nil {
			continue
		}
		if listener, err := net.Listen("tcp4", address(port)); err == nil {
			return port, claim, listener.Close()
		}
		_ = claim.Close()
	}
	return 0, nil, fmt.Errorf("looking for a free port, none of %d tried between %d and %d was", attempts, firstPort, lastPort)
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
