# SPDX-License-Identifier: Apache-2.0
"""Copies by a library of Python: child.py boto3|obstore cp|sync ENDPOINT BUCKET SOURCE TARGET.

boto3 uses the transfer manager of the AWS CRT. obstore has no call for parallel ranges to a file, so that this program
asks for ranges of 8 MiB in 16 threads.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RANGE, THREADS, MANY = 8 << 20, 16, 64


def by_boto3(row: str, endpoint: str, bucket: str, source: str, target: Path) -> None:
    """Copy by the CRT: s3transfer's manager over awscrt's S3 client."""
    import botocore.session
    from s3transfer import crt

    session = botocore.session.get_session()
    client = session.create_client("s3", endpoint_url=endpoint)
    serializer = crt.BotocoreCRTRequestSerializer(session, {"endpoint_url": endpoint})
    credentials = crt.BotocoreCRTCredentialsWrapper(session.get_credentials())
    made = crt.create_s3_crt_client(region="us-east-1",
                                    crt_credentials_provider=credentials.to_crt_credentials_provider(),
                                    target_throughput=100e9 / 8, use_ssl=False)
    with crt.CRTTransferManager(made, serializer) as manager:
        if row == "cp":
            manager.download(bucket, source, str(target)).result()
            return
        target.mkdir(parents=True, exist_ok=True)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=source + "/")
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        waiting = [manager.download(bucket, key, str(target / key[len(source) + 1 :])) for key in keys]
        for future in waiting:
            future.result()


def by_obstore(row: str, endpoint: str, bucket: str, source: str, target: Path) -> None:
    """Copy by obstore: parallel ranges for one object, asynchronous reads for many."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(bucket, endpoint=endpoint, client_options={"allow_http": True})
    if row == "cp":
        size = obstore.head(store, source)["size"]
        out = os.open(target, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        os.truncate(out, size)

        def one(start: int) -> None:
            data = obstore.get_range(store, source, start=start, end=min(start + RANGE, size))
            os.pwrite(out, memoryview(data), start)

        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(one, range(0, size, RANGE)):
                pass
        os.close(out)
        return

    async def every() -> None:
        target.mkdir(parents=True, exist_ok=True)
        gate = asyncio.Semaphore(MANY)

        async def one(path: str) -> None:
            async with gate:
                data = await (await obstore.get_async(store, path)).bytes_async()
            (target / path[len(source) + 1 :]).write_bytes(memoryview(data))

        tasks = []
        for page in obstore.list(store, source + "/"):
            tasks += [asyncio.create_task(one(item["path"])) for item in page]
        await asyncio.gather(*tasks)

    asyncio.run(every())


def main() -> None:
    """Copy as the arguments say."""
    library, row, endpoint, bucket, source, target = sys.argv[1:]
    {"boto3": by_boto3, "obstore": by_obstore}[library](row, endpoint, bucket, source, Path(target))


if __name__ == "__main__":
    main()
