#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the machine ====

# WARN lim.memlock: 64.00 KiB; registered buffers take 192.00 MiB
#   on this process
# in the shell that starts the program: ulimit -l unlimited
# for the next boot:
printf '* soft memlock unlimited\n* hard memlock unlimited\n' > /etc/security/limits.d/memlock.conf; # systemd: LimitMEMLOCK=infinity, docker: --ulimit memlock=-1

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
