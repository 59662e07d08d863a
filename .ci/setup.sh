# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # sourced: program is set there
# Shared by ./run and ./test: what they install, and how a step is shown. Sourced by bash in the root.
#
# Everything that is built or fetched goes to build/; the system is changed by apt-get alone, and only
# where a package is missing.

log_folder=build/log
mkdir -p "$log_folder"
jobs=$(nproc 2>/dev/null || echo 2)

# One clear line, and the end.
die() {
    printf '%s: %s\n' "$program" "$1" >&2
    exit "${2:-1}"
}

# step NAME COMMAND...: runs quietly; says the name and the seconds, or the end of the log.
step() {
    local name=$1 from=$SECONDS log
    shift
    log="$log_folder/${name// /-}.log"
    printf '%-28s ' "$name"
    if "$@" >"$log" 2>&1; then
        printf '%d s\n' $((SECONDS - from))
    else
        printf 'failed after %d s\n' $((SECONDS - from))
        tail -n 20 "$log" >&2
        return 1
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else return 1
    fi
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get install -y --no-install-recommends "$@" ||
        { as_root apt-get update && as_root apt-get install -y --no-install-recommends "$@"; }
}

# need COMMAND:PACKAGE...: installs the packages whose command (or file, with a "/") is not there.
need() {
    local pair missing=()
    for pair in "$@"; do
        case ${pair%%:*} in
        */*) [ -e "${pair%%:*}" ] || missing+=("${pair#*:}") ;;
        *) command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}") ;;
        esac
    done
    [ ${#missing[@]} = 0 ] && return
    command -v apt-get >/dev/null ||
        die "install these first (no apt-get here): ${missing[*]}"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        die "not root and no sudo; install these first: apt-get install ${missing[*]}"
    printf 'installing with apt-get: %s\n' "${missing[*]}"
    step 'packages' apt_install "${missing[@]}" || die "apt-get could not install ${missing[*]}"
}

need_native() {
    need gcc:gcc make:make cmake:cmake ninja:ninja-build /usr/include/cjson/cJSON.h:libcjson-dev /usr/include/zlib.h:zlib1g-dev \
        /usr/include/yaml.h:libyaml-dev \
        /usr/include/stdio.h:libc6-dev
}

# The page's tools ask for Node 20. Where the system's is older, one comes from npm into build/.
node_version=20.19.5
need_node() {
    need node:nodejs npm:npm
    case $(uname -m) in
    x86_64) local machine=x64 ;;
    aarch64) local machine=arm64 ;;
    *) local machine= ;;
    esac
    local major own="build/node/node_modules/node-linux-$machine/bin"
    major=$(node -p 'process.versions.node.split(".")[0]')
    [ "$major" -ge 20 ] && return
    [ -n "$machine" ] || die "Node $major is too old: install Node 20 or newer"
    if [ ! -x "$own/node" ]; then
        printf 'installing with npm into build/node: Node %s (the system has %s)\n' "$node_version" "$major"
        step 'node' npm install --prefix build/node --no-save --no-audit --no-fund \
            "node-linux-$machine@$node_version" || die "npm could not fetch Node $node_version"
    fi
    PATH="$PWD/$own:$PATH"
}

# ---- cJSON's source, for the WebAssembly build: Debian's source package ----

# Hashes of the upstream archives in the source packages; apt checks the package's own signature.
cjson_hashes='
5308fd4bd90cef7aa060558514de6a1a4a0819974a26e6ed13973c5f624c24b2  cjson_1.7.15.orig.tar.gz
'

# Copies of the machine's own source entries that offer libcjson-dev, as deb-src, into a folder.
cjson_entries() {
    local folder=$1 uris
    uris=$(apt-cache policy libcjson-dev | awk '$1 ~ /^[0-9]+$/ && $2 ~ /:\/\// {print $2}' | sort -u)
    [ -n "$uris" ] || return 1
    local file
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -e "$file" ] || continue
        awk -v uris="$uris" 'BEGIN { RS = ""; n = split(uris, uri, "\n") }
            { for (i = 1; i <= n; i++) if (index($0, uri[i])) {
                gsub(/(^|\n)Types:[^\n]*/, "\nTypes: deb-src"); print $0 "\n"; break } }' "$file"
    done >"$folder/own.sources"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -e "$file" ] || continue
        awk -v uris="$uris" 'BEGIN { n = split(uris, uri, "\n") }
            $1 == "deb" { for (i = 1; i <= n; i++) if (index($0, uri[i])) {
                sub(/^deb/, "deb-src"); print; break } }' "$file"
    done >"$folder/own.list"
}

cjson_fetch() {
    local top=$PWD/build/cjson options
    rm -rf "$top" && mkdir -p "$top/entries" "$top/lists/partial" "$top/cache/archives/partial"
    cjson_entries "$top/entries" || { echo 'no source entry of apt offers libcjson-dev'; return 1; }
    options=(-o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$top/entries"
        -o "Dir::State::Lists=$top/lists" -o "Dir::Cache=$top/cache" -o Acquire::Languages=none
        -o APT::Sandbox::User=)
    apt-get "${options[@]}" update || return 1
    (cd "$top" && apt-get "${options[@]}" source cjson) || return 1
    local archive hash
    archive=$(basename "$(compgen -G "$top/cjson_*.orig.tar.*z*" | head -n 1)")
    hash=$(awk -v name="$archive" '$2 == name { print $1 }' <<<"$cjson_hashes")
    if [ -n "$hash" ]; then
        (cd "$top" && sha256sum --check --strict <<<"$hash  $archive") || return 1
    else
        echo "$archive: no hash is pinned; apt's signature stands"
    fi
    mv "$top"/cjson-*/ "$top/source" && [ -f "$top/source/cJSON.c" ] || return 1
    rm -rf "$top/entries" "$top/lists" "$top/cache"
}

need_cjson_source() {
    [ -f build/cjson/source/cJSON.c ] && return
    need dpkg-source:dpkg-dev
    printf 'fetching with apt-get into build/cjson: the source package cjson\n'
    step 'cjson source' cjson_fetch || die "the source of cJSON could not be fetched; see $log_folder/cjson-source.log"
}

need_page() {
    need emcc:emscripten wasm-split:binaryen
    need_node
    need_cjson_source
}

# ---- building ----

# build_preset PRESET [CMAKE-OPTION...]
build_preset() {
    local preset=$1
    shift
    cmake --preset "$preset" "$@" && cmake --build --preset "$preset" -j "$jobs"
}

page_packages() {
    [ web/node_modules/.package-lock.json -nt web/package-lock.json ] || (cd web && npm ci)
}

build_page() { (cd web && npm run --silent build -- --wasm ../build/wasm/tidemark.wasm --out ../build/page); }
