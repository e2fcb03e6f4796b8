// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A picked port is not picked again, although no server listens on it yet. After its release it can be picked again.
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
