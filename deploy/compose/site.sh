#!/bin/sh
# A site of the demonstration: site.sh NAME DOMAIN ROLE. Writes the site's digits to its own volume, once, as many as `tideline demo`
# has, and starts its agent.
set -eu
name=$1 domain=$2 role=$3
[ -s "/data/$domain.npz" ] || python - "$domain" "$role" <<'PYTHON'
import pathlib, sys
from tideline.cli.local.demo_rehearsed import rows_of
from tideline.learning.datasets import digits

digits.write_site(pathlib.Path("/data"), sys.argv[1], rows=rows_of(sys.argv[2]))
PYTHON
exec tideline agent --name "$name" --role "$role" --data /data --home /var/lib/tideline/agent --token-file /tokens/token \
  --device "${TIDELINE_DEVICE:-cpu}" ${TIDELINE_CA:+--ca "$TIDELINE_CA"} ${TIDELINE_INSECURE:+--insecure} \
  ${TIDELINE_POLICY:+--policy "$TIDELINE_POLICY"}
