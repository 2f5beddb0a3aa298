# Two targets from one recipe:
#   docker build --target coordinator -t localhost/tideline/coordinator:local .
#   docker build --target agent -t localhost/tideline/agent:local .                                   computes on CPUs
#   docker build --target agent -t localhost/tideline/agent:cuda --build-arg TORCH_INDEX= .           and on GPUs
#
# BASE         Python on Debian, pinned; name it by digest if images must stay the same for ever
# TORCH        what pip installs, pinned; deploy/locked.txt has the versions of everything else, and the hashes of their files
# TORCH_INDEX  pip's index for torch; empty: the default index, whose builds include CUDA (5 GB)

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG TORCH="torch==2.15.0 torchvision==0.29.2"
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -m venv /opt/tideline
ENV PATH=/opt/tideline/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Large layers that change seldom come first, so that the next build finds them in the cache. TORCH_INDEX has torch alone: all else
# comes from pip's default index, by hash; only what a build with CUDA brings for GPUs has none.
WORKDIR /src
COPY deploy/locked.txt ./
RUN pip install --no-deps --require-hashes --requirement locked.txt
COPY deploy/constraints.txt ./
RUN pip install --no-deps ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} $TORCH && pip install --constraint constraints.txt $TORCH
COPY . .
RUN pip install --no-deps . && pip check

FROM ${BASE} AS base
RUN groupadd --gid 10001 tideline \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/tideline --no-create-home --shell /usr/sbin/nologin tideline \
 && mkdir -p /var/lib/tideline /data /secrets /parts /authority /certificate /trust /scraper /grafana /alerts /vault \
        /for/postgres /for/redis /for/coordinator /for/admin /for/demo \
        /tokens/site-1 /tokens/site-2 /tokens/site-3 /tokens/site-4 \
 && chown -R tideline:tideline /var/lib/tideline /data /secrets /parts /authority /certificate /trust /scraper /grafana /alerts \
        /vault /for /tokens \
 && chmod 700 /var/lib/tideline /data /secrets /parts /authority /certificate /vault \
        /for/postgres /for/coordinator /for/admin /for/demo \
 && chmod 750 /for/redis
COPY --from=build /opt/tideline /opt/tideline
COPY deploy/compose /usr/local/lib/tideline
# HOME: libraries that cache something there find a folder that can be written to, whatever user a container runs as.
ENV PATH=/opt/tideline/bin:$PATH PYTHONUNBUFFERED=1 TIDELINE_LOG_JSON=1 HOME=/var/lib/tideline
USER tideline
WORKDIR /var/lib/tideline
ENTRYPOINT ["tideline"]

FROM base AS coordinator
ENV TIDELINE_HOME=/var/lib/tideline TIDELINE_HOST=0.0.0.0
EXPOSE 7800 7880
VOLUME ["/var/lib/tideline"]
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s CMD ["python", "/usr/local/lib/tideline/healthy.py"]
CMD ["coordinator"]

FROM base AS agent
VOLUME ["/var/lib/tideline"]
CMD ["agent", "--help"]
