# SPDX-License-Identifier: Apache-2.0
"""Turns the JUnit file of a run of ceph/s3-tests into counts and a table of failures by cause, as Markdown."""

import re
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict

# The first that matches a failure's test name or message names its cause. What
# matches none is listed by its exception, so that nothing is swept together.
CAUSES = [
    ("ACLs are disabled by default (BucketOwnerEnforced), as on AWS since 2023; the suite expects them on", r"AccessControlListNotSupported|name=.*_(acl|grant)s?(_|$)|name=.*_acl"),
    ("object ownership and public access by ACL", r"name=.*(object_ownership|public_block|_anon|object_raw_get|access_bucket_)"),
    ("bucket policy: condition keys, principals or messages that differ", r"name=.*policy"),
    ("POST forms: details of form policies", r"name=test_post_object"),
    ("quota, usage and other calls that only Ceph has", r"name=.*(usage|quota|account_|torrent|expected_bucket_owner|get_undefined)"),
    ("tagging by header or with conditions", r"name=.*tag"),
    ("object lock: details", r"name=.*lock"),
    ("CORS", r"name=.*cors"),
    ("versioning: details", r"name=.*version|name=.*delete_marker"),
    ("multipart: details", r"name=.*multipart"),
    ("listing: details", r"name=.*list"),
    ("copy: details", r"name=.*copy"),
    ("conditional requests", r"name=.*(ifmatch|ifnonematch|if_match|if_none_match|conditional)"),
    ("bucket names and creation", r"name=.*bucket_create"),
    ("headers that are wrong on purpose", r"name=.*(create_bad|bad_)"),
    ("checksums", r"name=.*(checksum|cksum)"),
]


def cause_of(name: str, message: str) -> str:
    """The cause of one failure."""
    text = f"name={name}\n{message}"
    for cause, pattern in CAUSES:
        if re.search(pattern, text):
            return cause
    code = re.search(r"An error occurred \((\w+)\)", message)
    return f"other: {code.group(1)}" if code else f"other: {message.strip().splitlines()[0][:60] if message.strip() else 'no message'}"


def summarize(root: ET.Element) -> str:
    """Counts, then causes with their tests, the largest first."""
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
