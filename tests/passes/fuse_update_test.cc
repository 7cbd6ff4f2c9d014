// AdamW moves to the gradient of a weight and writes the weight there: what the pass takes, what it leaves, and that no
// pass lets the new weight be read for the old one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "graph/text.h"
#include "passes/pass_runner.h"
#include "reference/interpreter.h"

namespace lamina {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

const std::string kDeclared = R"(graph g
persistent w: f32[5x400] panel16 parameters
persistent m: f32[5x400] panel16 optimizer
persistent v: f32[5x400] panel16 optimizer
input x: f32[3x5] io
input dy: f32[3x400] io
input hyper: f32[3] io
input one: f32[1] io
)";

const std::string kOutputs = R"(output dx
output db
output grad_norm
output w2
output m2
output v2
output s2
)";

// The end of a backward pass: dx is made of the weight, then the gradient of the weight, its norm and its update.
const std::string kBefore = kDeclared + R"(0 input = linear_bwd_input(dy, w, -) -> dx: f32[3x5] activations
1 params = linear_bwd_params(x, dy, -, -) -> dw: f32[5x400] panel16 gradients, db: f32[400] gradients
2 squares = square_sum(dw) -> s: f32[1] workspace
3 norm = norm(s) -> grad_norm: f32[1] workspace
4 update = adamw(w, m, v, dw, hyper, -) {beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.1} -> w2: f32[5x400] panel16 parameters on w, m2: f32[5x400] panel16 optimizer on m, v2: f32[5x400] panel16 optimizer on v
5 seen = square_sum(one) -> s2: f32[1] workspace
)" + kOutputs;

const std::string kAfter = kDeclared + R"(0 input = linear_bwd_input(dy, w, -) -> dx: f32[3x5] activations
6 params = linear_bwd_update(x, dy, hyper, w, m, v) {beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.1} -> w2: f32[5x400] panel16 parameters on w, m2: f32[5x400] panel16 optimizer on m, v2: f32[5x400] panel16 optimizer on v, s: f32[5x2] workspace, db: f32[400] gradients
3 norm = norm(s) -> grad_norm: f32[1] workspace
5 seen = square_sum(one) -> s2: f32[1] workspace
)" + kOutputs;

using Outputs = std::map<std::string, std::vector<double>>;

Outputs outputs(const Graph& graph) {
  Interpreter<double> engine;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::computed) continue;
    Rng rng(std::hash<std::string>{}(value.name));
    ref::RefTensor<double> tensor{value.type.shape, {}, {}};
    for (int64_t i = 0; i < value.type.shape.elements(); ++i) tensor.values.push_back(0.1 + rng.uniform());
    engine.set(value.name, tensor);
  }
  engine.run(graph);
  Outputs out;
  for (ValueId id : graph.outputs) {
    const ValueId root = graph.root(id);
    const std::string& name = graph[graph[root].kind == ValueKind::persistent ? root : id].name;
    out[name] = engine.get(name).values;
  }
  return out;
}

void expect_same_meaning(const Graph& before, const Graph& after) {
  const Outputs a = outputs(before), b = outputs(after);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], b.at(name).at(i), 1e-12 * std::abs(values[i])) << name << "[" << i << "]";
}

TEST(FuseUpdate, TakesTheUpdateToTheGradient) {
  const Graph before = parse_graph(kBefore);
  const Graph after = run_pass("fuse_update", before);
  EXPECT_EQ(to_text(after), kAfter);
  expect_same_meaning(before, after);
}

TEST(FuseUpdate, LeavesWhatItMustNotTouch) {
  const std::string cases[] = {
      replaced(kBefore, "dw, hyper, -)", "dw, hyper, one)"),  // waits for a factor
      replaced(kBefore, "output db\n", "output db\noutput dw\n"),
      replaced(kBefore, "5 seen = square_sum(one)", "5 seen = square_sum(dw)"),
      replaced(kBefore, "linear_bwd_params(x, dy, -, -)", "linear_bwd_params(x, dy, w, -)"),
      replaced(kBefore, "linear_bwd_params(x, dy, -, -)", "linear_bwd_params(x, dy, -, dy_row)"),
  };
  for (const std::string& text : cases) {
    const Graph before = parse_graph(replaced(text, "input one", "input dy_row: f32[400] io\ninput one"));
    EXPECT_EQ(to_text(run_pass("fuse_update", before)), to_text(before)) << text;
  }
}

