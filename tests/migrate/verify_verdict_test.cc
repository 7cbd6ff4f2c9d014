// What decides besides numbers that lie apart.
#include "migrate/verify_verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "verify_tiny.h"

namespace lamina {
namespace {

using test::inputs_of, test::tiny, test::weight, test::witness_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

VerifyModel with(const std::string& name, float value, const ModelConfig& config = test::tiny_config()) {
  VerifyModel out = tiny(config);
  weight(out, name)[5] = value;
  return out;
}

// Whose weights overflow in fp32 and not in double.
VerifyModel large() {
  VerifyModel out = tiny();
  for (const char* name : {"layer.1.attention.q.weight", "layer.1.attention.k.weight"})
    weight(out, name).assign(256, 1e30F);
  return out;
}

void expect_not_finite(const VerifyReport& report, const std::string& tensor, const std::string& whose) {
  EXPECT_FALSE(report.equal);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->tensor, tensor);
  EXPECT_EQ(report.cause_id, "not_finite");
  EXPECT_NE(report.cause.find("not finite (NaN, infinity): " + tensor + ", " + whose), std::string::npos)
      << report.cause;
}

TEST(VerifyVerdict, WeightsThatAreNotFiniteAreEqualToNothing) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  const std::string name = "layer.1.mlp.fc.bias";
  for (const float value : {kNan, kInf, -kInf}) {
    const VerifyModel bad = with(name, value);
    expect_not_finite(verify_models(bad, a, inputs, {}), name, "the weights of A");
    expect_not_finite(verify_models(a, bad, inputs, {}), name, "the weights of B");
    expect_not_finite(verify_models(bad, bad, inputs, {}), name, "the weights of A");
    expect_not_finite(verify_models(bad, bad, inputs, {.tolerance = kInf}), name, "the weights of A");
    expect_not_finite(verify_witness(bad, witness_of(WhatIf(a), inputs), inputs, {}), name, "the weights of A");
  }
}

TEST(VerifyVerdict, WeightsThatOverflowAreEqualToNothing) {
  const VerifyModel a = tiny(), b = large();
  const VerifyInputs inputs = inputs_of(a.config);
  const std::string name = "layer.1.attention.residual";
  expect_not_finite(verify_models(b, a, inputs, {}), name, "A in fp32");
  expect_not_finite(verify_models(a, b, inputs, {}), name, "B in fp32");
  expect_not_finite(verify_models(b, b, inputs, {}), name, "A in fp32");
  expect_not_finite(verify_witness(b, witness_of(WhatIf(b), inputs), inputs, {}), name, "A in fp32");
}

TEST(VerifyVerdict, NumbersOfAProgramThatAreNotFinite) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  for (const char* name : {"logits", "loss", "grad.layer.0.ln_1.bias"}) {
    Witness witness = witness_of(WhatIf(a), inputs);
    for (NamedNumbers& tensor : witness.numbers)
      if (tensor.name == name) tensor.values[0] = kNan;
    expect_not_finite(verify_witness(a, witness, inputs, {}), name, "the witness");
  }
  Witness padded = witness_of(WhatIf(a), inputs);  // what stands beside the ids is never compared
  for (NamedNumbers& tensor : padded.numbers) {
    if (tensor.name != "logits") continue;
    NamedNumbers wide{tensor.name, {tensor.shape[0], tensor.shape[1], tensor.shape[2] + 1}, {}};
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      wide.values.push_back(tensor.values[i]);
      if ((i + 1) % static_cast<size_t>(tensor.shape[2]) == 0) wide.values.push_back(-kInf);
    }
    tensor = wide;
  }
  EXPECT_TRUE(verify_witness(a, padded, inputs, {}).equal);
}

// What cannot be measured allows nothing.
TEST(VerifyVerdict, AnInfiniteErrorNeverFitsAndIsNoTolerance) {
  EXPECT_FALSE((TensorGap{"x", kInf, kInf, 0.0}.fits()));
  EXPECT_FALSE((TensorGap{"x", kNan, kInf, 0.0}.fits()));
  const Tolerances tolerances({{{"x", 1e-6}, {"y", kInf}}, {{"x", kInf}, {"y", kInf}}});
  for (const char* name : {"x", "y"}) EXPECT_DOUBLE_EQ(tolerances.of(name, kUnit32), 4e-6);
  const Numbers vast{{"x", {2}, {1e200, 1e200}}}, other{{"x", {2}, {1e200, 2e200}}};  // whose squares overflow
  EXPECT_EQ(gap_of(vast, vast[0], other[0])->error, kInf);
}

