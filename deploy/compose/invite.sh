#!/bin/sh
# Puts a token where a site's agent finds it: invite.sh NAME [NAME ...]. Once: an agent that has enrolled needs no other.
set -eu
TIDELINE_API_KEY=$(cat /secrets/admin.key)
export TIDELINE_API_KEY
for name in "$@"; do
  [ -s "/tokens/$name/token" ] || tideline invite --name "$name" --ttl 1h --out "/tokens/$name/token" ${TIDELINE_CA:+--ca "$TIDELINE_CA"}
done
