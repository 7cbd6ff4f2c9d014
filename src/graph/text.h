// The graph as text, both ways: print(parse(text)) == text for every graph. One line per declaration and node:
//
//   graph micro_step
//   input tokens: i32[4x64] io
//   persistent ln_f.weight: f32[768] parameters
//   7 ln_f = layernorm(x:3, ln_f.weight, ln_f.bias) {eps=1e-05} -> ln_f:7: f32[4x64x768] activations, …
//   output loss:99
//
// Declared values that no node reads are left out. "-" is an absent input, "panel16" after the shape a layout, "on v"
// the value whose storage is used.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace lamina {

std::string to_text(const Graph& graph);
// Throws Error(invalid) with the line number, expected and got. The result is verified.
Graph parse_graph(std::string_view text);

std::string attrs_text(const Attrs& attrs);  // "{eps=1e-05}", "" for NoAttrs

}  // namespace lamina
