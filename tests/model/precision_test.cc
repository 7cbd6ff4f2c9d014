// Patterns of parts, and which of several counts.
#include "model/precision.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace lamina {
namespace {

ModelConfig three_layers() {
  ModelConfig config;
  config.n_layer = 3;
  return config;
}

// The parts that are not fp32, by type.
std::map<Dtype, std::vector<std::string>> parts(const PrecisionMap& map) {
  std::map<Dtype, std::vector<std::string>> out;
  for (const PartPrecision& part : precision_of_parts(map, three_layers()))
    if (part.dtype != Dtype::f32) out[part.dtype].push_back(part.part);
  return out;
}

std::vector<std::string> bf16_parts(const std::string& pattern) { return parts({{pattern, Dtype::bf16}})[Dtype::bf16]; }

using List = std::vector<std::string>;

TEST(Precision, PatternsMatchWholePartsAndBeginnings) {
  EXPECT_EQ(bf16_parts("head"), List{"head"});
  EXPECT_EQ(bf16_parts("embedding"), List{"embedding"});
  EXPECT_EQ(bf16_parts("layer.1.mlp"), (List{"layer.1.mlp.fc", "layer.1.mlp.proj"}));
  EXPECT_EQ(bf16_parts("mlp.fc"), (List{"layer.0.mlp.fc", "layer.1.mlp.fc", "layer.2.mlp.fc"}));
  EXPECT_EQ(bf16_parts("layer.1-2.attention.{q,k}"),
            (List{"layer.1.attention.q", "layer.1.attention.k", "layer.2.attention.q", "layer.2.attention.k"}));
  EXPECT_EQ(bf16_parts("layer.*.attention.core").size(), 3u);
  EXPECT_EQ(bf16_parts("layer.2").size(), 7u);
  EXPECT_EQ(bf16_parts("*").size(), 2u + 3u * 7u);
}

TEST(Precision, UnderstandsTheNamesOfHuggingFace) {
  EXPECT_EQ(bf16_parts("transformer.h.0.attn.c_attn.weight"),
            (List{"layer.0.attention.q", "layer.0.attention.k", "layer.0.attention.v"}));
  EXPECT_EQ(bf16_parts("h.2.attn.c_proj"), List{"layer.2.attention.proj"});
  EXPECT_EQ(bf16_parts("h.*.mlp.c_fc").size(), 3u);
  EXPECT_EQ(bf16_parts("lm_head"), List{"head"});
  EXPECT_EQ(bf16_parts("transformer.wte.weight"), List{"embedding"});
}

TEST(Precision, TheNarrowestPatternCountsWhateverTheOrder) {
  const PrecisionMap map{{"*", Dtype::bf16}, {"layer.1", Dtype::f32}, {"layer.1.mlp.fc", Dtype::f16}};
  const PrecisionMap reversed{map.rbegin(), map.rend()};
  for (const PrecisionMap& rules : {map, reversed}) {
    auto got = parts(rules);
    EXPECT_EQ(got[Dtype::f16], List{"layer.1.mlp.fc"});
    EXPECT_EQ(got[Dtype::bf16].size(), 2u + 2u * 7u);
  }
}

TEST(Precision, WiderPatternsMayDisagreeUnderANarrowerOne) {
  ModelConfig config;
  config.n_layer = 7;  // as many layers as a layer has parts
  const PrecisionMap map{{"attention.q", Dtype::bf16}, {"layer.0", Dtype::f32}, {"layer.0.attention.q", Dtype::f16}};
  EXPECT_EQ(precision_of_parts(map, config)[1].dtype, Dtype::f16);
}

std::string refusal(const PrecisionMap& map) {
  try {
    precision_of_parts(map, three_layers());
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Precision, RefusesWhatMatchesNothingAndWhatContradictsItself) {
  for (const char* pattern :
       {"", ".", "atention", "attention.x", "attention.{q,x}", "layer", "layer.", "layer.a", "layer.2-1", "layer.-1",
        "ln_1", "h.0.ln_2", "layer.0.head", "q", "mlp.fc.bias", "{*,head}"})
    EXPECT_NE(refusal({{pattern, Dtype::bf16}}).find("bad precision map: pattern"), std::string::npos) << pattern;
  EXPECT_NE(refusal({{"layer.3", Dtype::bf16}}).find("matches no part, expected layers 0 to 2"), std::string::npos);
  EXPECT_NE(refusal({{"head", Dtype::bf16}, {"lm_head", Dtype::f16}}).find("head is bf16 by head and fp16 by lm_head"),
            std::string::npos);
}

TEST(Precision, NamesNodesOfParts) {
  EXPECT_EQ(nodes_of_part("layer.1.attention.core"), (List{"layer.1.attention", "layer.1.attention.cached"}));
  EXPECT_EQ(nodes_of_part("head"), List{"head"});
}

}  // namespace
}  // namespace lamina
