#include <cmath>
#include <limits>
#include <set>

#include "base/half.h"
#include "io/atomic_file.h"
#include "io/hf_folder.h"
#include "io/widen.h"
#include "migrate/converted.h"

namespace lamina {
namespace {

TinyFile narrowed(TinyFile file, Dtype dtype) {
  for (test::TinyTensor& tensor : file) {
    std::string bytes;
    for (size_t at = 0; at < tensor.bytes.size(); at += 4) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + at, 4);
      const uint16_t word = to_16_bits(value, dtype);
      bytes.append(reinterpret_cast<const char*>(&word), 2);
    }
    tensor.bytes = bytes;
    tensor.dtype = dtype == Dtype::f16 ? "F16" : "BF16";
  }
  return file;
}

struct Way {
  std::string format, names;
};

// Every container, and every naming that can hold the model.
std::vector<Way> ways(bool untied) {
  std::vector<Way> out;
  for (const TargetFormat& format : target_formats())
    for (const NameProfile& names : name_profiles())
      if ((format.id == "hf" || names.id == format.names) && (!untied || !names.head.empty()))
        out.push_back({std::string(format.id), std::string(names.id)});
  return out;
}

// What holds q, k and v of each head together does not say so in its names.
std::string told_names(const Way& way) {
  return find_profile(way.names)->packing == QkvPacking::heads ? way.names : std::string();
}

void expect_round_trips(const TinyFile& file, const ModelConfig& config) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", file, config);
  const Conversion first = there(from, dir.file("same"), "hf");
  const std::string expected = read_bytes(dir.file("same/model.safetensors"));
  EXPECT_EQ(first.report.summary(), fmt::format("{0} of {0} tensors, 0 left over", file.size()));
  for (const Way& way : ways(!config.tie_word_embeddings)) {
    const std::string to = dir.file(way.format + "." + way.names);
    there(from, to, way.format, way.names);
    there(to, to + ".back", "hf", "", told_names(way));
    EXPECT_EQ(read_bytes(to + ".back/model.safetensors") == expected, true) << way.format << " " << way.names;
  }
}

TEST(Convert, EveryFormatAndNamingThereAndBackBitByBit) {
  expect_round_trips(tiny_tensors(), tiny_config());
  expect_round_trips(narrowed(tiny_tensors(), Dtype::f16), tiny_config());
  expect_round_trips(narrowed(tiny_tensors(), Dtype::bf16), tiny_config());
  ModelConfig untied = tiny_config();
  untied.tie_word_embeddings = false;
  expect_round_trips(tiny_tensors(2, true), untied);
}

TEST(Convert, OddShapesThereAndBack) {
  ModelConfig config;
  config.vocab_size = 7;
  config.n_positions = 5;
  config.n_embd = 12;
  config.n_layer = 1;
  config.n_head = 3;
  config.n_inner = 33;
  config.bos_token_id = config.eos_token_id = std::nullopt;
  const TempDir dir;
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  float next = 0.0F;
  save_hf_folder(dir.file("a"), config, [&](size_t i, float* data, int64_t stride_k, int64_t stride_n) {
    for (int64_t k = 0; k < specs[i].shape.rows(); ++k)
      for (int64_t n = 0; n < specs[i].shape.last(); ++n) data[k * stride_k + n * stride_n] = next++;
  });
  for (const Way& way : ways(false)) {
    const std::string to = dir.file(way.format + "." + way.names);
    there(dir.file("a"), to, way.format, way.names);
    there(to, to + ".back", "hf", "", told_names(way));
    EXPECT_EQ(read_bytes(to + ".back/model.safetensors") == read_bytes(dir.file("a/model.safetensors")), true)
        << way.format << " " << way.names;
  }
}

// The profile of HuggingFace against where parameters say that they lie.
TEST(NameProfile, HuggingFaceAsParametersSay) {
  ModelConfig config = tiny_config();
  config.tie_word_embeddings = false;
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::set<size_t> seen;
  for (const ProfileTensor& tensor : profile_tensors(*find_profile("hf"), config))
    for (const ParameterView& view : tensor.parts) {
      const HfSlice& hf = specs[view.spec].hf;
      EXPECT_EQ(hf.name, tensor.name);
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{hf.shape.dims.begin(), hf.shape.dims.begin() + hf.shape.rank}));
      EXPECT_EQ(view.offset, hf.column);
      EXPECT_EQ(view.stride_d, hf.transposed ? hf.shape.last() : 1);
      EXPECT_TRUE(seen.insert(view.spec).second);
    }
  EXPECT_EQ(seen.size(), specs.size());
}

