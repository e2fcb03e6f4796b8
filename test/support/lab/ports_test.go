// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPickedPortsAreClaimed checks that a picked port is not picked again before it is released, even if no server
// listens on it.
func TestPickedPortsAreClaimed(t *testing.T) {
	ports, err := pickPorts()
	require.NoError(t, err)
	if second, err := net.ListenPacket("udp4", address(ports.kubelet)); err == nil {
		_ = second.Close()
		t.Error("another lab could pick the port of the kubelet")
	}
	ports.release()
	again, err := net.ListenPacket("udp4", address(ports.kubelet))
	require.NoError(t, err)
	_ = again.Close()
}
