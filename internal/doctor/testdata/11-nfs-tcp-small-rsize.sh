#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -e

# ---- now ----

# GPUDirect Storage comes after the fabric's drivers (Debian's package names).
# Remove every older package of GPUDirect Storage before installing it again.
dpkg-query -W -f '${Package}\n' 'gds-tools-*' 'libcufile-*' nvidia-fs nvidia-fs-dkms 'nvidia-gds*' 2>/dev/null | xargs -r apt-get purge -y
apt-get install -y nvidia-gds

# WARN nvfs.version: 2.26.6 on kernel 6.8.0-45-generic: before 2.28.4 buffers of 4 GiB and more fail over RDMA
#   on nvidia-fs
apt-get install -y nvidia-fs-dkms && modprobe -r nvidia-fs && modprobe nvidia-fs

# WARN nfs.proto: proto=tcp, with an RDMA port active: mlx5_0/1
#   on /data
umount /data && mount -t nfs -o vers=3,proto=rdma,port=20049,nconnect=8,rsize=1048576,wsize=1048576,hard,noatime store:/models /data

# WARN nfs.opts: rsize=65536, wsize=65536, nconnect=1 on 100 Gbit/s (eth0)
#   on /data
umount /data && mount -t nfs -o rsize=1048576,wsize=1048576,nconnect=8,hard,noatime store:/models /data

# WARN nfs.stats: 500 of 100000 reads were sent again
#   on /data
# look for drops on the way: ethtool -S, switch counters

# WARN blk.readahead: 128 KiB
#   on 0:60
echo 4096 > /sys/class/bdi/0:60/read_ahead_kb

# WARN net.tcp: 212992 bytes at 100000 Mbit/s
#   on net.core.rmem_max
sysctl -w net.core.rmem_max=67108864

# WARN net.tcp: 212992 bytes at 100000 Mbit/s
#   on net.core.wmem_max
sysctl -w net.core.wmem_max=67108864

# WARN net.mtu: mtu 1500 at 100000 Mbit/s
#   on eth0
# ip link set dev eth0 mtu 9000, after the switch and the server

# WARN sunrpc: 2
#   on tcp_max_slot_table_entries
sysctl -w sunrpc.tcp_max_slot_table_entries=128

# WARN net.irq: CPU 0 took 90 % of the interrupts since boot
#   on eth0
# spread them: systemctl start irqbalance, or set_irq_affinity.sh eth0

# ---- for the next boot ----

# WARN nfs.proto: proto=tcp, with an RDMA port active: mlx5_0/1
#   on /data
# the same options for /data in /etc/fstab; needs an RDMA card and server

# WARN nfs.opts: rsize=65536, wsize=65536, nconnect=1 on 100 Gbit/s (eth0)
#   on /data
# the same options for /data in /etc/fstab

# WARN blk.readahead: 128 KiB
#   on 0:60
# add a udev rule that sets read_ahead_kb for this device

# WARN net.tcp: 212992 bytes at 100000 Mbit/s
#   on net.core.rmem_max
echo net.core.rmem_max=67108864 >> /etc/sysctl.d/90-nebulaio-net.conf

# WARN net.tcp: 212992 bytes at 100000 Mbit/s
#   on net.core.wmem_max
echo net.core.wmem_max=67108864 >> /etc/sysctl.d/90-nebulaio-net.conf

# WARN sunrpc: 2
#   on tcp_max_slot_table_entries
echo 'options sunrpc tcp_max_slot_table_entries=128' > /etc/modprobe.d/sunrpc.conf

# WARN net.irq: CPU 0 took 90 % of the interrupts since boot
#   on eth0
systemctl enable irqbalance
