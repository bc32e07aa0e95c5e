#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -e

# ---- now ----

# FAIL nvfs.modules: not registered with nvidia-fs, and the loaded driver has no hook to do so
#   on nvme
# install DOCA, or MLNX_OFED 5.3 or newer with --with-nvmf --with-nfsrdma --enable-gds, before GPUDirect Storage; then reload nvme. Or build the P2PDMA route, which needs no patched driver

# GPUDirect Storage comes after the fabric's drivers (Debian's package names).
# Remove every older package of GPUDirect Storage before installing it again.
dpkg-query -W -f '${Package}\n' 'gds-tools-*' 'libcufile-*' nvidia-fs nvidia-fs-dkms 'nvidia-gds*' 2>/dev/null | xargs -r apt-get purge -y
apt-get install -y nvidia-gds

# ---- for the next boot ----

# FAIL nvfs.modules: not registered with nvidia-fs, and the loaded driver has no hook to do so
#   on nvme
update-initramfs -u
