#!/bin/bash
# Builds real images without any image from the internet, into the storage folder of a docker-registry.
#
#     bench/corpus.sh FOLDER        about 6 minutes, 6 GB in FOLDER, of which 1.4 GB are FOLDER/registry
#
# Seven tags out of debootstrap, apt and PyPI wheels: shared layers, two "releases", one layer of nearly 800 MB. Needs root,
# debootstrap, docker.io (20.10), docker-registry and a Python 3.11 pip. Starts its own daemon and registry, stops
# them by process id, and goes on where an interrupted run stopped.
set -euo pipefail

folder=$(realpath -m "${1:?folder}")
mkdir -p "$folder/context"
cd "$folder"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
registry=127.0.0.1:$port
packages=/usr/local/lib/python3.11/dist-packages

cat > registry.yml <<END
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $folder/registry}}
http: {addr: $registry}
END
docker-registry serve registry.yml > registry.log 2>&1 &
registry_id=$!
rm -rf daemon && mkdir daemon
/usr/sbin/dockerd --data-root "$folder/daemon/root" --exec-root "$folder/daemon/exec" -H "unix://$folder/daemon/socket" \
    --pidfile "$folder/daemon/pid" --iptables=false --bridge=none > daemon.log 2>&1 &
daemon_id=$!
stop() {
    kill "$daemon_id" "$registry_id" 2>/dev/null || true
    wait "$daemon_id" "$registry_id" 2>/dev/null || true
    rm -rf "$folder/daemon"
}
trap stop EXIT

export DOCKER_HOST=unix://$folder/daemon/socket DOCKER_BUILDKIT=0
docker=/usr/bin/docker
for _ in $(seq 100); do "$docker" version > /dev/null 2>&1 && break; sleep 0.3; done
"$docker" version > /dev/null

say() { printf '%s  %s\n' "$(date +%T)" "$*" >&2; }

base_system() {
    [ -e rootfs.done ] || { rm -rf rootfs; debootstrap --variant=minbase bookworm rootfs > debootstrap.log; touch rootfs.done; }
    rm -f rootfs/var/cache/apt/archives/*.deb
    tar -C rootfs --numeric-owner -cf - . | "$docker" import -c 'CMD ["/bin/sh"]' \
        -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$registry/base/debian:12" > /dev/null
}

wheels() { # wheels FOLDER PACKAGE...
    local target=context/$1
    shift
    [ -e "$target.done" ] && return
    rm -rf "$target"
    pip install -q --no-compile --no-deps --only-binary=:all: --python-version 3.11 --target "$target" "$@"
    touch "$target.done"
}

build() { # build TAG CONTEXT DOCKERFILE-LINE...   one context an image, so that the builder is not sent everything each time
    local tag=$1 context=context/$2
    shift 2
    say "building $tag"
    printf '%s\n' "$@" > "$context/Dockerfile.x"
    printf 'Dockerfile.x\n' > "$context/.dockerignore"
    "$docker" build -q --network=host -t "$registry/$tag" -f "$context/Dockerfile.x" "$context" > /dev/null
    rm -f "$context/Dockerfile.x" "$context/.dockerignore"
}

application() { # application TAG BASE RELEASE
    build "$1" "app$3" "FROM $registry/$2" \
        "RUN useradd -u 1001 svc && mkdir -p /srv && ln -s /opt/app/main.py /usr/local/bin/app && touch /srv/old" \
        "COPY . /opt/app/" \
        "RUN rm /srv/old && chmod 4755 /usr/bin/newgrp && chown -R 1001:1001 /srv" \
        "USER 1001" "WORKDIR /opt/app" 'ENTRYPOINT ["python3", "/opt/app/main.py"]' \
        "LABEL org.opencontainers.image.version=$3"
}

say "base system and wheels"
base_system
wheels sci numpy==1.26.4 scipy==1.13.1 pandas==2.2.2 pyarrow==16.1.0 pytz python-dateutil six tzdata
wheels tf217 tensorflow-cpu==2.17.1
wheels tf218 tensorflow-cpu==2.18.1
wheels torch torch==2.3.1
mkdir -p context/empty
for release in 1 11 2; do
    mkdir -p "context/app$release"
    echo "print('app $release')" > "context/app$release/main.py"
    [ -e "context/app$release/weights.bin" ] || head -c 3000000 /dev/urandom > "context/app$release/weights.bin"
done

build base/python:3.11 empty "FROM $registry/base/debian:12" \
    "RUN apt-get update && apt-get install -y --no-install-recommends python3 ca-certificates && rm -rf /var/lib/apt/lists/*" \
    "ENV PYTHONUNBUFFERED=1" 'CMD ["python3"]'
build ml/sci:1.0 sci "FROM $registry/base/python:3.11" "COPY . $packages/" "RUN python3 -c 'import numpy, scipy, pandas, pyarrow'"
build ml/tfbase:2.17 tf217 "FROM $registry/ml/sci:1.0" "COPY . $packages/"
build ml/tfbase:2.18 tf218 "FROM $registry/ml/sci:1.0" "COPY . $packages/"
build ml/torchbase:2.3 torch "FROM $registry/ml/sci:1.0" "COPY . $packages/"
application svc/tf:1.0 ml/tfbase:2.17 1
application svc/tf:1.1 ml/tfbase:2.17 11
application svc/tf:2.0 ml/tfbase:2.18 2
application svc/torch:1.0 ml/torchbase:2.3 1
for tag in base/debian:12 base/python:3.11 ml/sci:1.0 svc/tf:1.0 svc/tf:1.1 svc/tf:2.0 svc/torch:1.0; do
    say "pushing $tag"
    "$docker" push -q "$registry/$tag" > /dev/null
done
touch registry/complete
say "done: $(du -sh registry | cut -f1)"
