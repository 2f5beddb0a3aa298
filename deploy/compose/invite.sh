#!/bin/sh
# Puts a token where a site's agent finds it: invite.sh NAME [NAME ...]. An enrolled site needs none. Every other site gets a new
# token each time: the last may have expired, or belong to a database or a home that is lost. The demonstration gets a key of its
# own, with which it can run experiments and no more.
set -eu
umask 077
TIDELINE_API_KEY=$(cat /secrets/admin.key)
export TIDELINE_API_KEY
tideline clients list --json >/tmp/clients
enrolled() {
  python -c 'import json, sys
known = {row["name"]: row["standing"] for row in json.load(open("/tmp/clients"))}
sys.exit(known.get(sys.argv[1], "revoked") == "revoked")' "$1"
}
for name in "$@"; do
  enrolled "$name" || tideline invite --name "$name" --ttl 1h --out "/tokens/$name/token"
done
/usr/local/lib/tideline/key.sh demo operator default /for/demo/key 600
