#!/bin/sh
# Makes a viewer's key for Prometheus, the password of Grafana's admin, and Alertmanager's configuration. An existing key is tried, and replaced if it is refused.
# Both programs run as other users, and no other container mounts their volumes.
set -eu
put() { # put FILE: writes standard input to it, completely or not at all
  cat >"$1.new"
  chmod 644 "$1.new"
  mv "$1.new" "$1"
}
[ -s /grafana/password ] || python -c 'import secrets; print(secrets.token_urlsafe(32))' | put /grafana/password
python /usr/local/lib/tideline/alerting.py /metrics/alertmanager.yml >/tmp/alertmanager.yml
put /alerts/alertmanager.yml </tmp/alertmanager.yml
if [ -s /scraper/key ] && TIDELINE_API_KEY=$(cat /scraper/key) tideline run list --json >/dev/null; then exit 0; fi
TIDELINE_API_KEY=$(cat /secrets/admin.key)
export TIDELINE_API_KEY
tideline keys revoke prometheus --json >/dev/null || true # frees the name; there may be no such key
tideline keys add --name prometheus --role viewer --project all --json >/tmp/made
python -c 'import json; print(json.load(open("/tmp/made"))["key"])' | put /scraper/key
