# SPDX-License-Identifier: Apache-2.0
"""Turns the JUnit file of a run of ceph/s3-tests into counts and a table of failures by cause, as Markdown."""

import re
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict

# The first entry that matches a failure's test name or message names its cause. A
# failure without a match is listed by its exception, so that causes are not mixed.
CAUSES = [
    ("ACLs are off by default (BucketOwnerEnforced), as on AWS since 2023; the test sets one, or needs one", r"AccessControlListNotSupported|InvalidBucketAclWithObjectOwnership|PutBucketAcl operation|name=test_(create_bucket_no_ownership_controls|bucket_acl_canned_authenticatedread|bucket_concurrent_set_canned_acl|object_copy_canned_acl|object_raw_get_bucket_acl|bucket_recreate_new_acl)\n"),
    ("forms with a signature of version 2, which is refused", r"name=test_post_object.*\n.*assert 400 =="),
    ("other requests with a signature of version 2", r"name=test_cors_presigned_\w+_v2\n"),
    ("versitygw's policies: other buckets, actions that do not fit the resource and principals without an account are refused, NotPrincipal is not", r"Policy has invalid resource|Action does not apply|Invalid principal in policy|name=test_bucket_policy_allow_notprincipal\n"),
    ("versitygw's policies: 403 for a missing key also to who may list it", r"name=test_head_object_404_with_policy_prefix\n"),
    ("tenants, which only Ceph has", r"name=test_\w*tenant"),
    ("usage, object counts, unordered listings and torrents, which only Ceph has",
     r"(?i)x-rgw|name=test_(account_usage|\w*unordered|get_object_torrent)\n"),
    ("`If-None-Match` of a write takes `*` alone (501), as S3 describes it",
     r"501|NotImplemented\) when calling the (PutObject|CompleteMultipartUpload)"),
    ("creating one's own bucket again is 409, in us-east-1 too", r"BucketAlreadyOwnedByYou"),
    ("a part number beyond the last is 416 InvalidPartNumber", r"name=test_\w*get_part\n"),
    ("a checksum header that cannot be one is InvalidRequest, not BadDigest", r"'InvalidRequest' == 'BadDigest'"),
    ("the status of a policy that does not exist is NoSuchBucketPolicy", r"NoSuchBucketPolicy"),
    ("a part of an object with a checksum of the whole (FULL_OBJECT) is sent without one",
     r"name=test_multipart_use_cksum_helper"),
    ("the test changes headers before botocore signs and sends, so that the request is a good one",
     r"name=test_\w+_create_bad_(authorization|contentlength)_(none|empty)\n"),
    ("the owner is expected to be shut out by a policy that allows others something; here, as in S3, only a denial does that", r"name=test_bucket_policy_set_condition_operator_end_with_IfExists\n"),
    ("a date of HTTP's form in `x-amz-date` is refused",
     r"name=test_object_create_(date_and_amz_date|amz_date_and_no_date)\n"),
    ("a default retention that is not positive is InvalidArgument, not InvalidRetentionPeriod",
     r"InvalidRetentionPeriod"),
    ("listings encode a space as `+`, which clients decode as they do `%20`", r"quux\+ab"),
]


def cause_of(name: str, message: str) -> str:
    """Return the cause of one failure."""
    text = f"name={name}\n{message}"
    for cause, pattern in CAUSES:
        if re.search(pattern, text):
            return cause
    code = re.search(r"An error occurred \((\w+)\)", message)
    return f"other: {code.group(1)}" if code else f"other: {message.strip().splitlines()[0][:60] if message.strip() else 'no message'}"


def summarize(root: ET.Element) -> str:
    """Return the counts, then the causes with their tests, largest first."""
    counts = {"passed": 0, "failed": 0, "errors": 0, "skipped": 0}
    failures: dict[str, list[str]] = defaultdict(list)
    for case in root.iter("testcase"):
        for kind, tag in (("failed", "failure"), ("errors", "error"), ("skipped", "skipped")):
            found = case.find(tag)
            if found is None:
                continue
            counts[kind] += 1
            if kind != "skipped":
                said = found.get("message") or found.text or ""
                failures[cause_of(case.get("name", ""), said)].append(case.get("name", ""))
            break
        else:
            counts["passed"] += 1
    lines = [" · ".join(f"{n} {what}" for what, n in counts.items()), "", "| tests | cause | which |", "|---|---|---|"]
    for cause, names in sorted(failures.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = ", ".join(f"`{n.removeprefix('test_')}`" for n in sorted(names))
        lines.append(f"| {len(names)} | {cause.replace('|', '/')} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(summarize(ET.parse(sys.argv[1]).getroot()))