// Element by element, by the rules that the programs state: Megatron-LM keeps [heads, 3, dim] rows.
TEST(NameProfile, HeadsTogetherAsMegatronKeepsThem) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  there(from, dir.file("b"), "hf", "megatron");
  const TensorFile a(dir.file("a/model.safetensors")), b(dir.file("b/model.safetensors"));
  const auto values = [](const TensorFile& file, const std::string& name) {
    for (const StoredTensor& tensor : file.content().tensors)
      if (tensor.name == name) return reinterpret_cast<const float*>(tensor.pieces[0].data());
    return static_cast<const float*>(nullptr);
  };
  const float* packed = values(a, "transformer.h.1.attn.c_attn.weight");
  const float* heads = values(b, "language_model.encoder.layers.1.self_attention.query_key_value.weight");
  const float* packed_bias = values(a, "transformer.h.1.attn.c_attn.bias");
  const float* heads_bias = values(b, "language_model.encoder.layers.1.self_attention.query_key_value.bias");
  ASSERT_TRUE(packed && heads && packed_bias && heads_bias);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t d = 0; d < 8; ++d) {
        const int64_t row = (h * 3 + part) * 8 + d, column = part * 16 + h * 8 + d;
        EXPECT_EQ(heads_bias[row], packed_bias[column]);
        for (int64_t k = 0; k < 16; ++k) EXPECT_EQ(heads[row * 16 + k], packed[k * 48 + column]);
      }
}

TEST(Convert, TheAccountNamesEveryTensor) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  there(from, dir.file("b"), "mindspore-ckpt", "mindformers-1.x");
  const Json json = account(dir.file("b"));
  EXPECT_EQ(json["from"]["names"], "hf");
  EXPECT_EQ(json["to"]["names"], "mindformers-1.x");
  EXPECT_EQ(json["parameters"], 8400);
  EXPECT_EQ(json["used"], 28);
  std::map<std::string, std::string> operation;
  std::set<std::string> sources;
  for (const Json& tensor : json["tensors"]) {
    operation[tensor["target"]] = tensor["operation"];
    EXPECT_EQ(tensor["hash"].get<std::string>().size(), 32u);
    for (const Json& source : tensor["from"]) sources.insert(source["name"]);
  }
  EXPECT_EQ(sources.size(), 28u);
  EXPECT_EQ(operation.size(), 36u);
  EXPECT_EQ(operation["backbone.blocks.0.attention.dense1.weight"], "split, transpose");
  EXPECT_EQ(operation["backbone.blocks.1.attention.dense3.bias"], "split");
  EXPECT_EQ(operation["backbone.blocks.0.attention.projection.weight"], "copy");
  EXPECT_EQ(operation["backbone.embedding.word_embedding.embedding_table"], "copy");
}

TEST(Convert, TheSameTwice) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  for (const char* to : {"b", "c"}) there(from, dir.file(to), "mindspore-ckpt");
  for (const char* name : {"/model.ckpt", "/conversion.json", "/config.json", "/load_mindspore.py"})
    EXPECT_EQ(read_bytes(dir.file("b") + name), read_bytes(dir.file("c") + name)) << name;
}

TEST(Convert, ATiedHeadIsToldOf) {
  const TempDir dir;
  TinyFile file = tiny_tensors();
  file.push_back({"lm_head.weight", {97, 16}, "F32", file[0].bytes});
  there(put_model(dir, "a", file), dir.file("b"), "hf");
  EXPECT_EQ(account(dir.file("b"))["tied"][0]["source"], "lm_head.weight");
  EXPECT_EQ(account(dir.file("b"))["tied"][0]["operation"], "tie");
}

