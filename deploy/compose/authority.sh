#!/bin/sh
# Makes the coordinator's certificate for these names: authority.sh HOST [HOST ...]. It makes one if there is none, and a new one if
# fewer than 60 days are left. The authority's key stays in /authority, which no other container mounts. A certificate that came
# from elsewhere is left as it is.
set -eu
umask 077
if [ -s /certificate/coordinator.pem ] && [ ! -s /authority/ca.key ]; then exit 0; fi
lasting() {
  python -c 'import sys, time; from cryptography.x509 import load_pem_x509_certificates as load
ends = min(each.not_valid_after_utc for each in load(open(sys.argv[1], "rb").read()))
sys.exit(ends.timestamp() - time.time() < 60 * 86400)' "$1"
}
if ! { [ -s /authority/coordinator.pem ] && lasting /authority/coordinator.pem; }; then
  hosts=
  for name in "$@"; do hosts="$hosts --host $name"; done
  tideline tls init --out /authority $hosts
fi
put() { # put MODE FROM TO: completely or not at all
  cp "$2" "$3.new"
  chmod "$1" "$3.new"
  mv "$3.new" "$3"
}
put 600 /authority/coordinator.key /certificate/coordinator.key
put 600 /authority/coordinator.pem /certificate/coordinator.pem
put 644 /authority/ca.pem /trust/ca.pem # Prometheus runs as another user
