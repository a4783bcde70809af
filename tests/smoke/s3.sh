#!/usr/bin/env bash
# versitygw, an S3 server that verifies signatures, used by boto3 through the proxy, in clear text and over TLS, on
# both drivers: odd keys, a multipart upload of 20 MB, ranges, conditions and presigned URLs.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
export PYTHONPATH="$tools/s3" PYTHONDONTWRITEBYTECODE=1 AWS_CONFIG_FILE=/dev/null AWS_EC2_METADATA_DISABLED=true
unset AWS_CA_BUNDLE AWS_PROFILE

"$BLITZ" cert --out "$scratch" localhost >/dev/null
upstream=$(free_port)
mkdir "$scratch/objects" "$scratch/metadata"
# Without --keep-alive, its default: it leaves the end of chunked requests on the connection.
start versitygw "$upstream" env ROOT_ACCESS_KEY=access-key ROOT_SECRET_KEY=secret-key "$tools/bin/versitygw" --quiet \
  --port "127.0.0.1:$upstream" posix --sidecar "$scratch/metadata" "$scratch/objects"
direct="http://127.0.0.1:$upstream"
python3 "$here/s3.py" "$direct" "$direct" directly || fail 'without the proxy'
for io in uring epoll; do
  plain=$(free_port)
  port=$(free_port)
  start_blitz "blitz-$io" "$plain" --io "$io" --to "$direct" \
    --listen-tls "127.0.0.1:$port" --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"
  python3 "$here/s3.py" "http://127.0.0.1:$plain" "$direct" "plain-$io" || fail "S3 in clear text on $io"
  python3 "$here/s3.py" "https://localhost:$port" "$direct" "tls-$io" "$scratch/ca.pem" || fail "S3 over TLS on $io"
  echo "s3: $io passed"
done
