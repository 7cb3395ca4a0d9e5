"""A program that writes one object under a lease, as a database archives a WAL segment.

usage: writer.py NAME ENDPOINT BUCKET KEY [--token N] [--stall]

It knows nothing of fencegate but one header: with --token every request carries `Fencing-Token`.
With --stall it stops itself (SIGSTOP) at the worst moment: after it made sure that it holds the
lease, before it writes. That stands for a long garbage collection, a VM that migrates, a host
that swaps. `kill -CONT` wakes it.
"""

import argparse
import os
import signal
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

parser = argparse.ArgumentParser()
for name in ("name", "endpoint", "bucket", "key"):
    parser.add_argument(name)
parser.add_argument("--token", type=int)
parser.add_argument("--stall", action="store_true")
args = parser.parse_args()

s3 = boto3.client(
    "s3",
    endpoint_url=args.endpoint,
    region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
)
if args.token is not None:

    def carry_token(request, **_):
        request.headers["Fencing-Token"] = str(args.token)

    s3.meta.events.register("before-sign.s3", carry_token)


def say(text):
    print(f"    [{args.name}] {text}", flush=True)


body = f"segment 42 as {args.name} has it\n"
say("I hold the lease: writing now")
if args.stall:
    say("... paused (SIGSTOP)")
    os.kill(os.getpid(), signal.SIGSTOP)
    say("... awake again; for me no time has passed")
try:
    s3.put_object(Bucket=args.bucket, Key=args.key, Body=body.encode())
except ClientError as error:
    status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    detail = error.response["Error"]
    say(f"refused: {status} {detail['Code']}: {detail['Message']}")
    sys.exit(1)
say("written: 200")