// Written where its gradient stands, W would be new when dx is made of it. The same for the moments.
TEST(FuseUpdate, GoesBehindWhatReadsTheOldWeight) {
  Graph swapped = parse_graph(kBefore);
  std::swap(swapped.nodes[0], swapped.nodes[1]);
  std::vector<Graph> graphs{swapped};
  for (const char* moment : {"m", "v"})
    graphs.push_back(parse_graph(
        replaced(replaced(kBefore, "output s2", "output s2\noutput s3"),
                 "2 squares =", fmt::format("6 late = square_sum({}) -> s3: f32[1] workspace\n2 squares =", moment))));
  for (const Graph& before : graphs) {
    verify(before);
    const Graph after = run_pass("fuse_update", before);
    EXPECT_EQ(after.nodes[before.nodes.size() == 6 ? 1 : 2].op, Op::linear_bwd_update) << to_text(after);
    expect_same_meaning(before, after);
  }
}

// The gradient of the bias is needed before the last reader of the old weight.
TEST(FuseUpdate, LeavesWhatCannotGoBehindIt) {
  Graph before = parse_graph(replaced(kBefore, "5 seen = square_sum(one)", "5 seen = square_sum(db)"));
  std::swap(before.nodes[0], before.nodes[1]);                                        // params, input, …
  std::rotate(before.nodes.begin() + 1, before.nodes.end() - 1, before.nodes.end());  // params, seen, input, …
  verify(before);
  EXPECT_EQ(to_text(run_pass("fuse_update", before)), to_text(before));
}

TEST(FuseUpdate, TheVerifierRefusesAReaderBehindTheUpdate) {
  Graph graph = run_pass("fuse_update", parse_graph(kBefore));
  std::swap(graph.nodes[0], graph.nodes[1]);
  try {
    verify(graph);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("input 1 (w) was overwritten in place"), std::string::npos)
        << error.what();
  }
}

// The update would free x and dy before the large dx is made: the lowest peak, and the wrong numbers.
TEST(FuseUpdate, NothingMovesAheadOfAReaderOfTheOldWeight) {
  const Graph before = parse_graph(R"(graph g
persistent w: f32[5x400] panel16 parameters
persistent m: f32[5x400] panel16 optimizer
persistent v: f32[5x400] panel16 optimizer
input x: f32[30x5] io
input dy: f32[30x400] io
input wide: f32[3000x400] io
input hyper: f32[3] io
0 x2 = scale(x) {factor=2} -> x2: f32[30x5] activations
1 dy2 = scale(dy) {factor=2} -> dy2: f32[30x400] activations
2 input = linear_bwd_input(wide, w, -) -> dx: f32[3000x5] activations
3 update = linear_bwd_update(x2, dy2, hyper, w, m, v) {beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.1} -> w2: f32[5x400] panel16 parameters on w, m2: f32[5x400] panel16 optimizer on m, v2: f32[5x400] panel16 optimizer on v, s: f32[5x2] workspace, db: f32[400] gradients
4 squares = square_sum(dx) -> s2: f32[1] workspace
output s
output db
output s2
output w2
output m2
output v2
)");
  const Graph after = run_pass("share_storage", run_pass("order_for_memory", before));
  const auto place = [&](Op op) {
    return std::find_if(after.nodes.begin(), after.nodes.end(), [op](const Node& node) { return node.op == op; });
  };
  EXPECT_LT(place(Op::linear_bwd_input), place(Op::linear_bwd_update));
  EXPECT_LT(place(Op::linear_bwd_update), place(Op::square_sum) + 1);
  expect_same_meaning(before, after);
}

}  // namespace
}  // namespace lamina
