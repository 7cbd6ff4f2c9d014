#include "observe/graph_export.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/text.h"

namespace lamina {
namespace {

constexpr const char* kText = R"(graph small
input x: f32[2x3] io
persistent w: f32[3] parameters
persistent b: f32[3] parameters
0 norm = layernorm(x, w, b) {eps=0.5} -> norm: f32[2x3] activations, norm.1: f32[2] activations, norm.2: f32[2] activations
1 sum = add(norm, x) -> sum: f32[2x3] activations
output sum
)";

TEST(GraphExport, JsonHoldsNodesValuesAndAttributes) {
  const nlohmann::json json = graph_json(parse_graph(kText));
  EXPECT_EQ(json["name"], "small");
  ASSERT_EQ(json["nodes"].size(), 2u);
  EXPECT_EQ(json["nodes"][0]["op"], "layernorm");
  EXPECT_EQ(json["nodes"][0]["attrs"]["eps"], 0.5);
  EXPECT_EQ(json["nodes"][1]["inputs"], nlohmann::json({"norm", "x"}));
  EXPECT_EQ(json["outputs"], nlohmann::json({"sum"}));
  ASSERT_EQ(json["values"].size(), 7u);
  EXPECT_EQ(json["values"][0]["shape"], nlohmann::json({2, 3}));
  EXPECT_EQ(json["values"][1]["kind"], "persistent");
}

TEST(GraphExport, DotDrawsEachNodeAndEdge) {
  const std::string dot = graph_dot(parse_graph(kText));
  EXPECT_TRUE(dot.starts_with("digraph \"small\" {"));
  EXPECT_TRUE(dot.ends_with("}\n"));
  EXPECT_NE(dot.find("n0 [shape=box, label=\"norm\\nlayernorm\"]"), std::string::npos) << dot;
  EXPECT_NE(dot.find("n0 -> n1 [label=\"f32[2x3]\"]"), std::string::npos) << dot;
}

}  // namespace
}  // namespace lamina
