// Passes rewrite a graph. Each is one function in one file and one row in pipeline.cc. A pass says whether it changed
// the graph; the pipeline verifies the result and, when asked, checks the claim against a hash of the text.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace lamina {

struct NodePrecision {
  std::string node;  // name
  Dtype dtype = Dtype::f32;
};

struct PassContext {
  int32_t panel_width = 16;                       // nr of the kernels that will run: the layout of weights
  NodeId backward{INT32_MAX};                     // ids from here on are the backward side, and what follows it
  std::span<const NodePrecision> precision = {};  // of forward nodes; others are fp32
  std::span<const NodeId> recompute = {};         // forward nodes whose results the backward side makes again
};

struct Pass {
  std::string_view name;
  bool (*run)(Graph& graph, const PassContext& context);
  std::string_view what;  // one line for people
  bool required = false;  // cannot be left out: without it a graph has no kernels
};

// In order. The forward passes run before differentiation, the whole ones after it and on programs without gradients;
// the last ones decide what is kept and where, and run again for each choice of what to recompute.
std::span<const Pass> forward_passes();
std::span<const Pass> whole_passes();
std::span<const Pass> memory_passes();

struct PassRecord {
  std::string graph;
  std::string pass;
  size_t nodes_before = 0;
  size_t nodes_after = 0;
};

struct PipelineOptions {
  std::vector<std::string> skip;  // names of passes to leave out
  bool check_claims = false;      // compare "changed" with the text: slow, for tests
  // Called after each pass that ran: the graph as it is then. For `inspect --after`.
  std::function<void(const Graph&, std::string_view pass)> observe;

  bool skips(std::string_view pass) const { return std::find(skip.begin(), skip.end(), pass) != skip.end(); }
};

// Runs the passes on the graph, verifies after each, appends a record for each.
void run_passes(Graph& graph, std::span<const Pass> passes, const PassContext& context, const PipelineOptions& options,
                std::vector<PassRecord>& records);

// Throws Error(usage) that names the unknown pass and lists the known ones.
void check_pass_names(const std::vector<std::string>& names);
// The same for passes to leave out, and for those that cannot be.
void check_skipped_passes(const std::vector<std::string>& names);

// Shared by passes: every use of v becomes a use of to[v], in inputs, outputs and storage; none: v stays. Chains are
// followed.
void replace_uses(Graph& graph, std::vector<ValueId>& to);
// Drops each node of one output for which `replacement` names a value, which takes the place of the output; none: the
// node stays. Says whether any went.
bool drop_nodes(Graph& graph, const std::function<ValueId(const Node&)>& replacement);

}  // namespace lamina