TEST(Convert, RowsOfTheTableAreAddedAndCutOff) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  ConvertRequest request{.from = from, .to = dir.file("b"), .format = "mindspore", .vocab_size = 128};
  convert(request, kNoPoll);
  EXPECT_EQ(account(dir.file("b"))["tensors"][0]["operation"], "pad");
  EXPECT_EQ(read_hf_config(dir.file("b")).model.vocab_size, 128);
  request = {.from = dir.file("b"), .to = dir.file("c"), .format = "hf", .vocab_size = 97};
  convert(request, kNoPoll);
  EXPECT_EQ(account(dir.file("c"))["tensors"][0]["operation"], "trim");
  there(from, dir.file("d"), "hf");
  EXPECT_EQ(read_bytes(dir.file("c/model.safetensors")), read_bytes(dir.file("d/model.safetensors")));
}

TEST(Convert, TypesChangeOnRequestOnly) {
  const TempDir dir;
  const TinyFile file = tiny_tensors();
  const std::string from = put_model(dir, "a", file);
  for (const auto& [dtype, kind] : {std::pair{"fp16", Dtype::f16}, {"bf16", Dtype::bf16}}) {
    const std::string to = dir.file(dtype);
    convert({.from = from, .to = to, .format = "hf", .dtype = dtype}, kNoPoll);
    put_model(dir, "n", narrowed(file, kind));
    there(dir.file("n"), to + ".same", "hf");
    EXPECT_EQ(read_bytes(to + "/model.safetensors"), read_bytes(to + ".same/model.safetensors")) << dtype;
    EXPECT_EQ(account(to)["tensors"][3]["operation"], "cast");
    EXPECT_EQ(Json::parse(read_bytes(to + "/config.json"))["dtype"], kind == Dtype::f16 ? "float16" : "bfloat16");
  }
}

TEST(Convert, NumbersBeyondAType) {
  const TempDir dir;
  TinyFile file = tiny_tensors();
  const float large = 1e6F;
  std::memcpy(tensor_of(file, "transformer.ln_f.bias").bytes.data(), &large, 4);
  const std::string from = put_model(dir, "a", file);
  expect_error([&] { convert({.from = from, .to = dir.file("b"), .format = "hf", .dtype = "fp16"}, kNoPoll); },
               ErrorCode::invalid, {"transformer.ln_f.bias", "F16", "1000000"});
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"a"}));
}

std::vector<float> floats_of(const TensorFile& file, const std::string& name) {
  for (const StoredTensor& tensor : file.content().tensors) {
    if (tensor.name != name) continue;
    std::vector<float> out(tensor.pieces[0].size() / (tensor.dtype == "F32" ? 4 : 2));
    widen(tensor.dtype, tensor.pieces[0], out.data());
    return out;
  }
  return {};
}

TEST(Convert, PartsOfDifferentTypesDoNotBecomeOne) {
  const TempDir dir;
  TinyFile mixed = tiny_tensors();
  const std::string from = put_model(dir, "a", mixed);
  there(from, dir.file("b"), "mindspore");
  // Rewrite one of q, k, v as fp16 by a conversion of its own.
  convert({.from = from, .to = dir.file("h"), .format = "mindspore", .dtype = "fp16"}, kNoPoll);
  const TensorFile whole(dir.file("b/model.safetensors")), half(dir.file("h/model.safetensors"));
  TinyFile file;
  const std::string name = "layer.0.attention.k.weight";
  for (size_t i = 0; i < whole.content().tensors.size(); ++i) {
    const StoredTensor& tensor =
        whole.content().tensors[i].name == name ? half.content().tensors[i] : whole.content().tensors[i];
    file.push_back({tensor.name,
                    tensor.shape,
                    tensor.dtype,
                    {reinterpret_cast<const char*>(tensor.pieces[0].data()), tensor.pieces[0].size()}});
  }
  const std::string odd = put_model(dir, "odd", file);
  expect_error([&] { there(odd, dir.file("c"), "hf"); }, ErrorCode::invalid, {name, "F32", "F16", "c_attn"});
  // With one type asked for, each part is cast from its own: k alone has lost digits.
  for (const auto& [dtype, kind] : {std::pair{"fp32", Dtype::f32}, {"bf16", Dtype::bf16}}) {
    const std::string to = dir.file(std::string("c.") + dtype);
    convert({.from = odd, .to = to, .format = "hf", .dtype = dtype}, kNoPoll);
    const TensorFile done(to + "/model.safetensors"), original(dir.file("a/model.safetensors"));
    const std::vector<float> got = floats_of(done, "transformer.h.0.attn.c_attn.weight");
    const std::vector<float> expected = floats_of(original, "transformer.h.0.attn.c_attn.weight");
    ASSERT_EQ(got.size(), expected.size());
    for (size_t n = 0; n < got.size(); ++n) {
      const bool k = n % 48 >= 16 && n % 48 < 32;
      EXPECT_EQ(got[n], round_to(k ? from_f16(to_f16(expected[n])) : expected[n], kind)) << n;
    }
  }
}

