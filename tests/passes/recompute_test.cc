// What the backward side makes again, on a graph of one residual block, and what may be chosen of it.
#include "passes/recompute.h"

#include <gtest/gtest.h>

#include "autodiff/autodiff.h"
#include "base/rng.h"
#include "graph/text.h"
#include "passes/pass.h"
#include "reference/interpreter.h"

namespace lamina {
namespace {

//   x ── e ──┬── a ── b ── c ──+── y ── out        e and y are checkpoints
//            └─────────────────┘
constexpr const char* kBlock = R"(graph g
input x: f32[2x4] io
persistent w: f32[4x4] parameters
persistent u: f32[4x4] parameters
persistent v: f32[4x4] parameters
0 e = linear(x, w, -, -) -> e: f32[2x4] activations
1 a = linear(e, u, -, -) -> a: f32[2x4] activations
2 b = gelu(a) {tanh=true} -> b: f32[2x4] activations
3 y = linear(b, v, -, e) -> y: f32[2x4] activations
5 sum = square_sum(y) -> sum: f32[1] activations
6 db = linear_bwd_input(y, v, -) -> db: f32[2x4] activations
7 dv = linear_bwd_weight(b, y, -) -> dv: f32[4x4] gradients
8 da = gelu_bwd(db, a) {tanh=true} -> da: f32[2x4] activations
9 du = linear_bwd_weight(e, da, -) -> du: f32[4x4] gradients
output sum
output dv
output du
)";

constexpr NodeId kBackward{6};

std::vector<std::string> names(const Graph& graph, const std::vector<RecomputeItem>& items) {
  std::vector<std::string> out;
  for (const RecomputeItem& item : items) {
    std::string text;
    for (NodeId id : item.nodes)
      for (const Node& node : graph.nodes)
        if (node.id == id) text += node.name;
    out.push_back(text);
  }
  return out;
}

TEST(RecomputeItems, CheckpointsAreKeptAndHowManySaysTheStride) {
  const Graph graph = parse_graph(kBlock);
  EXPECT_EQ(count_checkpoints(graph, kBackward), 2);
  EXPECT_EQ(names(graph, recompute_items(graph, kBackward, 1)), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(names(graph, recompute_items(graph, kBackward, 2)), (std::vector<std::string>{"a", "b", "y"}));
  for (const RecomputeItem& item : recompute_items(graph, kBackward, 1)) EXPECT_EQ(item.bytes, 64);
}

// With the residual an addition of its own, c is kept by nobody: y takes it along.
TEST(RecomputeItems, WhatIsNotKeptAnywayComesAlong) {
  std::string text = kBlock;
  const std::string fused = "3 y = linear(b, v, -, e) -> y: f32[2x4] activations\n";
  text.replace(text.find(fused), fused.size(),
               "3 c = linear(b, v, -, -) -> c: f32[2x4] activations\n4 y = add(e, c) -> y: f32[2x4] activations\n");
  const Graph graph = parse_graph(text);
  EXPECT_EQ(names(graph, recompute_items(graph, kBackward, 2)), (std::vector<std::string>{"a", "b", "cy"}));
}

Graph recomputed(Graph graph, const std::vector<NodeId>& nodes) {
  std::vector<PassRecord> records;
  PassContext context;
  context.backward = kBackward;
  context.recompute = nodes;
  run_passes(graph, memory_passes().first(1), context, {.skip = {}, .check_claims = true, .observe = {}}, records);
  return graph;
}

TEST(Recompute, CopiesAreMadeBeforeTheirFirstReaderAndOnce) {
  const Graph graph = recomputed(parse_graph(kBlock), {NodeId{1}, NodeId{2}});
  EXPECT_EQ(to_text(graph), R"(graph g
input x: f32[2x4] io
persistent w: f32[4x4] parameters
persistent u: f32[4x4] parameters
persistent v: f32[4x4] parameters
0 e = linear(x, w, -, -) -> e: f32[2x4] activations
1 a = linear(e, u, -, -) -> a: f32[2x4] activations
2 b = gelu(a) {tanh=true} -> b: f32[2x4] activations
3 y = linear(b, v, -, e) -> y: f32[2x4] activations
5 sum = square_sum(y) -> sum: f32[1] activations
6 db = linear_bwd_input(y, v, -) -> db: f32[2x4] activations
10 a.again = linear(e, u, -, -) -> a.again:10: f32[2x4] activations
11 b.again = gelu(a.again:10) {tanh=true} -> b.again:11: f32[2x4] activations
7 dv = linear_bwd_weight(b.again:11, y, -) -> dv: f32[4x4] gradients
8 da = gelu_bwd(db, a.again:10) {tanh=true} -> da: f32[2x4] activations
9 du = linear_bwd_weight(e, da, -) -> du: f32[4x4] gradients
output sum
output dv
output du
)");
}

TEST(Recompute, NothingChosenChangesNothing) {
  const Graph graph = parse_graph(kBlock);
  EXPECT_EQ(to_text(recomputed(graph, {})), to_text(graph));
  EXPECT_EQ(to_text(recomputed(graph, {NodeId{5}})), to_text(graph));  // nothing backward reads it
}

TEST(Recompute, TheMeaningStays) {
  const Graph before = parse_graph(kBlock), after = recomputed(before, {NodeId{0}, NodeId{1}, NodeId{2}, NodeId{3}});
  EXPECT_EQ(after.nodes.size(), before.nodes.size() + 4);
  Interpreter<double> a, b;
  Rng rng(3);
  for (const Value& value : before.values) {
    if (value.kind == ValueKind::computed) continue;
    ref::RefTensor<double> tensor{value.type.shape, {}, {}};
    for (int64_t i = 0; i < value.type.shape.elements(); ++i) tensor.values.push_back(rng.uniform());
    a.set(value.name, tensor);
    b.set(value.name, tensor);
  }
  a.run(before);
  b.run(after);
  for (const char* name : {"sum", "dv", "du"}) EXPECT_EQ(a.get(name).values, b.get(name).values) << name;
}

}  // namespace
}  // namespace lamina
