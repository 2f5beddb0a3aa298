#!/bin/sh
# Makes the coordinator's certificate for these names: authority.sh HOST [HOST ...]. It makes one if there is none, and a new one if
# fewer than 60 days are left or a name is new. The authority's key stays in /authority, which no other container mounts. A certificate that came
# from elsewhere is left as it is.
set -eu
umask 077
if [ -s /certificate/coordinator.pem ] && [ ! -s /authority/ca.key ]; then exit 0; fi
good() { # good FILE NAME [NAME ...]: it lasts, and is for these names
  python - "$@" <<'PYTHON'
import sys, time
from cryptography import x509

chain = x509.load_pem_x509_certificates(open(sys.argv[1], "rb").read())
names = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
known = {str(each.value) for each in names}
lasts = min(each.not_valid_after_utc for each in chain).timestamp() - time.time() > 60 * 86400
sys.exit(not (lasts and set(sys.argv[2:]) <= known))
PYTHON
}
if ! { [ -s /authority/coordinator.pem ] && good /authority/coordinator.pem "$@"; }; then
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
