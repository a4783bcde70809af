#!/usr/bin/env python3
"""boto3 and curl talk to an S3 server through the proxy: `s3.py URL DIRECT_URL BUCKET [CA]`."""

import hashlib
import io
import os
import subprocess
import sys

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

KEYS = [
    "plain", "with space", " leading and trailing ", "plus+sign", "100%", "%", "%2f", "a%2Fb/%25/c%zz", "#hash",
    "what?x=1&y=%20", "ünïcode/日本/🎉", "e\u0301 combined", "a&b=c;d,e:f@g$h", "~tilde*'(paren)!", "[b]{c}<d>|e^`f`",
    'quote"', "back\\slash", "...", "a..b/.hidden/..c", "deep/" * 20 + "leaf", "equal=/colon:",
]
# A server that stores objects as files joins slashes or rejects a slash at the end.
SLASH_KEYS = ["double//slash", "/leading", "trailing/", "http://example.com"]
# The proxy removes dot segments from paths, which invalidates the signature.
DOT_KEYS = ["a/../b", "a/./b", "./a"]
MIB = 1 << 20

url, direct_url, bucket, *ca = sys.argv[1:]
ca = ca[0] if ca else None


def connect(endpoint, secret="secret-key"):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", verify=ca if endpoint == url else None,
        aws_access_key_id="access-key", aws_secret_access_key=secret,
        config=Config(
            signature_version="s3v4", s3={"addressing_style": "path"}, retries={"total_max_attempts": 1},
            connect_timeout=5, read_timeout=20,
        ),
    )


def digest(content):
    return hashlib.sha256(content).hexdigest()


def read(response):
    return digest(response["Body"].read())


def expect_error(code, call, **arguments):
    """Fails unless the call gives this error."""
    try:
        got = call(**arguments)
    except ClientError as error:
        got = error.response
    assert got.get("Error", {}).get("Code") == code, f"expected {code}, got {got}"


def same_names(listed):
    wrong = set(KEYS) ^ set(listed)
    assert not wrong and len(listed) == len(KEYS), f"the list of keys differs: {wrong}"


def objects(s3):
    contents = {key: f"{key} ".encode() + os.urandom(1000) for key in KEYS}
    for key, content in contents.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content, Metadata={"note": "two  spaces; a=b"}, ContentType="text/x")
        got = s3.get_object(Bucket=bucket, Key=key)
        assert got["Metadata"] == {"note": "two  spaces; a=b"} and got["ContentType"] == "text/x", got
        assert read(got) == digest(content), key
        # The server has the same key and the same content without the proxy.
        assert read(connect(direct_url).get_object(Bucket=bucket, Key=key)) == digest(content), key
        assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] == len(content), key
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 5})
    same_names([entry["Key"] for page in pages for entry in page["Contents"]])
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="ünïcode/", Delimiter="/")
    assert [entry["Prefix"] for entry in listed["CommonPrefixes"]] == ["ünïcode/日本/"], listed
    s3.copy_object(Bucket=bucket, Key="copy of + %", CopySource={"Bucket": bucket, "Key": "a%2Fb/%25/c%zz"})
    assert read(s3.get_object(Bucket=bucket, Key="copy of + %")) == digest(contents["a%2Fb/%25/c%zz"])
    s3.delete_object(Bucket=bucket, Key="copy of + %")
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in KEYS]})
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def segments(s3):
    def outcome(client, key):
        try:
            client.put_object(Bucket=bucket, Key=key, Body=b"")
            client.delete_object(Bucket=bucket, Key=key)
        except ClientError as error:
            return error.response["Error"]["Code"]
        return "stored"

    direct = connect(direct_url)
    for key in SLASH_KEYS:
        assert outcome(s3, key) == outcome(direct, key), f"{key}: {outcome(s3, key)}, directly {outcome(direct, key)}"
    if url != direct_url:
        for key in DOT_KEYS:
            assert outcome(s3, key) == "SignatureDoesNotMatch", f"{key}: {outcome(s3, key)}"


