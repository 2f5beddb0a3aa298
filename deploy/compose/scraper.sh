#!/bin/sh
# A viewer's key for Prometheus, once. Prometheus runs as another user, and nobody else mounts this volume.
set -eu
[ -s /scraper/key ] && exit 0
TIDELINE_API_KEY=$(cat /secrets/admin.key)
export TIDELINE_API_KEY
tideline keys add --name prometheus --role viewer --json ${TIDELINE_CA:+--ca "$TIDELINE_CA"} >/tmp/made
python -c 'import json; print(json.load(open("/tmp/made"))["key"])' >/scraper/key.new
chmod 644 /scraper/key.new
mv /scraper/key.new /scraper/key
