// The passes that form layer cells, on the training graph of a small GPT and on its evaluation: which nodes they leave,
// and that loss and all gradients mean what the composition meant. The reference interprets both.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autodiff/autodiff.h"
#include "base/rng.h"
#include "graph/text.h"
#include "model/programs.h"
#include "passes/pass.h"
#include "reference/interpreter.h"

namespace lamina {
namespace {

struct Variant {
  double dropout = 0.0;
  bool tanh = true;
  bool tied = true;
};

ModelConfig config_of(const Variant& variant) {
  ModelConfig config;
  config.vocab_size = 19;
  config.n_positions = 7;
  config.n_embd = 6;
  config.n_layer = 2;
  config.n_head = 2;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = variant.dropout;
  config.activation_function = variant.tanh ? "gelu_new" : "gelu";
  config.tie_word_embeddings = variant.tied;
  config.bos_token_id = config.eos_token_id = 18;
  return config;
}

void run(Graph& graph, std::span<const Pass> passes) {
  std::vector<PassRecord> records;
  run_passes(graph, passes, {.panel_width = 16}, {.skip = {}, .check_claims = true, .observe = {}}, records);
}

// Loss and gradients as outputs, before the passes over the whole.
Graph training_graph(const Variant& variant) {
  ForwardGraph forward = build_forward("step", config_of(variant), {.batch = 2, .seq = 5, .training = true});
  run(forward.graph, forward_passes());
  for (ValueId id : differentiate(forward.graph, forward.loss, forward.loss_scale, forward.parameters))
    forward.graph.outputs.push_back(id);
  return std::move(forward.graph);
}

Graph evaluation_graph(const Variant& variant) {
  ForwardGraph forward = build_forward("eval", config_of(variant), {.batch = 2, .seq = 5});
  run(forward.graph, forward_passes());
  return std::move(forward.graph);
}

void run_all(Graph& graph) {
  run(graph, whole_passes());
  run(graph, memory_passes());
}

std::vector<Pass> fusions() {
  std::vector<Pass> out;
  for (std::span<const Pass> list : {whole_passes(), memory_passes()})
    for (const Pass& pass : list)
      if (pass.name.starts_with("fuse_") && pass.name != "fuse_accumulate_backward") out.push_back(pass);
  return out;
}

std::map<std::string, int> count_ops(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) ++counts[std::string(op_name(node.op))];
  return counts;
}

int64_t random_id(const Value& value, Rng& rng) {
  if (value.name == "key_begin") return static_cast<int64_t>(rng.below(2));
  if (value.name == "positions") return static_cast<int64_t>(rng.below(7));
  return static_cast<int64_t>(rng.below(19));
}

Interpreter<double> interpret(const Graph& graph) {
  Interpreter<double> engine;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::computed) continue;
    Rng rng(std::hash<std::string>{}(value.name));
    ref::RefTensor<double> tensor{value.type.shape, {}, {}};
    for (int64_t i = 0; i < value.type.shape.elements(); ++i) {
      if (value.type.dtype == Dtype::f32)
        tensor.values.push_back(rng.normal());
      else
        tensor.ints.push_back(random_id(value, rng));
    }
    engine.set(value.name, tensor);
  }
  engine.run(graph);
  return engine;
}

void expect_same_outputs(const Graph& before, const Graph& after) {
  const Interpreter<double> a = interpret(before), b = interpret(after);
  ASSERT_EQ(before.outputs.size(), after.outputs.size());
  for (size_t o = 0; o < before.outputs.size(); ++o) {
    const std::vector<double>& x = a.get(before[before.outputs[o]].name).values;
    const std::vector<double>& y = b.get(after[after.outputs[o]].name).values;
    ASSERT_EQ(x.size(), y.size());
    double largest = 0.0;
    for (double value : x) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(x[i], y[i], 1e-12 * (1.0 + largest)) << before[before.outputs[o]].name << "[" << i << "]";
  }
}

constexpr Variant kVariants[] = {{}, {.dropout = 0.3}, {.tanh = false}, {.tied = false}, {.dropout = 1.0}};

TEST(Cells, EachPassKeepsTheMeaning) {
  for (const Variant& variant : kVariants)
    for (Graph graph : {training_graph(variant), evaluation_graph(variant)})
      for (const Pass& pass : fusions()) {
        SCOPED_TRACE(std::string(pass.name) + " on " + graph.name);
        const Graph before = graph;
        run(graph, {&pass, 1});
        expect_same_outputs(before, graph);
      }
}

TEST(Cells, EachPassWorksWithoutTheOthers) {
  for (const Pass& pass : fusions()) {
    SCOPED_TRACE(pass.name);
    const Graph before = training_graph({.dropout = 0.3});
    Graph after = before;
    run(after, {&pass, 1});
    expect_same_outputs(before, after);
  }
}

