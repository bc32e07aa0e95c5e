#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -e

# ---- now ----

# WARN fs.ext4.journal: data=ordered is in effect, but not among the mount options (rw,stripe=32)
#   on /data
umount /data && mount -o data=ordered /dev/nvme0n1p1 /data

# ---- for the next boot ----

# WARN fs.ext4.journal: data=ordered is in effect, but not among the mount options (rw,stripe=32)
#   on /data
# add data=ordered to the options of /data in /etc/fstab
