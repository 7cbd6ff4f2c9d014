// Each pass on a small graph: what it must do, what it must leave, and that the meaning stays: the reference interprets
// the graph before and after.
#include <gtest/gtest.h>

#include <cmath>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "base/rng.h"
#include "graph/lifetime.h"
#include "graph/text.h"
#include "passes/pass_runner.h"
#include "reference/interpreter.h"

namespace lamina {
namespace {

Graph parse(const char* text) { return parse_graph(text); }

// Every output of both graphs, on the same random inputs.
void expect_same_meaning(const Graph& before, const Graph& after) {
  Interpreter<double> a, b;
  Rng rng(11);
  for (const Value& value : before.values) {
    if (value.kind == ValueKind::computed) continue;
    ref::RefTensor<double> tensor;
    tensor.shape = value.type.shape;
    for (int64_t i = 0; i < value.type.shape.elements(); ++i) {
      if (value.type.dtype == Dtype::f32)
        tensor.values.push_back(0.1 + rng.uniform());  // positive: a second moment is one of them
      else
        tensor.ints.push_back(0);
    }
    a.set(value.name, tensor);
    b.set(value.name, tensor);
  }
  a.run(before);
  b.run(after);
  ASSERT_EQ(before.outputs.size(), after.outputs.size());
  const auto value_of = [](const Graph& graph, const Interpreter<double>& engine, size_t o) {
    const ValueId root = graph.root(graph.outputs[o]);
    return engine.get(graph[graph[root].kind == ValueKind::persistent ? root : graph.outputs[o]].name).values;
  };
  for (size_t o = 0; o < before.outputs.size(); ++o) {
    const std::vector<double> x = value_of(before, a, o), y = value_of(after, b, o);
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-12 * (1.0 + std::abs(x[i])));
  }
}

constexpr const char* kBranches = R"(graph g
input x: f32[1x2x4] io
input rng: i64[2] io
input sample: i64[1] io
0 off = dropout(x, rng, sample) {p=0, site=0, training=true} -> off: f32[1x2x4] activations
1 idle = dropout(off, rng, sample) {p=0.5, site=1, training=false} -> idle: f32[1x2x4] activations
2 one = scale(idle) {factor=1} -> one: f32[1x2x4] activations
3 act = gelu(one) {tanh=true} -> act: f32[1x2x4] activations
4 other = gelu(one) {tanh=false} -> other: f32[1x2x4] activations
5 pick = branch(act, other) {taken=false} -> pick: f32[1x2x4] activations
output pick
)";

TEST(FoldBranches, LeavesNoBranchAndNoIdentity) {
  const Graph before = parse(kBranches);
  const Graph folded = run_pass("fold_identities", run_pass("fold_branches", before));
  EXPECT_EQ(to_text(run_pass("remove_dead", folded)), R"(graph g
input x: f32[1x2x4] io
4 other = gelu(x) {tanh=false} -> other: f32[1x2x4] activations
output other
)");
}

TEST(FoldIdentities, KeepsDropoutThatActs) {
  const Graph graph = run_pass("fold_identities", parse(R"(graph g
input x: f32[1x2x4] io
input rng: i64[2] io
input sample: i64[1] io
0 on = dropout(x, rng, sample) {p=0.5, site=0, training=true} -> on: f32[1x2x4] activations
output on
)"));
  EXPECT_EQ(graph.nodes.size(), 1u);
}

TEST(MergeDuplicates, EqualNodesBecomeOneAndUpdatesStay) {
  const Graph before = parse(R"(graph g
input x: f32[4] io
persistent p: f32[4] parameters
0 a = scale(x) {factor=2} -> a: f32[4] activations
1 b = scale(x) {factor=2} -> b: f32[4] activations
2 c = scale(x) {factor=3} -> c: f32[4] activations
3 s = add(a, b) -> s: f32[4] activations
4 t = add(s, c) -> t: f32[4] activations
5 before = scale(p) {factor=2} -> before: f32[4] activations
6 clear = zero(p) -> clear: f32[4] parameters on p
7 after = scale(clear) {factor=2} -> after: f32[4] activations
output t
output before
output after
)");
  const Graph after = run_pass("merge_duplicates", before);
  EXPECT_EQ(after.nodes.size(), before.nodes.size() - 1);
  expect_same_meaning(before, after);
}

constexpr const char* kSums = R"(graph g
input x: f32[2x3] io
input r: f32[2x4] io
persistent w: f32[3x4] parameters
persistent u: f32[3x4] parameters
0 y = linear(x, w, -, -) -> y: f32[2x4] activations
1 z = linear(x, u, -, -) -> z: f32[2x4] activations
2 yz = add(y, z) -> yz: f32[2x4] activations
3 out = add(r, yz) -> out: f32[2x4] activations
output out
)";

TEST(FuseAccumulate, AdditionsMoveIntoTheProducer) {
  const Graph before = parse(kSums);
  const Graph after = run_pass("fuse_accumulate", before);
  expect_same_meaning(before, after);
  EXPECT_EQ(to_text(after), R"(graph g
input x: f32[2x3] io
input r: f32[2x4] io
persistent w: f32[3x4] parameters
persistent u: f32[3x4] parameters
0 y = linear(x, w, -, -) -> y: f32[2x4] activations
1 z = linear(x, u, -, y) -> yz: f32[2x4] activations
3 out = add(r, yz) -> out: f32[2x4] activations
output out
)");
}

