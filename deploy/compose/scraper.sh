#!/bin/sh
# Makes a viewer's key for Prometheus, the password of Grafana's admin, and Alertmanager's configuration.
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
/usr/local/lib/tideline/key.sh prometheus viewer all /scraper/key 644
