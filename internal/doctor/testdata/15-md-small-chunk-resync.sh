#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== packages that conflict ====

# for nvfs.loaded
# The versions must match: remove every older package of GPUDirect Storage
# before it is installed again (Debian's names). For review, as it removes:
# dpkg-query -W -f '${Package}\n' 'gds-tools-*' 'libcufile-*' nvidia-fs nvidia-fs-dkms 'nvidia-gds*' 2>/dev/null | xargs -r apt-get purge -y

# ==== driver and fabric: before GPUDirect Storage ====

# DOCA, or MLNX_OFED 5.3 or newer with --with-nvmf --with-nfsrdma --enable-gds,
# belongs here, where local NVMe, NVMe over fabrics or NFS is to go through
# nvidia-fs: GPUDirect Storage builds against it, and comes after.

# ==== GPUDirect Storage ====

# for nvfs.loaded
command -v ofed_info >/dev/null || { echo 'install DOCA or MLNX_OFED first: see above' >&2; exit 1; }
apt-get install -y nvidia-gds

# FAIL nvfs.loaded: not loaded, and the driver of nvme has no hook for it
#   on nvidia-fs
# first DOCA, or MLNX_OFED 5.3 or newer with --with-nvmf --with-nfsrdma --enable-gds, whose drivers have the hook; then: apt-get install -y nvidia-gds && modprobe nvidia-fs
# for the next boot:
echo nvidia-fs > /etc/modules-load.d/nvidia-fs.conf

# ==== the path: file system, mount, disks ====

# WARN md.state: raid10, resync is running, 1024 / 3750748848 sectors
#   on md127
# see: mdadm --detail /dev/md127; replace what is missing, or wait for the resync (cat /proc/mdstat)

# WARN md.chunk: 64 KiB
#   on md127
# only at creation: mdadm --create -c 512 (destroys the array's data)

# WARN fs.xfs: stripe unit 512 KiB, width 1024 KiB; chunk of md127 64 KiB
#   on /data
# only at creation: mkfs.xfs -d su=CHUNK,sw=DISKS (destroys the data)

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
