#include "io/hf_config.h"

#include <gtest/gtest.h>

#include "io/files.h"
#include "io/tiny.h"

namespace lamina {
namespace {

using test::expect_error;
using test::names;
using Json = nlohmann::json;

HfConfig parse(const Json& root) { return parse_hf_config(root.dump(), "c.json"); }

Json with(const std::string& key, const Json& value) {
  Json root = {{"model_type", "gpt2"}};
  root[key] = value;
  return root;
}

void expect_refused(const std::string& key, const Json& value, std::vector<std::string> words,
                    ErrorCode code = ErrorCode::invalid) {
  words.push_back("c.json");
  words.push_back(key);
  expect_error([&] { (void)parse(with(key, value)); }, code, words);
}

TEST(HfConfig, AbsentKeysHaveTheDocumentedDefaults) {
  const HfConfig read = parse({{"model_type", "gpt2"}});
  EXPECT_EQ(read.model, ModelConfig());
  EXPECT_TRUE(read.warnings.empty());
}

TEST(HfConfig, ReadsEveryKeyThatMatters) {
  const Json root = {{"model_type", "gpt2"},
                     {"vocab_size", 97},
                     {"n_positions", 16},
                     {"n_ctx", 16},
                     {"n_embd", 32},
                     {"n_layer", 3},
                     {"n_head", 4},
                     {"n_inner", 100},
                     {"activation_function", "gelu"},
                     {"layer_norm_epsilon", 1e-6},
                     {"resid_pdrop", 0},
                     {"embd_pdrop", 0.25},
                     {"attn_pdrop", 0.5},
                     {"initializer_range", 0.1},
                     {"scale_attn_weights", false},
                     {"scale_attn_by_inverse_layer_idx", true},
                     {"reorder_and_upcast_attn", true},
                     {"tie_word_embeddings", false},
                     {"bos_token_id", nullptr},
                     {"eos_token_id", 3}};
  ModelConfig expected;
  expected.vocab_size = 97;
  expected.n_positions = 16;
  expected.n_embd = 32;
  expected.n_layer = 3;
  expected.n_head = 4;
  expected.n_inner = 100;
  expected.activation_function = "gelu";
  expected.layer_norm_epsilon = 1e-6;
  expected.resid_pdrop = 0.0;
  expected.embd_pdrop = 0.25;
  expected.attn_pdrop = 0.5;
  expected.initializer_range = 0.1;
  expected.scale_attn_weights = false;
  expected.scale_attn_by_inverse_layer_idx = true;
  expected.reorder_and_upcast_attn = true;
  expected.tie_word_embeddings = false;
  expected.bos_token_id.reset();
  expected.eos_token_id = 3;
  EXPECT_EQ(parse(root).model, expected);
  EXPECT_TRUE(parse(root).warnings.empty());
}

TEST(HfConfig, WhatIsWrittenReadsBackEqual) {
  ModelConfig odd = test::tiny_config();
  odd.n_inner = 40;
  odd.activation_function = "gelu_pytorch_tanh";
  odd.layer_norm_epsilon = 1.0 / 3.0;
  odd.attn_pdrop = 0.1;
  odd.tie_word_embeddings = false;
  odd.bos_token_id.reset();
  for (const ModelConfig& config : {ModelConfig(), test::tiny_config(), odd}) {
    const HfConfig read = parse_hf_config(hf_config_text(config), "c.json");
    EXPECT_EQ(read.model, config);
    EXPECT_TRUE(read.warnings.empty());
  }
  const Json written = Json::parse(hf_config_text(ModelConfig()));
  EXPECT_EQ(written["architectures"], Json({"GPT2LMHeadModel"}));
  EXPECT_EQ(written["n_ctx"], 1024);
  EXPECT_EQ(written["n_inner"], nullptr);
  EXPECT_EQ(Json::parse(generation_config_text(ModelConfig()))["eos_token_id"], 50256);
  EXPECT_FALSE(Json::parse(generation_config_text(odd)).contains("bos_token_id"));
}

TEST(HfConfig, NamesOfOtherModelsForTheSameSize) {
  Json root = {
      {"model_type", "gpt2"}, {"hidden_size", 48}, {"num_hidden_layers", 2}, {"n_ctx", 32}, {"num_attention_heads", 3}};
  EXPECT_EQ(parse(root).model.n_embd, 48);
  EXPECT_EQ(parse(root).model.n_layer, 2);
  EXPECT_EQ(parse(root).model.n_head, 3);
  EXPECT_EQ(parse(root).model.n_positions, 32);
  root["n_positions"] = 64;
  expect_error([&] { (void)parse(root); }, ErrorCode::invalid, {"n_ctx", "32", "n_positions", "64"});
}

TEST(HfConfig, KeysWithoutEffectAreAccepted) {
  const Json root = {{"model_type", "gpt2"},
                     {"architectures", {"GPT2LMHeadModel"}},
                     {"transformers_version", "5.0.0"},
                     {"summary_type", "cls_index"},
                     {"summary_first_dropout", 0.1},
                     {"task_specific_params", {{"text-generation", {{"do_sample", true}}}}},
                     {"use_cache", true},
                     {"torch_dtype", "float16"},
                     {"dtype", "float32"},
                     {"add_cross_attention", false},
                     {"pad_token_id", nullptr},
                     {"gradient_checkpointing", false}};
  EXPECT_TRUE(parse(root).warnings.empty());
}

TEST(HfConfig, UnknownKeysAreWarnings) {
  const HfConfig read = parse(with("window_size", 256));
  ASSERT_EQ(read.warnings.size(), 1u);
  EXPECT_TRUE(names(read.warnings[0], "window_size"));
  EXPECT_TRUE(names(parse(Json::object()).warnings.at(0), "model_type"));
}

TEST(HfConfig, IdsBeyondTheVocabularyAreNone) {
  const HfConfig stated = parse({{"model_type", "gpt2"}, {"vocab_size", 97}, {"bos_token_id", 50256}});
  EXPECT_FALSE(stated.model.bos_token_id.has_value());
  EXPECT_FALSE(stated.model.eos_token_id.has_value());  // the default, which this vocabulary lacks
  ASSERT_EQ(stated.warnings.size(), 1u);
  EXPECT_TRUE(names(stated.warnings[0], "bos_token_id") && names(stated.warnings[0], "97"));
  EXPECT_EQ(parse(with("eos_token_id", Json::array({7}))).model.eos_token_id, 7);
}

TEST(HfConfig, RefusesByName) {
  expect_refused("model_type", "llama", {"llama", "gpt2"}, ErrorCode::unsupported);
  expect_refused("add_cross_attention", true, {"true"}, ErrorCode::unsupported);
  expect_refused("is_encoder_decoder", true, {}, ErrorCode::unsupported);
  expect_refused("pruned_heads", {{"0", {1}}}, {}, ErrorCode::unsupported);
  expect_refused("quantization_config", {{"bits", 4}}, {}, ErrorCode::unsupported);
  expect_refused("activation_function", "gelu_fancy", {"gelu_fancy"});
  expect_refused("activation_function", 3, {"3"});
  expect_refused("n_layer", 0, {"0"});
  expect_refused("n_layer", -1, {"-1"});
  expect_refused("n_layer", 12.0, {"whole number"});
  expect_refused("n_layer", "12", {"whole number", "\"12\""});
  expect_refused("n_layer", nullptr, {"null"});
  expect_refused("n_layer", 1ull << 63, {"9223372036854775808"});
  expect_refused("n_layer", 1ull << 40, {"1099511627776"});
  expect_refused("n_inner", 0, {"0"});
  expect_refused("n_head", 7, {"768", "7"});
  expect_refused("attn_pdrop", 1.1, {"1.1"});
  expect_refused("resid_pdrop", -0.1, {"-0.1"});
  expect_refused("embd_pdrop", "0.1", {"number"});
  expect_refused("layer_norm_epsilon", 0, {"0"});
  expect_refused("layer_norm_epsilon", Json::array({1}), {"a list"});
  expect_refused("tie_word_embeddings", 1, {"1"});
  expect_refused("scale_attn_weights", "true", {"\"true\""});
  expect_refused("eos_token_id", Json::array({1, 2}), {"a list"});
  expect_refused("eos_token_id", -1, {"-1"});
}

TEST(HfConfig, RefusesWhatIsNoConfig) {
  const auto refuse = [](const std::string& text, const std::vector<std::string>& words) {
    expect_error([&] { (void)parse_hf_config(text, "c.json"); }, ErrorCode::invalid, words);
  };
  refuse("", {"c.json"});
  refuse("[1]", {"c.json", "object"});
  refuse(R"({"n_layer":1,"n_layer":2})", {"c.json", "duplicate", "n_layer"});
  refuse(R"({"layer_norm_epsilon":NaN})", {"c.json", "byte"});
  refuse(R"({"layer_norm_epsilon":1e999})", {"c.json", "byte"});
}

TEST(HfConfig, FindsTheFile) {
  const test::TempDir dir;
  dir.write("config.json", R"({"model_type":"gpt2","n_layer":5})");
  dir.write("other.json", R"({"model_type":"gpt2","n_layer":6})");
  dir.write("model.safetensors", "");
  dir.write("model.safetensors.index.json", "");
  EXPECT_EQ(read_hf_config(dir.path()).model.n_layer, 5);
  EXPECT_EQ(read_hf_config(dir.file("other.json")).model.n_layer, 6);
  EXPECT_EQ(read_hf_config(dir.file("model.safetensors")).model.n_layer, 5);
  EXPECT_EQ(read_hf_config(dir.file("model.safetensors.index.json")).model.n_layer, 5);
  expect_error([&] { (void)read_hf_config(dir.file("none.json")); }, ErrorCode::io, {"none.json"});
}

}  // namespace
}  // namespace lamina
