#!/bin/sh
# Sees that FILE holds a good API key: key.sh NAME ROLE PROJECT FILE MODE. One that is there is tried, and replaced if it is refused.
set -eu
name=$1 role=$2 project=$3 file=$4 mode=$5
if [ -s "$file" ] && TIDELINE_API_KEY=$(cat "$file") tideline run list --json >/dev/null; then exit 0; fi
TIDELINE_API_KEY=$(cat /secrets/admin.key)
export TIDELINE_API_KEY
tideline keys revoke "$name" --json >/dev/null 2>&1 || true # frees the name; there may be no such key
tideline keys add --name "$name" --role "$role" --project "$project" --json >/tmp/made
python -c 'import json; print(json.load(open("/tmp/made"))["key"])' >"$file.new"
rm /tmp/made
chmod "$mode" "$file.new"
mv "$file.new" "$file"
