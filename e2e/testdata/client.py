"""Drives boto3: reads one JSON request a line and answers each with one JSON line."""
import json
import os
import sys

import boto3
from botocore.config import Config

s3 = boto3.client("s3", endpoint_url=os.environ["E2E_ENDPOINT"], region_name=os.environ["E2E_REGION"],
                  config=Config(s3={"addressing_style": "path"}))


def keys(bucket):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
    return [o["Key"] for page in pages for o in page.get("Contents", [])]


def do(r):
    op, bucket = r["op"], r["bucket"]
    if op == "make":
        s3.create_bucket(Bucket=bucket)
    elif op == "upload":
        s3.upload_file(r["path"], bucket, r["key"])
    elif op == "list":
        return {"keys": keys(bucket)}
    elif op == "download":
        s3.download_file(bucket, r["key"], r["path"])
    elif op == "copy":
        s3.copy({"Bucket": bucket, "Key": r["key"]}, bucket, r["to"])
    elif op == "remove":
        s3.delete_object(Bucket=bucket, Key=r["key"])
    elif op == "remove_bucket":
        answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys(bucket)]})
        if answer.get("Errors"):
            raise RuntimeError(answer["Errors"])
        s3.delete_bucket(Bucket=bucket)
    else:
        raise ValueError(op)
    return {}


for line in sys.stdin:
    try:
        answer = do(json.loads(line))
    except Exception as e:  # whatever it is, the test wants to read it
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