TEST(Convert, NanIsReportedAndTakenWhereAllowed) {
  const TempDir dir;
  TinyFile file = tiny_tensors();
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  std::memcpy(tensor_of(file, "transformer.h.1.mlp.c_fc.bias").bytes.data() + 8, bad, 8);
  const std::string from = put_model(dir, "a", file);
  try {
    there(from, dir.file("b"), "mindspore");
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& error) {
    EXPECT_TRUE(test::names(error.what(), "layer.1.mlp.fc.bias")) << error.what();
    ASSERT_EQ(error.table().size(), 1u);
    EXPECT_TRUE(test::names(error.table()[0], "2")) << error.table()[0];
  }
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"a"}));
  const Conversion done =
      convert({.from = from, .to = dir.file("b"), .format = "mindspore", .allow_non_finite = true}, kNoPoll);
  EXPECT_EQ(done.non_finite.at("layer.1.mlp.fc.bias"), 2);
}

TEST(Convert, WhatIsLeftBehindIsAllowedByName) {
  const TempDir dir;
  TinyFile file = tiny_tensors();
  file.push_back(test::uniform("ema.wte", {2, 3}, 9, 0, 1));
  const std::string from = put_model(dir, "a", file);
  expect_error([&] { there(from, dir.file("b"), "hf"); }, ErrorCode::invalid, {"ema.wte"});
  const Conversion done = convert({.from = from, .to = dir.file("b"), .format = "hf", .allow = {"ema.*"}}, kNoPoll);
  EXPECT_EQ(done.report.allowed, (std::vector<std::string>{"ema.wte"}));
  EXPECT_EQ(account(dir.file("b"))["allowed"][0], "ema.wte");
  expect_error(
      [&] {
        convert({.from = from, .to = dir.file("c"), .format = "hf", .allow = {"*ln_f*", "ema.*"}}, kNoPoll);
      },
      ErrorCode::invalid, {"missing", "ln_f"});
}

TEST(Convert, WrongWordsAndPlaces) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  expect_error([&] { there(from, dir.file("b"), "onnx"); }, ErrorCode::usage, {"--to", "mindspore-ckpt", "onnx"});
  expect_error([&] { there(from, dir.file("b"), "hf", "tf"); }, ErrorCode::usage, {"--names", "nanogpt", "tf"});
  expect_error([&] { there(from, dir.file("b"), "hf", "", "tf"); }, ErrorCode::usage, {"--names-from", "tf"});
  expect_error([&] { there(from, from, "hf"); }, ErrorCode::invalid, {"not empty", "config.json"});
  expect_error([&] { there(from, dir.file("a/config.json"), "hf"); }, ErrorCode::io, {"a/config.json", "file"});
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"a"}));
  std::filesystem::create_directories(dir.file("empty"));
  EXPECT_NO_THROW(there(from, dir.file("empty"), "hf"));
  EXPECT_NO_THROW(there(from, dir.file("new/deep/"), "hf"));
}

TEST(Convert, AFullDiskLeavesNothing) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  {
    const test::FileSizeLimit limit(20000);
    expect_error([&] { there(from, dir.file("b"), "hf"); }, ErrorCode::io, {"model.safetensors"});
  }
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"a"}));
}

TEST(Convert, AStopLeavesNothing) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  int calls = 0;
  const auto stop = [&] {
    if (++calls == 9) throw_error(ErrorCode::io, "stopped");
  };
  expect_error([&] { convert({.from = from, .to = dir.file("b"), .format = "torch"}, stop); }, ErrorCode::io,
               {"stopped"});
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"a"}));
}

