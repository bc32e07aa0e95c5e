#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.bin. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the path: file system, mount, disks ====

# FAIL blk.peer: a virtio disk is not a PCI peer: its data passes through the host's memory
#   on vda
# give the machine an NVMe disk of its own (PCI passthrough or local NVMe) and put the data there; until then the staged route is the fastest

# ==== the machine ====

# WARN lim.nofile: 20000
#   on this process
# in the shell that starts the program: ulimit -n 65536
# for the next boot:
printf '* soft nofile 65536\n* hard nofile 1048576\n' > /etc/security/limits.d/nofile.conf

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.bin --gpu 0
