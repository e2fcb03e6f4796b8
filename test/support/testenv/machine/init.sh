# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# The first process of a machine, started in new namespaces but that of cgroups: init.sh DIR NAME
set -e
dir=$1 name=$2
if [ "${3:-}" != inside ]; then
	mount --make-rprivate /
	# A group of our own in every hierarchy, before the namespace is made that takes it for the root.
	while IFS=: read -r _ controllers path; do
		case $controllers in
		"")
			base=/sys/fs/cgroup
			[ ! -d $base/unified ] || base=$base/unified
			[ -f $base/cgroup.controllers ] || continue
			;;
		name=*) base=/sys/fs/cgroup/${controllers#name=} ;;
		*) base=/sys/fs/cgroup/$controllers ;;
		esac
		above=$base${path%/} group=$base${path%/}/$(basename "$(dirname "$dir")")-$(basename "$dir")
		mkdir -p "$group"
		echo "$group" >>"$dir/cgroups"
		if [ "$controllers" = cpuset ]; then
			cat "$above/cpuset.cpus" >"$group/cpuset.cpus"
			cat "$above/cpuset.mems" >"$group/cpuset.mems"
			echo 1 >"$group/cgroup.clone_children"
		fi
		echo 0 >"$group/cgroup.procs"
	done <<<"$(cat /proc/self/cgroup)"
	exec unshare --cgroup --propagation unchanged bash "$0" "$dir" "$name" inside
fi
hostname "$name"
mount -t proc proc /proc
mount -t sysfs sysfs /sys # with the devices of this network namespace
if [ "$(wc -l </proc/self/cgroup)" -gt 1 ]; then # version 1, or both
	mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
	for controllers in $(cut -d: -f2 /proc/self/cgroup); do
		mkdir -p "/sys/fs/cgroup/${controllers#name=}"
		mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/${controllers#name=}"
	done
else
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
# A kubelet sets these for the whole computer.
for parameter in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	copy=$dir/sysctl/$parameter
	mkdir -p "$(dirname "$copy")"
	cat "/proc/sys/$parameter" >"$copy"
	mount --bind "$copy" "/proc/sys/$parameter"
done
for own in /run /var/log /var/lib/kubelet /var/lib/containerd /var/lib/cni /etc/cni; do
	mkdir -p "$dir/fs$own" "$own"
	mount --bind "$dir/fs$own" "$own"
done
mkdir -p /run/netns
mount --make-rshared / # what a container mounts is to be seen by the others that share the folder
touch "$dir/ready"
# The first process inherits the orphans, and has to wait for them.
trap 'exit 0' TERM
while :; do
	sleep 1000 &
	wait $! || true
done