TEST(Convert, AFileWithoutAConfig) {
  const TempDir dir;
  const std::string file = dir.write("model.safetensors", tiny_safetensors(tiny_tensors()));
  expect_error([&] { there(file, dir.file("b"), "hf"); }, ErrorCode::invalid, {"config.json"});
  // It is read under whatever name it has, and not another beside it.
  const std::string config = dir.write("elsewhere/two.cfg", hf_config_text(tiny_config()));
  dir.write("elsewhere/config.json", "[]");
  EXPECT_NO_THROW(convert({.from = file, .to = dir.file("b"), .format = "hf", .config = config}, kNoPoll));
}

// Keys of the source's config.json that mean nothing here come along.
TEST(Convert, TheConfigKeepsItsKeys) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  Json config = Json::parse(hf_config_text(tiny_config()));
  config["_name_or_path"] = "mine";
  dir.write("a/config.json", config.dump());
  dir.write("a/merges.txt", "#version: 0.2\n");
  there(from, dir.file("b"), "mindspore");
  EXPECT_EQ(Json::parse(read_bytes(dir.file("b/config.json")))["_name_or_path"], "mine");
  EXPECT_EQ(read_bytes(dir.file("b/merges.txt")), "#version: 0.2\n");
}

TEST(Convert, PatternsOfNames) {
  for (const auto& [pattern, name] :
       {std::pair{"*", "a.b"}, {"a.*", "a.b"}, {"*b", "a.b"}, {"a*b*c", "aXbYbc"}, {"a", "a"}})
    EXPECT_TRUE(fits_pattern(pattern, name)) << pattern << " " << name;
  for (const auto& [pattern, name] : {std::pair{"", "a"}, {"a", "ab"}, {"*a", "ab"}, {"a*c", "ab"}, {"b*", "ab"}})
    EXPECT_FALSE(fits_pattern(pattern, name)) << pattern << " " << name;
}

// Two words for one setting would contradict each other as soon as one changes.
TEST(Convert, TheConfigHasOneWordForEachSetting) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  Json config = Json::parse(hf_config_text(tiny_config()));
  config["num_attention_heads"] = 2;
  dir.write("a/config.json", config.dump());
  config.erase("num_attention_heads");
  config["n_head"] = 4;
  const std::string given = dir.write("four.json", config.dump());
  convert({.from = from, .to = dir.file("b"), .format = "hf", .config = given}, kNoPoll);
  EXPECT_EQ(read_hf_config(dir.file("b")).model.n_head, 4);
  there(from, dir.file("c"), "hf");
  EXPECT_EQ(read_hf_config(dir.file("c")).model.n_head, 2);
}

TEST(Convert, AnIndexOfNothing) {
  const TempDir dir;
  dir.write("a/model.safetensors.index.json", R"({"weight_map":{}})");
  expect_error([&] { there(dir.file("a"), dir.file("b"), "hf"); }, ErrorCode::invalid, {"no config", "config.json"});
  dir.write("a/config.json", hf_config_text(tiny_config()));
  expect_error([&] { there(dir.file("a"), dir.file("b"), "hf"); }, ErrorCode::invalid, {"missing", "wte.weight"});
}

TEST(Convert, PlacesThatARenameCannotTake) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  std::filesystem::create_directories(dir.file("empty"));
  std::filesystem::create_directory_symlink(dir.file("empty"), dir.file("link"));
  std::filesystem::create_directory_symlink(dir.file("nothing"), dir.file("dangling"));
  EXPECT_NO_THROW(there(from, dir.file("link"), "hf"));
  EXPECT_TRUE(std::filesystem::exists(dir.file("empty/conversion.json")));
  expect_error([&] { there(from, "", "hf"); }, ErrorCode::invalid, {"empty"});
  expect_error([&] { there(from, ".", "hf"); }, ErrorCode::io, {"current"});
  // What a killed process of the same number has left is in nobody's way.
  const std::string rest = std::filesystem::path(temporary_name(dir.file("d"))).filename().string();
  const size_t dash = rest.rfind('-');
  const int64_t number = std::stoll(rest.substr(dash + 1));
  std::filesystem::create_directories(dir.file(rest.substr(0, dash + 1) + std::to_string(number + 1) + ".tmp"));
  EXPECT_NO_THROW(there(from, dir.file("d"), "hf"));
}

}  // namespace
}  // namespace lamina
