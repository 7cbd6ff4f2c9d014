// Each rule of the verifier, broken once.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/lifetime.h"
#include "graph/text.h"

namespace lamina {
namespace {

// y = (a + b) · w, with a parameter that is updated in place afterwards.
Graph sample() {
  Graph graph;
  graph.name = "sample";
  const ValueId a = graph.declare(ValueKind::input, "a", {{2, 3}, Dtype::f32, {}}, TensorClass::io);
  const ValueId b = graph.declare(ValueKind::input, "b", {{2, 3}, Dtype::f32, {}}, TensorClass::io);
  const ValueId w = graph.declare(ValueKind::persistent, "w", {{3, 4}, Dtype::f32, {}}, TensorClass::parameters);
  const ValueId sum = graph.add1(Op::add, "sum", {a, b});
  const ValueId y = graph.add1(Op::linear, "y", {sum, w, ValueId::none, ValueId::none});
  const ValueId cleared = graph.add1(Op::zero, "cleared", {w});
  graph.outputs = {y, cleared};
  return graph;
}

std::string error_of(const Graph& graph) {
  try {
    verify(graph);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Verify, AcceptsASoundGraph) { EXPECT_EQ(error_of(sample()), ""); }

struct Broken {
  const char* rule;
  std::function<void(Graph&)> spoil;
  const char* names;
};

class VerifyBroken : public ::testing::TestWithParam<Broken> {};

TEST_P(VerifyBroken, IsRefusedByName) {
  Graph graph = sample();
  GetParam().spoil(graph);
  EXPECT_NE(error_of(graph).find(GetParam().names), std::string::npos) << GetParam().rule << ": " << error_of(graph);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, VerifyBroken,
    ::testing::Values(
        Broken{"use before definition", [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }, "before its definition"},
        Broken{"read after overwrite", [](Graph& g) { std::swap(g.nodes[1], g.nodes[2]); }, "overwritten in place"},
        Broken{"shape",
               [](Graph& g) {
                 g[g.nodes[0].outputs[0]].type.shape = {2, 4};
               },
               "expected"},
        Broken{"dtype", [](Graph& g) { g[g.nodes[1].outputs[0]].type.dtype = Dtype::i32; }, "expected f32"},
        Broken{"layout", [](Graph& g) { g[g.find("a")].type.layout = Layout::panel(16); }, "layout"},
        Broken{"absent input", [](Graph& g) { g.nodes[0].inputs[1] = ValueId::none; }, "input 1 is absent"},
        Broken{"unknown input", [](Graph& g) { g.nodes[0].inputs[1] = static_cast<ValueId>(99); }, "not a value"},
        Broken{"number of inputs", [](Graph& g) { g.nodes[0].inputs.pop_back(); }, "1 inputs, expected 2"},
        Broken{"names", [](Graph& g) { g[g.find("b")].name = "a"; }, "two values named a"},
        Broken{"node ids", [](Graph& g) { g.nodes[1].id = g.nodes[0].id; }, "node id used twice"},
        Broken{"attributes", [](Graph& g) { g.nodes[0].attrs = GeluAttrs{}; }, "attributes of another op"},
        Broken{"storage cycle", [](Graph& g) { g[g.nodes[0].outputs[0]].storage_of = g.nodes[0].outputs[0]; },
               "lies on no value"},
        Broken{"in place of what the op forbids",
               [](Graph& g) { g[g.nodes[1].outputs[0]].storage_of = g.nodes[0].outputs[0]; }, "may not lie on"},
        Broken{"in place of an input of the program",
               [](Graph& g) { g[g.nodes[0].outputs[0]].storage_of = g.find("a"); }, "overwrites an input"},
        Broken{"update that is not in place", [](Graph& g) { g[g.nodes[2].outputs[0]].storage_of = ValueId::none; },
               "must lie on"},
        Broken{"output that is nowhere made", [](Graph& g) { g.nodes.erase(g.nodes.begin() + 1); }, "not defined"}));

TEST(Lifetime, PeakIsWhatIsAliveAtOnce) {
  const Graph graph = sample();
  const std::vector<Lifetime> lifetimes = transient_lifetimes(graph);
  ASSERT_EQ(lifetimes.size(), 1u);  // y is an output, w and its update are persistent
  EXPECT_EQ(graph[lifetimes[0].root].name, "sum:0");
  EXPECT_EQ(lifetimes[0].first, 0);
  EXPECT_EQ(lifetimes[0].last, 1);
  EXPECT_EQ(live_peak(lifetimes, graph.nodes.size()).bytes, 64);
}

TEST(Text, ReadsWhatItPrints) {
  const std::string text = to_text(sample());
  EXPECT_EQ(to_text(parse_graph(text)), text);
  EXPECT_NE(text.find("cleared:2: f32[3x4] activations on w"), std::string::npos) << text;
}

TEST(Text, RefusesWithTheLine) {
  const char* cases[][2] = {
      {"", "graph NAME"},
      {"graph g\ninput a f32[2] io\n", "line 2"},
      {"graph g\ninput a: f99[2] io\n", "a dtype"},
      {"graph g\ninput a: f32[2x] io\n", "a shape"},
      {"graph g\ninput a: f32[1x2x3x4x5] io\n", "a shape"},
      {"graph g\ninput a: f32[2] nothing\n", "a tensor class"},
      {"graph g\ninput a: f32[2] io\ninput a: f32[2] io\n", "a new name"},
      {"graph g\ninput a: f32[2] io\n0 n = frob(a) -> b: f32[2] io\n", "an op"},
      {"graph g\ninput a: f32[2] io\n0 n = add(a, c) -> b: f32[2] io\n", "a value defined above"},
      {"graph g\ninput a: f32[2] io\n0 n = scale(a) {factor=x} -> b: f32[2] io\n", "a number"},
      {"graph g\ninput a: f32[2] io\n0 n = gelu(a) {tanh=1} -> b: f32[2] io\n", "true or false"},
      {"graph g\ninput a: f32[2] io junk\n", "the end of the line"},
      {"graph g\ninput a: f32[2] io\n0 n = gelu(a) {tanh=true} -> b: f32[3] io\n", "expected"},
  };
  for (const auto& [text, names] : cases) {
    try {
      parse_graph(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(names), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lamina
