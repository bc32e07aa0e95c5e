#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the path: file system, mount, disks ====

# FAIL fs.ext4.journal: data=ordered is in effect, but not among the mount options (rw,stripe=32)
#   on /data
# review first: umount /data && mount -o data=ordered /dev/nvme0n1p1 /data
# for the next boot:
# add data=ordered to the options of /data in /etc/fstab

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
