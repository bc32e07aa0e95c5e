#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== packages that conflict ====

# for nvfs.modules
# The versions must match: remove every older package of GPUDirect Storage
# before it is installed again (Debian's names). For review, as it removes:
# dpkg-query -W -f '${Package}\n' 'gds-tools-*' 'libcufile-*' nvidia-fs nvidia-fs-dkms 'nvidia-gds*' 2>/dev/null | xargs -r apt-get purge -y

# ==== driver and fabric: before GPUDirect Storage ====

# DOCA, or MLNX_OFED 5.3 or newer with --with-nvmf --with-nfsrdma --enable-gds,
# belongs here, where local NVMe, NVMe over fabrics or NFS is to go through
# nvidia-fs: GPUDirect Storage builds against it, and comes after.

# FAIL nvfs.modules: not registered with nvidia-fs, and the loaded driver has no hook to do so
#   on nvme
# install DOCA, or MLNX_OFED 5.3 or newer with --with-nvmf --with-nfsrdma --enable-gds, before GPUDirect Storage; then reload nvme. Or build the P2PDMA route, which needs no patched driver
# for the next boot:
update-initramfs -u

# ==== GPUDirect Storage ====

# for nvfs.modules
command -v ofed_info >/dev/null || { echo 'install DOCA or MLNX_OFED first: see above' >&2; exit 1; }
apt-get install -y nvidia-gds

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
