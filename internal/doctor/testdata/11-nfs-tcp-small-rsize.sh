#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== packages that conflict ====

# for nvfs.version
# The versions must match: remove every older package of GPUDirect Storage
# before it is installed again (Debian's names). For review, as it removes:
# dpkg-query -W -f '${Package}\n' 'gds-tools-*' 'libcufile-*' nvidia-fs nvidia-fs-dkms 'nvidia-gds*' 2>/dev/null | xargs -r apt-get purge -y

# ==== driver and fabric: before GPUDirect Storage ====

# DOCA, or MLNX_OFED 5.3 or newer with --with-nvmf --with-nfsrdma --enable-gds,
# belongs here, where local NVMe, NVMe over fabrics or NFS is to go through
# nvidia-fs: GPUDirect Storage builds against it, and comes after.

# ==== GPUDirect Storage ====

# for nvfs.version
apt-get install -y nvidia-gds

# WARN nvfs.version: 2.26.6 on kernel 6.8.0-45-generic: before 2.28.4 buffers of 4 GiB and more fail over RDMA
#   on nvidia-fs
apt-get install -y nvidia-fs-dkms # then, with nothing using it: modprobe -r nvidia-fs && modprobe nvidia-fs

# ==== the path: file system, mount, disks ====

# FAIL nfs.proto: proto=tcp, with an RDMA port active: mlx5_0/1
#   on /data
# review first: umount /data && mount -t nfs -o vers=4.2,proto=rdma,port=20049,nconnect=8,rsize=1048576,wsize=1048576,hard,noatime store:/models /data
# for the next boot:
# the same options for /data in /etc/fstab; needs an RDMA card and server

# WARN nfs.opts: rsize=65536, wsize=65536, nconnect=1 on 100 Gbit/s (eth0)
#   on /data
# the mount that nfs.proto asks for covers this; to stay on TCP: umount /data && mount -t nfs4 -o rsize=1048576,wsize=1048576,nconnect=8,hard,noatime store:/models /data
# for the next boot:
# the same options for /data in /etc/fstab

# WARN nfs.stats: 500 of 100000 reads were sent again; a read waited 0.0 ms for a slot, 0.0 ms for its answer
#   on /data
# look for drops on the way: ethtool -S, switch counters

# WARN blk.readahead: 128 KiB
#   on 0:60
echo 4096 > /sys/class/bdi/0:60/read_ahead_kb
# for the next boot:
# add a udev rule that sets read_ahead_kb for this device

# WARN sunrpc: 2
#   on tcp_max_slot_table_entries
sysctl -w sunrpc.tcp_max_slot_table_entries=128 # for mounts made from now on
# for the next boot:
echo options sunrpc tcp_max_slot_table_entries=128 >> /etc/modprobe.d/sunrpc.conf

# ==== the machine ====

# WARN net.tcp: 212992 bytes at 100000 Mbit/s
#   on net.core.rmem_max
sysctl -w net.core.rmem_max='67108864'
# for the next boot:
echo 'net.core.rmem_max = 67108864' >> /etc/sysctl.d/90-nebulaio-net.conf

# WARN net.tcp: 212992 bytes at 100000 Mbit/s
#   on net.core.wmem_max
sysctl -w net.core.wmem_max='67108864'
# for the next boot:
echo 'net.core.wmem_max = 67108864' >> /etc/sysctl.d/90-nebulaio-net.conf

# WARN net.tcp: 6291456 bytes at 100000 Mbit/s
#   on net.ipv4.tcp_rmem
sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864'
# for the next boot:
echo 'net.ipv4.tcp_rmem = 4096 131072 67108864' >> /etc/sysctl.d/90-nebulaio-net.conf

# WARN net.mtu: mtu 1500 at 100000 Mbit/s
#   on eth0
# ip link set dev eth0 mtu 9000, after the switch and the server

# WARN net.irq: CPU 0 took 90 % of the interrupts since boot
#   on eth0
# spread them: systemctl start irqbalance, or set_irq_affinity.sh eth0
# for the next boot:
systemctl enable irqbalance

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
