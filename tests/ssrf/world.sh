#!/usr/bin/env bash
# The first process of a world of its own, in fresh mount, network, process, IPC and UTS namespaces: a network in which
# every address there is leads back to this very world, so that a connection that should not have been made is seen and
# reaches nobody. Then runs the command that it is given in it.
set -euo pipefail

ulimit -c 1 -v $((12 * 1024 * 1024))

mount --make-rprivate /
# Read-only, every mount that can be reached; one that another hides cannot.
while read -r _ _ _ _ mount _; do
  printf -v mount %b "$mount"
  [[ ! -e $mount ]] || mount -o remount,bind,ro "$mount"
done < <(cat /proc/self/mountinfo)
mount -t proc -o nosuid,nodev,noexec proc /proc

ip link set lo up
ip route add local 0.0.0.0/0 dev lo
ip -6 route add local ::/0 dev lo

# Hides the sockets of the machine's services, a cache of names among them.
mount -t tmpfs -o mode=0755,size=1m world /run
mkdir /run/home /run/etc
printf 'machine public.site.com login CANARY password CANARY\n' >/run/home/.netrc
printf 'nameserver 127.0.0.1\nsearch corp.site.com\noptions timeout:1 attempts:1\n' >/run/etc/resolv.conf
printf '127.0.0.1 localhost\n::1 localhost\n' >/run/etc/hosts
printf 'hosts: files dns\n' >/run/etc/nsswitch.conf
for file in resolv.conf hosts nsswitch.conf; do
  [[ ! -e /etc/$file ]] || mount --bind "/run/etc/$file" "$(realpath "/etc/$file")"
done

cd /
# Not executed in place of this process: as the first one it reaps what others leave behind.
status=0
"$@" || status=$?
exit "$status"
