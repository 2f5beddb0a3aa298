#!/bin/sh
# Generates the secrets of a federation, once: the database's password and an admin key for the HTTP API. Existing ones stay.
set -eu
umask 077
generate() { python -c 'import secrets; print(secrets.token_urlsafe(32))'; }
[ -s /secrets/postgres ] || generate >/secrets/postgres
[ -s /secrets/admin.key ] || generate >/secrets/admin.key
printf 'postgres:5432:*:tideline:%s\n' "$(cat /secrets/postgres)" >/secrets/pgpass