def large(s3):
    content = os.urandom(20 * MIB + 12345)
    transfer = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)
    s3.upload_fileobj(io.BytesIO(content), bucket, "large + one", Config=transfer)
    assert s3.head_object(Bucket=bucket, Key="large + one")["ETag"].endswith('-5"'), "no multipart upload"
    got = io.BytesIO()
    s3.download_fileobj(bucket, "large + one", got, Config=transfer)
    assert digest(got.getvalue()) == digest(content)
    assert read(s3.get_object(Bucket=bucket, Key="large + one")) == digest(content)
    for start, end in ((0, 0), (5 * MIB - 1, 5 * MIB), (20 * MIB, 20 * MIB + 12344)):
        got = s3.get_object(Bucket=bucket, Key="large + one", Range=f"bytes={start}-{end}")
        assert got["ContentRange"] == f"bytes {start}-{end}/{len(content)}", got
        assert read(got) == digest(content[start:end + 1])
    got = s3.get_object(Bucket=bucket, Key="large + one", Range="bytes=-7")
    assert read(got) == digest(content[-7:])
    expect_error("InvalidRange", s3.get_object, Bucket=bucket, Key="large + one", Range="bytes=99999999-")
    # A body of one request, for which boto3 waits for 100 (Continue).
    s3.put_object(Bucket=bucket, Key="large + one", Body=content)
    assert read(s3.get_object(Bucket=bucket, Key="large + one")) == digest(content)
    s3.delete_object(Bucket=bucket, Key="large + one")


def conditions(s3):
    tag = s3.put_object(Bucket=bucket, Key="c d", Body=b"one")["ETag"]
    expect_error("304", s3.get_object, Bucket=bucket, Key="c d", IfNoneMatch=tag)
    assert read(s3.get_object(Bucket=bucket, Key="c d", IfMatch=tag)) == digest(b"one")
    expect_error("PreconditionFailed", s3.get_object, Bucket=bucket, Key="c d", IfMatch='"other"')
    expect_error("PreconditionFailed", s3.put_object, Bucket=bucket, Key="c d", Body=b"two", IfNoneMatch="*")
    expect_error("NoSuchKey", s3.get_object, Bucket=bucket, Key="missing")
    s3.delete_object(Bucket=bucket, Key="c d")


def presigned(s3):
    key, content = "with space/+/%2f/ü", os.urandom(100_000)

    def curl(target, *arguments):
        return subprocess.run(
            ["curl", "--silent", "--show-error", "--max-time", "20", "--ipv4", *(["--cacert", ca] if ca else []),
             "--write-out", "%{stderr}%{http_code} %{http_version}", *arguments, target],
            capture_output=True, input=content, check=True,
        )

    for version in ("1.1", "2") if ca else ("1.1",):
        put = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": key})
        got = curl(put, f"--http{version}", "--request", "PUT", "--data-binary", "@-", "--header", "Content-Type:")
        assert got.stderr.decode() == f"200 {version}", (got.stderr, got.stdout)
        parameters = {"Bucket": bucket, "Key": key, "ResponseContentDisposition": 'attachment; filename="a + b.txt"'}
        get = s3.generate_presigned_url("get_object", Params=parameters)
        got = curl(get, f"--http{version}")
        assert got.stderr.decode() == f"200 {version}" and digest(got.stdout) == digest(content), got.stderr
        # The server verifies the signature and the host in it.
        for changed in (get.replace("Signature=", "Signature=0"), get.replace("a%20%2B", "b%20%2B")):
            assert changed != get
            got = curl(changed, f"--http{version}")
            assert b"SignatureDoesNotMatch" in got.stdout, got
        if not ca:
            got = curl(get, "--header", "Host: other.example")
            assert b"SignatureDoesNotMatch" in got.stdout, got
    expect_error("SignatureDoesNotMatch", connect(url, "other").list_objects_v2, Bucket=bucket)
    s3.delete_object(Bucket=bucket, Key=key)


def main():
    s3 = connect(url)
    s3.create_bucket(Bucket=bucket)
    for part in (objects, segments, large, conditions, presigned):
        part(s3)
    s3.delete_bucket(Bucket=bucket)


main()
