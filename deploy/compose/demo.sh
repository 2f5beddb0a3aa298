#!/bin/sh
# The demonstration: three sites with labels teach a fourth without. Prints the run's table and ends; the federation stays up.
set -eu
TIDELINE_API_KEY=$(cat /secrets/admin.key)
export TIDELINE_API_KEY
exec tideline run start /usr/local/lib/tideline/demo.yaml --watch "$@"
