#!/bin/sh
# A site of the demonstration: site.sh NAME DOMAIN ROLE. Writes the site's digits to its own volume, once, and starts its agent.
set -eu
name=$1 domain=$2 role=$3
[ -s "/data/$domain.npz" ] || tideline data sample /data --domain "$domain"
exec tideline agent --name "$name" --role "$role" --data /data --home /var/lib/tideline/agent --token-file /tokens/token \
  --device "${TIDELINE_DEVICE:-cpu}" ${TIDELINE_CA:+--ca "$TIDELINE_CA"} ${TIDELINE_INSECURE:+--insecure} \
  ${TIDELINE_POLICY:+--policy "$TIDELINE_POLICY"}
