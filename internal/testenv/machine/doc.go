// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine creates machines from Linux namespaces, on a network of their own. A kubelet and a container
// runtime treat such a machine as a computer. The package requires root, on Linux, with the programs ip, sysctl, nft,
// nsenter, unshare, mount and bash.
//
// A machine has network, mount, PID, UTS, IPC and cgroup namespaces of its own, and a group below ours in every
// cgroup hierarchy, so that our own limits stay in force. /run, /var/log and the folders of kubelet, containerd and
// CNI below /var/lib and /etc belong to the machine, and the kernel parameters that a kubelet sets for a whole
// computer are private files. The rest of the file system is shared with this computer.
//
// # No connection to the outside
//
// Machines are joined by a bridge in one more network namespace. They have no default route, and this computer has no
// address there. A test connects to a machine with Dial, which creates a socket in the namespace of the machine.
//
// # Nothing is left behind
//
// The first process of a machine is tied to this process like all processes of test clusters. When it ends, the
// kernel ends all other processes of the machine, and then removes the namespaces, the interfaces and the mounts.
// Only cgroups persist: they are removed by Close, or by the watchdog.
package machine
