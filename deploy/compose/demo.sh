#!/bin/sh
# The demonstration: three labelled sites teach a fourth without labels. It prints the run's table and ends; the federation stays up.
set -eu
TIDELINE_API_KEY=$(cat /secrets/admin.key)
export TIDELINE_API_KEY
exec tideline run start /usr/local/lib/tideline/demo.yaml --watch "$@"
