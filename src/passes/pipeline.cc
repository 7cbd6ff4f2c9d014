// The ordered list of passes, and the loop that runs it.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "graph/text.h"
#include "passes/pass.h"

namespace lamina {

bool fold_branches(Graph& graph, const PassContext& context);
bool set_precision(Graph& graph, const PassContext& context);
bool insert_casts(Graph& graph, const PassContext& context);
bool fuse_casts(Graph& graph, const PassContext& context);
bool fold_identities(Graph& graph, const PassContext& context);
bool remove_dead(Graph& graph, const PassContext& context);
bool merge_duplicates(Graph& graph, const PassContext& context);
bool fuse_accumulate(Graph& graph, const PassContext& context);
bool fuse_head(Graph& graph, const PassContext& context);
bool fuse_bias_gradient(Graph& graph, const PassContext& context);
bool fuse_layernorm_gradient(Graph& graph, const PassContext& context);
bool fuse_qkv_gradient(Graph& graph, const PassContext& context);
bool fuse_gelu_gradient(Graph& graph, const PassContext& context);
bool fuse_qkv(Graph& graph, const PassContext& context);
bool fuse_gelu(Graph& graph, const PassContext& context);
bool fuse_layernorm(Graph& graph, const PassContext& context);
bool fuse_residual(Graph& graph, const PassContext& context);
bool set_layout(Graph& graph, const PassContext& context);
bool recompute(Graph& graph, const PassContext& context);
bool fuse_update(Graph& graph, const PassContext& context);
bool order_for_memory(Graph& graph, const PassContext& context);
bool share_storage(Graph& graph, const PassContext& context);

namespace {

constexpr std::array<Pass, 6> kForwardPasses{{
    {"fold_branches", fold_branches, "choices of the configuration are made: no branch is left at run time", true},
    {"set_precision", set_precision, "what products round their operands to, part by part", true},
    {"fold_identities", fold_identities, "dropout that is off, scaling by 1, reshapes to the same shape"},
    {"remove_dead", remove_dead, "what no output and no update needs"},
    {"merge_duplicates", merge_duplicates, "equal nodes with equal inputs"},
    {"fuse_accumulate", fuse_accumulate, "an addition moves into the op that makes one of its sides"},
}};

constexpr std::array<Pass, 9> kWholePasses{{
    {"remove_dead_gradients", remove_dead, "gradients that no update needs"},
    {"merge_duplicates_backward", merge_duplicates, "equal nodes with equal inputs"},
    {"fuse_accumulate_backward", fuse_accumulate, "sums of gradients move into the ops that make them"},
    {"fuse_head", fuse_head, "logits, loss and their gradients, some rows at a time: all logits at once never exist"},
    {"fuse_bias_gradient", fuse_bias_gradient, "the gradient of a bias is summed while that of its weight is packed"},
    {"fuse_layernorm_gradient", fuse_layernorm_gradient, "the gradients of a layernorm in one visit of its rows"},
    {"fuse_qkv_gradient", fuse_qkv_gradient, "the gradients of three projections in one"},
    {"fuse_gelu_gradient", fuse_gelu_gradient, "the slope of GELU in the product before it"},
    {"set_layout", set_layout, "weights and their gradients and moments lie in panels", true},
}};

constexpr std::array<Pass, 10> kMemoryPasses{{
    {"recompute", recompute, "the backward side makes again what is not worth its memory"},
    {"fuse_qkv", fuse_qkv, "three projections in one"},
    {"fuse_gelu", fuse_gelu, "GELU in the product before it"},
    {"fuse_layernorm", fuse_layernorm, "a layernorm in the packing of the rows of the product after it"},
    {"fuse_residual", fuse_residual, "dropout and residual in the product before them; the embeddings in one"},
    {"insert_casts", insert_casts, "operands of 16 bits are cast before the products that take them"},
    {"fuse_casts", fuse_casts, "casts move into what makes their operand or reads their result"},
    {"fuse_update", fuse_update, "AdamW where the gradient of a weight is made, if nothing has to wait for its norm"},
    {"order_for_memory", order_for_memory, "a node runs earlier where that frees memory"},
    {"share_storage", share_storage, "an output takes the place of an input that is not read again"},
}};

}  // namespace

std::span<const Pass> forward_passes() { return kForwardPasses; }
std::span<const Pass> whole_passes() { return kWholePasses; }
std::span<const Pass> memory_passes() { return kMemoryPasses; }

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
    for (std::span<const Pass> list : {forward_passes(), whole_passes(), memory_passes()}) {
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
  for (std::span<const Pass> list : {forward_passes(), whole_passes(), memory_passes()})
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
