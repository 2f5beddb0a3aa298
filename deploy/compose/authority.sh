#!/bin/sh
# Makes an authority and the coordinator's certificate for these names, once: authority.sh HOST [HOST ...].
set -eu
[ -s /authority/coordinator.pem ] && exit 0
hosts=
for name in "$@"; do hosts="$hosts --host $name"; done
exec tideline tls init --out /authority $hosts
