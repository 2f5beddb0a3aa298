#!/bin/sh
# A viewer's key for Prometheus, and the password of Grafana's admin. A kept key is tried; one that opens nothing is replaced.
# Both run as other users, and nobody else mounts their volumes.
set -eu
put() { # put FILE: what comes in, whole or not at all
  cat >"$1.new"
  chmod 644 "$1.new"
  mv "$1.new" "$1"
}
[ -s /grafana/password ] || python -c 'import secrets; print(secrets.token_urlsafe(32))' | put /grafana/password
if [ -s /scraper/key ] && TIDELINE_API_KEY=$(cat /scraper/key) tideline run list --json >/dev/null; then exit 0; fi
TIDELINE_API_KEY=$(cat /secrets/admin.key)
export TIDELINE_API_KEY
tideline keys revoke prometheus --json >/dev/null || true # its name has to be free; there may be none
tideline keys add --name prometheus --role viewer --json >/tmp/made
python -c 'import json; print(json.load(open("/tmp/made"))["key"])' | put /scraper/key
