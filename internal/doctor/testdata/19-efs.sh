#!/bin/sh
# Fixes proposed by nebulaio doctor for /data/model.safetensors. Nothing was changed.
# Read every line; then remove the next one.
echo 'read this script first' >&2; exit 1
set -eu

# ==== the path: file system, mount, disks ====

# FAIL nfs.proto: proto=tcp, and Amazon EFS offers no RDMA
#   on /data
# no setting helps: put the data on local NVMe or on FSx for Lustre for the direct path

# WARN nfs.efs: rsize=262144, no noresvport: after a break the client may not come back
#   on /data
# review first: umount /data && mount -t nfs4 -o nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport fs-0123.efs.eu-west-1.amazonaws.com:/ /data
# for the next boot:
# the same options for /data in /etc/fstab

# ==== restart ====

# What is for the next boot takes effect after a restart:
# reboot

# ==== verify ====

nebulaio doctor /data/model.safetensors --gpu 0
