#!/usr/bin/env bash
# check_nm.sh BUILD: reads the symbols of the objects that are compiled once per ISA. A weak symbol there (any std::
# template) could be the copy that the linker gives to baseline code and crash an older CPU; a symbol outside the
# namespace of its ISA would clash with another's.
set -euo pipefail

build=${1:?usage: tools/check_nm.sh BUILD}
objects=0
bad=0
for folder in "$build"/src/CMakeFiles/lamina_kernels_*.dir; do
  isa=${folder##*/lamina_kernels_}
  isa=${isa%.dir}
  while IFS= read -r object; do
    objects=$((objects + 1))
    # nm prints: value, type, mangled name. W, V and u are weak or unique; the rest must name the ISA's namespace.
    found=$(nm --defined-only --extern-only "$object" |
      awk -v isa="${#isa}$isa" '$2 ~ /^[WVuwv]$/ { print "weak symbol " $3; next } index($3, isa) == 0 { print "not in its namespace: " $3 }')
    [ -n "$found" ] || continue
    bad=1
    while IFS= read -r line; do echo "$object: $line" | c++filt; done <<<"$found"
  done < <(find "$folder" -name '*.o' | sort)
done
[ "$objects" -gt 0 ] || { echo "check_nm: no kernel objects in $build" >&2; exit 1; }
[ "$bad" = 0 ] && echo "check_nm: $objects objects, no weak symbol, each in its namespace"
exit "$bad"
