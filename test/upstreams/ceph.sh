#!/usr/bin/env bash
# Runs a Ceph cluster of one monitor, one OSD and one RADOS gateway on loopback: ceph.sh DIRECTORY MON2 MON1 RGW ACCESS SECRET
# MON2, MON1 and RGW are free ports. The script runs as the first process of a pid namespace with a /proc of its own,
# because the gateway names its threads through /proc. It prints "ready" when the user of the gateway exists.
# Then it takes one command for each line of its standard input:
#   kill-osd   kills the only OSD with SIGKILL and prints "killed"; the gateway then accepts requests and never answers
#   start-osd  starts the OSD again and prints "started" when the OSD serves its placement groups
# The cluster ends with the standard input: then the namespace ends, and with it all processes in it.
set -euo pipefail
dir=$1 mon2=$2 mon1=$3 rgw=$4 access=$5 secret=$6
mkdir -p "$dir"/{mon,osd,run}
cd "$dir"
fsid=$(cat /proc/sys/kernel/random/uuid)
osd=$(cat /proc/sys/kernel/random/uuid)
export CEPH_CONF=$dir/ceph.conf CEPH_ARGS="-c $dir/ceph.conf"
cat >ceph.conf <<CONF
[global]
fsid = $fsid
mon host = [v2:127.0.0.1:$mon2,v1:127.0.0.1:$mon1]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
keyring = $dir/keyring
run dir = $dir/run
admin socket = $dir/run/\$name.asok
pid file =
log file = $dir/\$name.log
crash dir = $dir/run
mon data = $dir/mon
mon data avail crit = 0
mon data avail warn = 0
mon allow pool size one = true
mon allow pool delete = true
mon max pg per osd = 1000
osd data = $dir/osd
osd objectstore = bluestore
osd memory target = 939524096
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd fast shutdown = true
bluestore block create = true
bluestore block size = 17179869184
bluestore block db create = false
bluestore block wal create = false
rgw frontends = beast endpoint=127.0.0.1:$rgw
rgw thread pool size = 64
rgw dns name =
rgw s3 auth use sts = false
CONF
# The gateway's client of the monitor wants a key, although nobody asks for one.
ceph-authtool --create-keyring keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' >/dev/null
ceph-authtool keyring --gen-key -n client.rgw --cap mon 'allow *' --cap osd 'allow *' >/dev/null
ceph-authtool keyring --gen-key -n mon. --cap mon 'allow *' >/dev/null

daemon() { # NAME COMMAND...: runs it in the foreground, so that it dies with the namespace
	local name=$1
	shift
	"$@" </dev/null >>"$name.out" 2>&1 &
}
await() { # SECONDS COMMAND...: repeats the command until it succeeds
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>>await.out; do
		test $SECONDS -lt $end || { echo "not within the time: $*" >&2; tail -n 20 ./*.out >&2; exit 1; }
		sleep 0.2
	done
}
listens() { (: </dev/tcp/127.0.0.1/"$1") 2>/dev/null; }

monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$mon2,v1:127.0.0.1:$mon1]" monmap >/dev/null
ceph-mon --mkfs -i a --monmap monmap --keyring keyring 2>>mon.out
daemon mon ceph-mon -i a -f
await 60 ceph --connect-timeout 5 mon stat
ceph config set global mon_warn_on_pool_no_redundancy false 2>>await.out
ceph osd new "$osd" >/dev/null 2>>await.out
ceph-osd -i 0 --mkfs --osd-uuid "$osd" >>osd.out 2>&1
daemon osd ceph-osd -i 0 -f
osd_pid=$!
osd_up() { ceph --connect-timeout 5 osd stat 2>/dev/null | grep -q '1 up'; }
await 120 osd_up
daemon rgw radosgw -n client.rgw -f
# Its own process makes the pools while the gateway starts.
await 120 radosgw-admin user create --uid tests --display-name tests --access-key "$access" --secret-key "$secret"
await 120 listens "$rgw"
echo ready
while read -r command; do
	case $command in
	kill-osd)
		kill -9 "$osd_pid"
		wait "$osd_pid" 2>/dev/null || true
		echo killed
		;;
	start-osd)
		daemon osd ceph-osd -i 0 -f
		osd_pid=$!
		await 120 osd_up
		echo started
		;;
	esac
done
