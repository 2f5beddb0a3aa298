#!/bin/sh
# Draws the secrets of a federation, once: the passwords of Postgres and Redis, an admin key for the HTTP API, and the key by which
# coordinators sign dossiers. All of them stay in /vault, which no other container mounts; each service gets those that it needs, in a
# folder of its own below /for.
set -eu
umask 077
put() { # put MODE FROM TO: completely or not at all
  cp "$2" "$3.new"
  chmod "$1" "$3.new"
  mv "$3.new" "$3"
}
for name in postgres redis admin.key; do
  [ -s "/vault/$name" ] && continue
  python -c 'import secrets; print(secrets.token_urlsafe(32))' >/tmp/drawn
  put 600 /tmp/drawn "/vault/$name"
done
if [ ! -s /vault/signing.key ]; then
  python - >/tmp/drawn <<'PYTHON'
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

print(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(), end="")
PYTHON
  put 600 /tmp/drawn /vault/signing.key
fi
put 600 /vault/postgres /for/postgres/password
printf 'postgres:5432:*:tideline:%s\n' "$(cat /vault/postgres)" >/tmp/pgpass
put 600 /tmp/pgpass /for/coordinator/pgpass
# Redis runs as another user, of the same group. It holds hints and counts, and writes nothing to a disk.
{
  echo "requirepass $(cat /vault/redis)"
  echo 'save ""'
  echo 'appendonly no'
  echo 'maxmemory 64mb'
  echo 'maxmemory-policy allkeys-lru'
} >/tmp/redis.conf
put 640 /tmp/redis.conf /for/redis/redis.conf
put 640 /vault/redis /for/redis/password
put 600 /vault/redis /for/coordinator/redis
put 600 /vault/signing.key /for/coordinator/signing.key
put 600 /vault/admin.key /for/coordinator/admin.key
put 600 /vault/admin.key /for/admin/admin.key
