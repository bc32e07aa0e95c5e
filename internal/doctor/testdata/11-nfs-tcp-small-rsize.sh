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

# WARN nfs.opts: rsize=65536, wsize=65536
#   on /data
umount /data && mount -t nfs -o rsize=1048576,wsize=1048576,nconnect=8,hard,noatime store:/models /data

# WARN blk.readahead: 128 KiB
#   on 0:60
echo 4096 > /sys/class/bdi/0:60/read_ahead_kb

# ---- for the next boot ----

# WARN nfs.proto: proto=tcp, with an RDMA port active: mlx5_0/1
#   on /data
# the same options for /data in /etc/fstab; needs an RDMA card and server

# WARN nfs.opts: rsize=65536, wsize=65536
#   on /data
# the same options for /data in /etc/fstab

# WARN blk.readahead: 128 KiB
#   on 0:60
# add a udev rule that sets read_ahead_kb for this device