TEST(Cells, OfATrainingGraph) {
  Graph graph = training_graph({});
  run_all(graph);
  auto ops = count_ops(graph);
  EXPECT_EQ(ops["embedding_sum"], 1);
  EXPECT_EQ(ops["head"], 1);
  EXPECT_EQ(ops["linear_qkv"], 2);
  EXPECT_EQ(ops["linear_gelu"], 2);
  EXPECT_EQ(ops["linear_bwd_gelu"], 2);
  EXPECT_EQ(ops["qkv_bwd_input"], 2);
  EXPECT_EQ(ops["qkv_bwd_params"], 2);
  EXPECT_EQ(ops["layernorm_bwd"], 5);
  EXPECT_EQ(ops["linear_bwd_params"], 6);  // attention.proj, mlp.fc and mlp.proj of two layers
  for (const char* gone :
       {"linear_bwd_weight", "linear_bwd_bias", "layernorm_bwd_input", "gelu", "gelu_bwd", "cross_entropy_bwd"})
    EXPECT_EQ(ops[gone], 0) << gone;
}

TEST(Cells, OfATrainingGraphWithDropout) {
  Graph graph = training_graph({.dropout = 0.1});
  run_all(graph);
  auto ops = count_ops(graph);
  EXPECT_EQ(ops["linear_dropout"], 4);
  EXPECT_EQ(ops["dropout"], 5);  // of gradients: two in each layer, one of the embedding
}

TEST(Cells, OfAnEvaluation) {
  Graph graph = evaluation_graph({});
  run_all(graph);
  auto ops = count_ops(graph);
  EXPECT_EQ(ops["linear_qkv"], 2);
  EXPECT_EQ(ops["linear_gelu"], 2);
  EXPECT_EQ(ops["head_loss"], 1);
  EXPECT_EQ(ops["layernorm"], 1);  // before the head
  EXPECT_EQ(ops["linear"], 4);
  EXPECT_EQ(graph.nodes.size(), 1 + 2 * 5 + 1 + 1 + 1u);
}

// The backward side makes what the layernorms and GELUs gave again, so forward they move into the products.
TEST(Cells, TakeWhatIsRecomputed) {
  ForwardGraph forward = build_forward("step", config_of({}), {.batch = 2, .seq = 5, .training = true});
  run(forward.graph, forward_passes());
  PassContext context{.panel_width = 16, .backward = NodeId{forward.graph.next_node}, .recompute = {}};
  for (ValueId id : differentiate(forward.graph, forward.loss, forward.loss_scale, forward.parameters))
    forward.graph.outputs.push_back(id);
  run(forward.graph, whole_passes());
  const Graph before = forward.graph;
  std::vector<NodeId> again;
  for (const Node& node : before.nodes)
    if ((node.op == Op::layernorm || node.op == Op::gelu) && node.name != "ln_f") again.push_back(node.id);
  context.recompute = again;
  std::vector<PassRecord> records;
  run_passes(forward.graph, memory_passes(), context, {.skip = {}, .check_claims = true, .observe = {}}, records);
  auto ops = count_ops(forward.graph);
  EXPECT_EQ(ops["layernorm"], 4 + 1);  // made again for the gradients of weights, and before the head
  EXPECT_EQ(ops["gelu"], 2);
  for (const Node& node : forward.graph.nodes) {
    if (node.op != Op::linear_qkv && node.op != Op::linear_gelu) continue;
    EXPECT_NE(node.inputs[1], ValueId::none) << node.name;
  }
  expect_same_outputs(before, forward.graph);
}

TEST(Cells, LogitsThatAreAskedForStayWhole) {
  ForwardGraph forward = build_forward("forward", config_of({}), {.batch = 2, .seq = 5, .with_loss = false});
  run(forward.graph, forward_passes());
  run_all(forward.graph);
  EXPECT_EQ(forward.graph[forward.logits].type.shape, (Shape{2, 5, 19}));
  EXPECT_EQ(count_ops(forward.graph)["head_loss"], 0);
}

TEST(Cells, TheHeadKeepsNoMoreRowsOfLogitsThanItWorksOn) {
  ModelConfig config = config_of({});
  config.n_positions = 700;
  ForwardGraph forward = build_forward("step", config, {.batch = 2, .seq = 700, .training = true});
  run(forward.graph, forward_passes());
  differentiate(forward.graph, forward.loss, forward.loss_scale, forward.parameters);
  run_all(forward.graph);
  EXPECT_EQ(forward.graph[forward.logits].type.shape, (Shape{kHeadRows, 19}));
}

}  // namespace
}  // namespace lamina
