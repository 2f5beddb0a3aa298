#!/usr/bin/env bash
# Makes the two vendored scripts of the pages again from the packages that are pinned here: tools/vendor.sh
# Needs npm. What it writes is committed, so that neither a build nor a browser needs the internet.
set -euo pipefail
to="$(cd "$(dirname "$0")/.." && pwd)/shared/tideline/pages/static/vendor"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm init --yes >/dev/null
npm install --silent --save-exact --ignore-scripts preact@11.2.0 htm@3.1.1 uplot@1.6.32 esbuild@0.28.2
cat >preact.mjs <<'END'
export {h, render, Component, Fragment, createContext} from "preact";
export {useState, useEffect, useMemo, useRef, useCallback, useReducer, useContext, useErrorBoundary} from "preact/hooks";
import {h} from "preact";
import htm from "htm";
export const html = htm.bind(h);
END
echo 'export {default} from "uplot";' >uplot.mjs
bundle() { # bundle NAME WORDS: one minified module, with a line that says what it is
  npx esbuild "$1.mjs" --bundle --format=esm --minify --target=es2022 --legal-comments=none --banner:js="/* $2 */" --outfile="$to/$1.js"
}
bundle preact "Preact 11.2.0 (MIT) and htm 3.1.1 (Apache-2.0), unchanged; see LICENSES.txt"
bundle uplot "uPlot 1.6.32 (MIT), unchanged; see LICENSES.txt"
cp node_modules/uplot/dist/uPlot.min.css "$to/uplot.css"
{
  for package in preact htm uplot; do
    printf '%s\n%s\n\n' "$package" "$(printf '%s' "$package" | tr -c '' '=')"
    cat "node_modules/$package/LICENSE"
    printf '\n\n'
  done
} >"$to/LICENSES.txt"
