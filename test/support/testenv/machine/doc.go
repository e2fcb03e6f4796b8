// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine creates machines from Linux namespaces, on a separate network. A kubelet and a container runtime
// treat such a machine as a computer. The package requires Linux, root permissions, and the programs ip, sysctl, nft,
// nsenter, unshare, mount and bash.
//
// A machine has its own network, mount, PID, UTS, IPC and cgroup namespaces. It has a group below the group of this
// process in every cgroup hierarchy, so that the limits of this process also apply to the machine. /run, /var/log and
// the folders of kubelet, containerd and CNI below /var/lib and /etc belong to the machine, and private files replace
// the kernel parameters that a kubelet sets for a whole computer. The rest of the file system is shared with this
// computer.
//
// # No connection to the outside
//
// Machines are connected by a bridge in a separate network namespace. They have no default route, and this computer
// has no address in their network. A test connects to a machine with Dial, which creates a socket in the namespace of
// the machine.
//
// # Nothing is left behind
//
// The first process of a machine is tied to this process, as all processes of test clusters are. When it ends, the
// kernel ends all other processes of the machine, and then removes the namespaces, the interfaces and the mounts.
// Only the cgroups are not removed by the kernel, but by Close or by the watchdog. The limit of inotify instances of
// this computer is raised, because the default is too low for several nodes, and is not lowered again.
package machine