void expect_rows(const VerifyReport& report, const std::string& cause) {
  EXPECT_FALSE(report.equal);
  EXPECT_EQ(report.cause_id, "untouched_rows");
  EXPECT_EQ(report.cause, cause + " of this comparison reads " + (cause.starts_with("row ") ? "it" : "them"));
  EXPECT_EQ(report.first->tensor, report.weights.at(0).tensor);
}

TEST(VerifyVerdict, RowsThatNoTokenReadsAreCompared) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config, 12);
  VerifyModel b = tiny();
  std::vector<float>& positions = weight(b, "embedding.position");  // (16, 16)
  positions[16 + 15] += 1e-6F;
  expect_rows(verify_models(a, b, inputs, {}), "row 15 of embedding.position differs; no token");
  positions[12] = 3.0F;
  expect_rows(verify_models(b, a, inputs, {}), "2 rows of embedding.position, from 12 to 15, differ; no token");
  positions[32 + 13] = positions[14] = 0.5F;
  expect_rows(verify_models(a, b, inputs, {}), "rows 12 to 15 of embedding.position differ; no token");
  EXPECT_TRUE(verify_models(a, b, inputs, {.tolerance = 100.0}).equal);
  positions[3] += 1.0F;  // and one that is read
  EXPECT_NE(verify_models(a, b, inputs, {}).cause_id, "untouched_rows");
}

// Where the head is the table, every row is read by the logits; where it is not, only those of the tokens are.
TEST(VerifyVerdict, RowsOfATableThatIsNoHead) {
  ModelConfig untied = test::tiny_config();
  untied.tie_word_embeddings = false;
  const VerifyInputs inputs = inputs_of(untied, 4);
  size_t unread = 0;
  while (std::find(inputs.tokens.begin(), inputs.tokens.end(), static_cast<int32_t>(unread)) != inputs.tokens.end())
    ++unread;
  const VerifyModel a = tiny(untied), tied = tiny();
  VerifyModel b = tiny(untied), copy = tiny(untied);
  weight(b, "embedding.token")[unread] += 1.0F;
  const std::string cause = "row " + std::to_string(unread) + " of embedding.token differs; no token";
  expect_rows(verify_models(a, b, inputs, {}), cause);
  weight(copy, "head.weight") = weight(copy, "embedding.token");
  EXPECT_TRUE(verify_models(tied, copy, inputs, {}).equal);
  weight(copy, "embedding.token")[unread] += 1.0F;
  expect_rows(verify_models(tied, copy, inputs, {}), cause);
}

// The softmax cancels it, so it is no difference though the weights differ.
TEST(VerifyVerdict, ABiasOfTheKeysIsNoDifference) {
  const VerifyModel a = tiny();
  VerifyModel b = tiny();
  weight(b, "layer.0.attention.k.bias").assign(16, 0.0F);
  const VerifyReport report = verify_models(a, b, inputs_of(a.config), {});
  EXPECT_TRUE(report.equal) << report.cause;
  EXPECT_EQ(report.weights.size(), 1u);
}

TEST(VerifyVerdict, AnFp32ThatIsWorseThanItsRoundingIsNoDifferenceOfTheTwo) {
  VerifyReport report;
  report.equal = false;
  report.where = "A in fp32 and in double";
  explain_fast(report, false);
  EXPECT_EQ(report.cause, "");
  explain_fast(report, true);
  EXPECT_EQ(report.cause_id, "fp32");
  EXPECT_NE(report.cause.find("agree in double; A in fp32 is further"), std::string::npos);
}

// Where the softmax has decided, do·v and do·o of attention's gradient are the same number, and whether their
// difference is 0 or a rounding is a matter of the order in which each is added up.
TEST(VerifyVerdict, RaisesNoFalseAlarmForLargeWeights) {
  for (const int64_t heads : {1, 2, 4, 8})
    for (const int64_t tokens : {1, 2, 16})
      for (const float scale : {8.0F, 32.0F}) {
        ModelConfig config = test::tiny_config();
        config.n_head = heads;
        VerifyModel a = tiny(config);
        for (std::vector<float>& values : a.weights)
          for (float& x : values) x *= scale;
        const VerifyReport report = verify_models(a, a, inputs_of(config, tokens), {});
        EXPECT_TRUE(report.equal) << heads << " " << tokens << " " << scale << " " << report.where << " "
                                  << (report.first ? report.first->tensor : "");
      }
}

}  // namespace
}  // namespace lamina
