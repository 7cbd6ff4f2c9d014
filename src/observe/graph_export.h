// A graph for other programs: Graphviz and JSON. People and the parser read graph/text.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "graph/graph.h"

namespace lamina {

std::string graph_dot(const Graph& graph);

// {name, values[{name, dtype, shape, layout, kind, class, storage_of}], nodes[{id, op, name, inputs, outputs, attrs}],
// outputs[]}; an absent input is null.
nlohmann::json graph_json(const Graph& graph);

}  // namespace lamina
