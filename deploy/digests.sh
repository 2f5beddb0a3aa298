#!/bin/sh
# Names the base images by digest, so that the next build and the next start take the very same ones: lines for .env.
#
#   deploy/digests.sh                      those of docker-compose.yml
#   deploy/digests.sh deploy/metrics.yml   those of an overlay
#
# Each image is pulled, under the name that its variable has in the environment or the file has by itself. Digests name an image
# for all of its platforms. An image that was built here has none.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
file=${1:-$here/docker-compose.yml}
sed -n 's/.*\${\([A-Z]*_IMAGE\):-\([^}]*\)}.*/\1 \2/p' "$file" | grep -v ' localhost/' | sort -u | while read -r variable usual; do
  image=$(printenv "$variable" || echo "$usual")
  image=${image%@*}
  docker pull --quiet "$image" >/dev/null || {
    echo "digests.sh: $image cannot be pulled, so it has no digest. Set $variable to an image of a registry that you reach" >&2
    exit 1
  }
  digest=$(docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$image" | sed -n "s|^.*@|@|p" | head -n 1)
  [ -n "$digest" ] || { echo "digests.sh: the registry of $image tells no digest" >&2; exit 1; }
  echo "$variable=$image$digest"
done
