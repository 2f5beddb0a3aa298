#!/bin/sh
# Draws the secrets of a federation, once: the database's password and a key for the people's door. Those that are there stay.
set -eu
umask 077
drawn() { python -c 'import secrets; print(secrets.token_urlsafe(32))'; }
[ -s /secrets/postgres ] || drawn >/secrets/postgres
[ -s /secrets/admin.key ] || drawn >/secrets/admin.key
printf 'postgres:5432:*:tideline:%s\n' "$(cat /secrets/postgres)" >/secrets/pgpass
