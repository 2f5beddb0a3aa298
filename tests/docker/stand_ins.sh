#!/usr/bin/env bash
# Base images where no registry can be reached: minimal Debian trees under the tags that the compose file names.
# Needs root, debootstrap and a running engine; takes two minutes. pip in them is configured as on this machine.
#   stand_ins.sh [python=TAG] [postgres=TAG] [redis=TAG] [prometheus=TAG]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")

tree() { # a folder with a Debian in it: tree NAME PACKAGE,PACKAGE
  debootstrap --variant=minbase --include="ca-certificates,$2" "$suite" "$work/$1" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
  rm -rf "$work/$1"/var/cache/apt/archives/*.deb "$work/$1"/usr/share/doc "$work/$1"/usr/share/locale
}
image() { # image NAME TAG CHANGE...
  local name=$1 tag=$2 changes=()
  shift 2
  for change in "$@"; do changes+=(--change "$change"); done
  tar --directory "$work/$name" --create . | docker import "${changes[@]}" - "$tag" >/dev/null
  rm -rf "${work:?}/$name"
  echo "made a stand-in for $tag"
}
script() { # an entry point: script NAME PATH, its text from standard input
  cat >"$work/$1$2"
  chmod 755 "$work/$1$2"
}

make_python() {
  tree python python3,python3-venv
  ln -s python3 "$work/python/usr/bin/python"
  cp -L /etc/ssl/certs/ca-certificates.crt "$work/python/etc/ssl/certs/ca-certificates.crt"
  # Wheels that this machine keeps for pip are kept for the image too, as far as they compute on processors.
  mkdir -p "$work/python/var/lib/wheels"
  for folder in $(python3 -m pip config get global.find-links 2>/dev/null) ${PIP_FIND_LINKS:-}; do
    [ ! -d "$folder" ] || find "$folder" -maxdepth 1 -name '*+cpu*.whl' -exec cp {} "$work/python/var/lib/wheels/" ';'
  done
  {
    echo '[global]'
    echo 'cert = /etc/ssl/certs/ca-certificates.crt'
    echo 'find-links = /var/lib/wheels'
    index=${PIP_INDEX_URL:-$(python3 -m pip config get global.index-url 2>/dev/null || true)}
    [ -z "$index" ] || echo "index-url = $index"
  } >"$work/python/etc/pip.conf"
  image python "$1" 'CMD ["python3"]'
}

make_postgres() {
  tree postgres postgresql
  script postgres /usr/local/bin/docker-entrypoint.sh <<'SCRIPT'
#!/bin/bash
set -euo pipefail
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export PGDATA=/var/lib/postgresql/data
as() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
install -d -m 700 -o postgres -g postgres "$PGDATA"
install -d -m 775 -o postgres -g postgres /var/run/postgresql
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  install -m 600 -o postgres "$POSTGRES_PASSWORD_FILE" /tmp/password
  as initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth scram-sha-256 --auth-local trust --encoding UTF8 --locale C >/dev/null
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  as pg_ctl --wait --options '-c listen_addresses=' start >/dev/null
  as createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
  as pg_ctl --wait stop >/dev/null
fi
exec setpriv --reuid postgres --regid postgres --init-groups postgres -c listen_addresses='*'
SCRIPT
  ln -s "$(cd "$work/postgres" && ls -d usr/lib/postgresql/*/bin | sed 's|^|/|')/pg_isready" "$work/postgres/usr/local/bin/pg_isready"
  image postgres "$1" 'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["postgres"]'
}

make_redis() {
  tree redis redis-server
  script redis /usr/local/bin/docker-entrypoint.sh <<'SCRIPT'
#!/bin/sh
cd /data
exec "$@" --protected-mode no --bind '* -::*'
SCRIPT
  mkdir -p "$work/redis/data"
  image redis "$1" 'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["redis-server"]'
}

make_prometheus() { # as the original is: nobody runs it, and its folder is nobody's
  tree prometheus prometheus
  install -d -o 65534 -g 65534 "$work/prometheus/prometheus"
  image prometheus "$1" 'USER 65534' 'WORKDIR /prometheus' 'ENTRYPOINT ["prometheus"]'
}

for wanted in "$@"; do "make_${wanted%%=*}" "${wanted#*=}"; done