TEST(FuseAccumulate, LeavesASumWhosePartIsReadElsewhere) {
  const Graph graph = parse(R"(graph g
input x: f32[2x3] io
input r: f32[2x4] io
persistent w: f32[3x4] parameters
0 y = linear(x, w, -, -) -> y: f32[2x4] activations
1 s = add(r, y) -> s: f32[2x4] activations
output s
output y
)");
  // y is an output: it must keep its value, and so the sum its node.
  const Graph after = run_pass("fuse_accumulate", graph);
  expect_same_meaning(graph, after);
}

TEST(SetLayout, WeightsAndWhatIsElementwiseWithThem) {
  const Graph before = parse(R"(graph g
input x: f32[2x3] io
input hyper: f32[3] io
input loss: f32[1] io
persistent w: f32[3x20] parameters
persistent m: f32[3x20] optimizer
persistent v: f32[3x20] optimizer
0 y = linear(x, w, -, -) -> y: f32[2x20] activations
1 g = linear_bwd_weight(x, y, -) -> g: f32[3x20] gradients
2 q = square_sum(g) -> q: f32[1] workspace
3 n = norm(q) -> n: f32[1] workspace
4 f = clip_factor(n, loss) {max_norm=1} -> f: f32[1] workspace
5 u = adamw(w, m, v, g, hyper, f) {beta1=0.9, beta2=0.99, eps=1e-08, weight_decay=0.1} -> p: f32[3x20] parameters on w, pm: f32[3x20] optimizer on m, pv: f32[3x20] optimizer on v
output p
)");
  const Graph after = run_pass("set_layout", before);
  for (const char* name : {"w", "m", "v", "g", "p", "pm", "pv"})
    EXPECT_EQ(after[after.find(name)].type.layout, Layout::panel(16)) << name;
  for (const char* name : {"x", "y", "q", "hyper"})
    EXPECT_EQ(after[after.find(name)].type.layout, Layout::row_major()) << name;
  expect_same_meaning(before, after);
}

TEST(OrderForMemory, FreesWhatItCanEarlierAndKeepsTheMeaning) {
  // Both wide values are alive at once unless the second is made after the first was reduced.
  const Graph before = parse(R"(graph g
input x: f32[4x8] io
persistent wide: f32[8x100] parameters
persistent thin: f32[100x1] parameters
0 a = linear(x, wide, -, -) -> a: f32[4x100] activations
1 b = linear(x, wide, -, -) -> b: f32[4x100] activations
2 ra = linear(a, thin, -, -) -> ra: f32[4x1] activations
3 rb = linear(b, thin, -, -) -> rb: f32[4x1] activations
4 s = add(ra, rb) -> s: f32[4x1] activations
output s
)");
  const Graph after = run_pass("order_for_memory", before);
  EXPECT_LT(live_peak(transient_lifetimes(after), after.nodes.size()).bytes,
            live_peak(transient_lifetimes(before), before.nodes.size()).bytes);
  expect_same_meaning(before, after);
}

TEST(ShareStorage, TakesTheLastReadersPlaceOnly) {
  const Graph before = parse(R"(graph g
input x: f32[4] io
0 a = scale(x) {factor=2} -> a: f32[4] activations
1 b = scale(a) {factor=3} -> b: f32[4] activations
2 c = scale(a) {factor=4} -> c: f32[4] activations
3 s = add(b, c) -> s: f32[4] activations
4 out = scale(s) {factor=5} -> out: f32[4] activations
output out
)");
  const Graph after = run_pass("share_storage", before);
  EXPECT_EQ(after[after.find("a")].storage_of, ValueId::none);  // never an input of the program
  EXPECT_EQ(after[after.find("b")].storage_of, ValueId::none);  // a is read again
  EXPECT_EQ(after[after.find("c")].storage_of, after.find("a"));
  EXPECT_EQ(after[after.find("out")].storage_of, ValueId::none);  // an output has a place of its own
  expect_same_meaning(before, after);
}

TEST(ShareStorage, NotWhereTheOpReadsTheSameStorageElsewhere) {
  const Graph after = run_pass("share_storage", parse(R"(graph g
input x: f32[2x4] io
persistent w: f32[4x4] parameters
0 a = scale(x) {factor=2} -> a: f32[2x4] activations
1 y = linear(a, w, -, a) -> y: f32[2x4] activations
2 out = scale(y) {factor=5} -> out: f32[2x4] activations
output out
)"));
  EXPECT_EQ(after[after.find("y")].storage_of, ValueId::none);
}

TEST(Autodiff, EmitsNothingForConstants) {
  Graph graph = parse(R"(graph g
input x: f32[2x3] io
input seed: f32[1] io
input weight: f32[1] io
persistent w: f32[3x4] parameters
0 y = linear(x, w, -, -) -> y: f32[2x4] activations
1 l = weighted_sum(y, weight) -> l: f32[1] activations
output l
)");
  const std::vector<ValueId> wrt{graph.find("w")};
  const std::vector<ValueId> gradients = differentiate(graph, graph.find("l"), graph.find("seed"), wrt);
  EXPECT_NE(gradients[0], ValueId::none);
  for (const Node& node : graph.nodes) EXPECT_NE(node.op, Op::linear_bwd_input);
}

TEST(Pipeline, UnknownPassNamesAreUsageErrors) {
  try {
    check_pass_names({"fuse_everything"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("fuse_everything"), std::string::npos);
  }
}

}  // namespace
}  // namespace lamina
