#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs ceph/s3-tests against a server of ours, by hand:
#
#   test/s3-tests/run.sh CHECKOUT [pytest arguments]
#
# CHECKOUT is a clone of https://github.com/ceph/s3-tests (commit 8f0ae7b gave the figures of docs/s3-compatibility.md).
# The server is bin/nebulaio (NEBULAIO_CLI names another) on a fresh directory and a free port, with the accounts
# that the suite asks for. To test a server that runs already: S3_ENDPOINT=http://HOST:PORT, and two accounts that
# may make buckets, MAIN=ACCESS:SECRET and ALT=ACCESS:SECRET. WORKERS is how many tests run at once (4).
# FORM chooses the tests. FORM=short (the default) leaves out tests by the suite's own marks: lifecycle, encryption, websites,
# logging, notifications, signatures of version 2, IAM and STS, append, cloud tiers, select. FORM=full runs every test of
# test_s3 and test_headers that runs against a server without Ceph's own services.
# The server gives new buckets the ownership ObjectWriter, as Ceph does, because the suite expects that ACLs have effect.
# The result, with a table of failures by cause, is printed as Markdown; build/s3-tests keeps it and the JUnit file.
set -euo pipefail

checkout=${1:?usage: test/s3-tests/run.sh CHECKOUT [pytest arguments]}
checkout=$(cd "$checkout" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/build/s3-tests
server=${NEBULAIO_CLI:-$root/bin/nebulaio}
python=$work/venv/bin/python

test -f "$checkout/s3tests/functional/test_s3.py" || { echo "$checkout has no s3tests/functional/test_s3.py: give a clone of ceph/s3-tests" >&2; exit 1; }
mkdir -p "$work"
if ! cmp -s "$here/requirements.txt" "$work/venv/requirements.txt"; then
    python3 -m venv "$work/venv"
    "$python" -m pip install -q -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$work/venv/"
fi

pid=
data=
stop() {
    if [ -n "$pid" ]; then kill "$pid" && wait "$pid" || echo "the server ended with $?" >&2; fi
    if [ -n "$data" ]; then rm -rf "$data"; fi
}
trap stop EXIT

main=${MAIN:-s3testsmain:s3tests-main-secret}
alt=${ALT:-s3testsalt:s3tests-alt-secret}
endpoint=${S3_ENDPOINT:-}
if [ -z "$endpoint" ]; then
    data=$(mktemp -d "$work/data.XXXXXX")
    "$server" encryption new-key "$data/master.key" >/dev/null
    # The suite waits five seconds for an access log.
    NEBULAIO_TEST_LIFECYCLE_DAY=5s NEBULAIO_EVENTS_LOG_INTERVAL=4s NEBULAIO_ENCRYPTION_KEY_FILE="$data/master.key" \
        NEBULAIO_ROOT_USER=s3testsroot NEBULAIO_ROOT_PASSWORD=s3tests-root-secret \
        "$server" server --json --data "$data/store" --object-ownership ObjectWriter --address 127.0.0.1:0 \
        --console-address 127.0.0.1:0 >"$work/server.json" 2>"$work/server.log" &
    pid=$!
    for _ in $(seq 600); do
        test -s "$work/server.json" && break
        kill -0 "$pid" 2>/dev/null || { cat "$work/server.log" >&2; exit 1; }
        sleep 0.1
    done
    endpoint=$("$python" -c 'import json, sys; print(json.load(sys.stdin)["endpoint"])' <"$work/server.json")
    for key in testkey-1 testkey-2; do "$server" encryption create "$key" --data "$data/store"; done
    # userplus may create its own buckets, but is no administrator, to whom ACLs would not apply.
    for account in "$main" "$alt" "s3teststenant:s3tests-tenant-secret"; do
        printf %s "${account#*:}" | "$server" user add "${account%%:*}" --role userplus --secret - --data "$data/store"
    done
fi

address=${endpoint#*//}
cat >"$work/s3tests.conf" <<CONF
[DEFAULT]
host = ${address%:*}
port = ${address##*:}
is_secure = False
ssl_verify = False

[fixtures]
bucket prefix = s3t-{random}-
iam name prefix = s3-tests-
iam path prefix = /s3-tests/

[s3 main]
display_name = ${main%%:*}
user_id = ${main%%:*}
email = main@example.com
api_name = us-east-1
lc_debug_interval = 5
access_key = ${main%%:*}
secret_key = ${main#*:}

[s3 alt]
display_name = ${alt%%:*}
user_id = ${alt%%:*}
email = alt@example.com
access_key = ${alt%%:*}
secret_key = ${alt#*:}

[s3 tenant]
display_name = s3teststenant
user_id = s3teststenant
email = tenant@example.com
access_key = s3teststenant
secret_key = s3tests-tenant-secret
tenant = testx

[iam]
display_name = none
user_id = none
email = none@example.com
access_key = none
secret_key = none

[iam root]
user_id = none
email = none@example.com
access_key = none
secret_key = none

[iam alt root]
user_id = none
email = none@example.com
access_key = none
secret_key = none
CONF

out="lifecycle or lifecycle_expiration or lifecycle_transition or encryption or bucket_encryption or sse_s3 or s3website or s3website_routing_rules
 or s3website_redirect_location or bucket_logging or bucket_logging_cleanup or sns or auth_aws2 or iam_account or iam_cross_account or iam_role or iam_tenant
 or iam_user or user_policy or role_policy or group_policy or session_policy or group or test_of_sts or webidentity_test or abac_test or appendobject
 or cloud_transition or cloud_restore or target_by_bucket or s3select or storage_class"
if [ "${FORM:-short}" = full ]; then
    # These features belong to Ceph, to IAM's own service, or are not served here.
    out="s3website or s3website_routing_rules or s3website_redirect_location or sns or iam_account or iam_cross_account or iam_role or iam_tenant
 or iam_user or user_policy or role_policy or group_policy or session_policy or group or test_of_sts or webidentity_test or abac_test or appendobject
 or cloud_transition or cloud_restore or target_by_bucket or s3select or storage_class"
fi
cd "$checkout"
rc=0
env -u AWS_PROFILE -u AWS_CA_BUNDLE PYTHONPATH="$here:$checkout" S3TEST_CONF="$work/s3tests.conf" "$python" -m pytest -q -p no:cacheprovider -p fresh_prefix -n "${WORKERS:-4}" --timeout 120 \
    -m "not ($(echo $out))" --junitxml "$work/junit.xml" s3tests/functional/test_s3.py s3tests/functional/test_headers.py "$@" >"$work/pytest.log" 2>&1 || rc=$?
# Exit code 1 means that tests failed, which is a result. Any other code means that there is no result.
if [ "$rc" -gt 1 ]; then tail -30 "$work/pytest.log" >&2; exit "$rc"; fi
"$python" "$here/summary.py" "$work/junit.xml" | tee "$work/summary.md"
