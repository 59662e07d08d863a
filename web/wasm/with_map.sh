# SPDX-License-Identifier: Apache-2.0
# with_map.sh FILE LINK...: the link, whose --print-map goes to the file; emcc takes no --Map.
map=$1
shift
exec "$@" >"$map"
