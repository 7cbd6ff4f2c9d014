// The ordered list of passes, and the loop that runs it.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "graph/text.h"
#include "passes/pass.h"

namespace lamina {

bool fold_branches(Graph& graph, const PassContext& context);
bool fold_identities(Graph& graph, const PassContext& context);
bool remove_dead(Graph& graph, const PassContext& context);
bool merge_duplicates(Graph& graph, const PassContext& context);
bool fuse_accumulate(Graph& graph, const PassContext& context);
bool set_layout(Graph& graph, const PassContext& context);
bool order_for_memory(Graph& graph, const PassContext& context);
bool share_storage(Graph& graph, const PassContext& context);

namespace {

constexpr std::array<Pass, 5> kForwardPasses{{
    {"fold_branches", fold_branches, "choices of the configuration are made: no branch is left at run time", true},
    {"fold_identities", fold_identities, "dropout that is off, scaling by 1, reshapes to the same shape"},
    {"remove_dead", remove_dead, "what no output and no update needs"},
    {"merge_duplicates", merge_duplicates, "equal nodes with equal inputs"},
    {"fuse_accumulate", fuse_accumulate, "an addition moves into the op that makes one of its sides"},
}};

constexpr std::array<Pass, 6> kWholePasses{{
    {"remove_dead_gradients", remove_dead, "gradients that no update needs"},
    {"merge_duplicates_backward", merge_duplicates, "equal nodes with equal inputs"},
    {"fuse_accumulate_backward", fuse_accumulate, "sums of gradients move into the ops that make them"},
    {"set_layout", set_layout, "weights and their gradients and moments lie in panels"},
    {"order_for_memory", order_for_memory, "a node runs earlier where that frees memory"},
    {"share_storage", share_storage, "an output takes the place of an input that is not read again"},
}};

}  // namespace

std::span<const Pass> forward_passes() { return kForwardPasses; }
std::span<const Pass> whole_passes() { return kWholePasses; }

void run_passes(Graph& graph, std::span<const Pass> passes, const PassContext& context, const PipelineOptions& options,
                std::vector<PassRecord>& records) {
  for (const Pass& pass : passes) {
    if (options.skips(pass.name)) continue;
    const std::string before = options.check_claims ? to_text(graph) : std::string();
    PassRecord record{graph.name, std::string(pass.name), graph.nodes.size(), 0};
    const bool changed = pass.run(graph, context);
    record.nodes_after = graph.nodes.size();
    verify(graph);
    if (options.check_claims)
      LAMINA_CHECK(changed == (to_text(graph) != before), "pass {} on {}: changed = {}", pass.name, graph.name,
                   changed);
    records.push_back(std::move(record));
    if (options.observe) options.observe(graph, pass.name);
  }
}

void check_pass_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::string known;
    bool found = false;
    for (std::span<const Pass> list : {forward_passes(), whole_passes()}) {
      for (const Pass& pass : list) {
        found = found || pass.name == name;
        known += (known.empty() ? "" : ", ") + std::string(pass.name);
      }
    }
    if (!found) throw_error(ErrorCode::usage, "unknown pass: {}, expected one of {}", name, known);
  }
}

void check_skipped_passes(const std::vector<std::string>& names) {
  check_pass_names(names);
  for (std::span<const Pass> list : {forward_passes(), whole_passes()})
    for (const Pass& pass : list)
      if (pass.required && std::find(names.begin(), names.end(), pass.name) != names.end())
        throw_error(ErrorCode::usage, "pass that cannot be left out: expected another one, got {}", pass.name);
}

bool drop_nodes(Graph& graph, const std::function<ValueId(const Node&)>& replacement) {
  std::vector<ValueId> to(graph.values.size(), ValueId::none);
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    if (const ValueId input = replacement(node); input != ValueId::none)
      to[static_cast<size_t>(node.outputs[0])] = input;
    else
      kept.push_back(std::move(node));
  }
  const bool changed = kept.size() != graph.nodes.size();
  graph.nodes = std::move(kept);
  replace_uses(graph, to);
  return changed;
}

void replace_uses(Graph& graph, std::vector<ValueId>& to) {
  const auto follow = [&](ValueId& id) {
    while (id != ValueId::none && to[static_cast<size_t>(id)] != ValueId::none) id = to[static_cast<size_t>(id)];
  };
  for (Node& node : graph.nodes)
    for (ValueId& id : node.inputs) follow(id);
  for (ValueId& id : graph.outputs) follow(id);
  for (Value& value : graph.values) follow(value.storage_of);
}

}  // namespace lamina
