#!/usr/bin/env bash
# The first process of a world of its own, in fresh mount, network, process, IPC, UTS and control-group namespaces: makes
# of this machine a place where even an attack that succeeds does no harm, then runs the command that it is given in it.
#
# Everything of the machine becomes read-only; what a server keeps secret and what anybody can write is replaced by
# throw-away directories with canaries, devices by stand-ins, and the only network is a loopback interface that also
# carries the address of cloud metadata services.
#
# WORLD_UID   who runs the command
# WORLD_KEEP  files and directories, one a line, that stay reachable although what holds them is replaced
# WORLD_OCI   a configuration of an OCI runtime, to run the command in a container in this world
# WORLD_CGROUPS  control groups, one a line, that bound the world's processes and memory
set -euo pipefail
umask 022

while IFS= read -r group; do
  [[ -z $group ]] || echo 0 >"$group/cgroup.procs"
done <<<"$WORLD_CGROUPS"
unset WORLD_CGROUPS

# Bounds of last resort, far above those of the sandbox.
ulimit -c 1 -f $((2 * 1024 * 1024)) -v $((12 * 1024 * 1024))

mount --make-rprivate /
# Read-only, every mount that can be reached; one that another hides cannot.
while read -r _ _ _ _ mount _; do
  printf -v mount %b "$mount"
  [[ ! -e $mount ]] || mount -o remount,bind,ro "$mount"
done < <(cat /proc/self/mountinfo)
mount -t proc -o nosuid,nodev,noexec proc /proc
ip link set lo up
ip address add 169.254.169.254/32 dev lo
# As container runtimes do: any user may offer the metadata service's port.
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start

# What of the replaced directories is needed is held below /mnt meanwhile.
mount -t tmpfs -o mode=0700,size=1m world /mnt
keep=()
while IFS= read -r path; do
  [[ $path =~ ^/(tmp|root|home|var/tmp|run|mnt|srv|media)/ ]] && keep+=("$path")
done <<<"$WORLD_KEEP"
unset WORLD_KEEP
for number in "${!keep[@]}"; do
  if [[ -d ${keep[number]} ]]; then mkdir "/mnt/$number"; else : >"/mnt/$number"; fi
  mount --rbind "${keep[number]}" "/mnt/$number"
done

throw_away() {
  [[ -d $1 ]] || return 0
  mount -t tmpfs -o "mode=$2,size=$3" world "$1"
}
throw_away /tmp 1777 64m
throw_away /var/tmp 1777 16m
throw_away /home 0755 16m
throw_away /root 0755 16m
throw_away /run 1777 1g
throw_away /srv 0755 1m
throw_away /media 0755 1m
for number in "${!keep[@]}"; do
  path=${keep[number]}
  if [[ -d /mnt/$number ]]; then mkdir -p "$path"; else mkdir -p "${path%/*}" && : >"$path"; fi
  mount --rbind "/mnt/$number" "$path"
done
for number in "${!keep[@]}"; do umount --recursive "/mnt/$number"; done

# Devices: those that programs need, and stand-ins (all of them the null device) for those that must not be reached.
mount -t tmpfs -o mode=0755,size=1m world /dev
node() { mknod -m 0666 "/dev/$1" c "$2" "$3"; }
node null 1 3
node zero 1 5
node full 1 7
node random 1 8
node urandom 1 9
for name in kmsg mem port kvm fuse vda sda tty0 net_tun; do node "$name" 1 3; done
ln -s /proc/self/fd /dev/fd
mkdir /dev/shm
mount -t tmpfs -o mode=1777,size=64m world /dev/shm

# Canaries, for everybody to read and write: what keeps an attack from them must be the sandbox.
umask 000
canary() {
  mkdir -p "${1%/*}"
  printf 'CANARY %s\n' "$1" >"$1"
}
canary /root/.ssh/id_ed25519
canary /home/user/.ssh/id_ed25519
canary /var/tmp/canary
canary /tmp/canary
canary /dev/shm/canary
canary /run/canary
canary /run/shadow
# Also because a container runtime does not know how to look at the control groups of every machine.
throw_away /sys/fs/cgroup 0777 1m
canary /sys/fs/cgroup/cgroup.procs
if [[ -e /etc/shadow ]]; then
  mount --bind /run/shadow /etc/shadow
fi
umask 022
# The server's own directory.
mkdir -m 0755 /run/server
chown "$WORLD_UID:$WORLD_UID" /run/server

cd /
if [[ -n $WORLD_OCI ]]; then
  mkdir -m 0700 /run/oci
  mkdir -p /run/oci/bundle/rootfs
  mount --rbind / /run/oci/bundle/rootfs
  printf '%s' "$WORLD_OCI" >/run/oci/bundle/config.json
  unset WORLD_OCI
  status=0
  crun --root /run/oci/state --cgroup-manager=disabled run --bundle /run/oci/bundle world || status=$?
  exit "$status"
fi
unset WORLD_OCI
if ((WORLD_UID)); then
  set -- setpriv --reuid "$WORLD_UID" --regid "$WORLD_UID" --clear-groups --inh-caps=-all -- "$@"
fi
# Not executed in place of this process: as the first one it reaps what others leave behind.
status=0
"$@" || status=$?
exit "$status"
