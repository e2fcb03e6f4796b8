// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine makes machines of Linux namespaces, on a network of their own: what a kubelet and a container runtime take for a
// computer. It needs root, on Linux, with the programs ip, sysctl, nft, nsenter, unshare, mount and bash.
//
// A machine has network, mount, PID, UTS, IPC and cgroup namespaces of its own, and a group below ours in every cgroup hierarchy: limits
// that we are under stay in force. /run, /var/log and what kubelet, containerd and CNI keep below /var/lib and /etc are folders of its
// own, and the kernel parameters that a kubelet sets for a whole computer are private files. The rest of the file system
// is that of this computer.
//
// # Nothing leads out
//
// Machines are joined by a bridge in one more network namespace. They have no default route, and this computer has no address there: a
// test reaches a machine with Dial, which makes a socket in the namespace of the machine.
//
// # Nothing is left behind
//
// The first process of a machine is held as all processes of test clusters are. With it the kernel ends all others of the machine, and
// with the last of them go the namespaces, the interfaces and the mounts. Only cgroups are objects that last: they are removed
// by Close, or by the watchdog.
package machine
