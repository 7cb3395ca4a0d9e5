-- One request like those of an S3 SDK, about 600 bytes of head. ARGS: method, bytes of body, token.
function init(args)
  local size = tonumber(args[2])
  wrk.method = args[1]
  wrk.headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261201/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-checksum-crc32, Signature=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  wrk.headers["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD"
  wrk.headers["x-amz-date"] = "20261201T000000Z"
  wrk.headers["x-amz-checksum-crc32"] = "AAAAAA=="
  wrk.headers["amz-sdk-invocation-id"] = "0f6e2a52-7a5c-4f4e-9c3c-0d9c1d2f3a4b"
  wrk.headers["amz-sdk-request"] = "attempt=1"
  wrk.headers["User-Agent"] = "Boto3/1.44.8 md/Botocore#1.44.8 ua/2.1 os/linux md/arch#x86_64 lang/python#3.11"
  if args[3] then wrk.headers["Fencing-Token"] = args[3] end
  if args[1] == "PUT" then wrk.body = string.rep("x", size) end
end
