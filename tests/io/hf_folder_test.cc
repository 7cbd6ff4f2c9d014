#include "io/hf_folder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/layout.h"
#include "io/hf_config.h"
#include "io/model_weights.h"
#include "io/tiny.h"
#include "io/widen.h"

namespace lamina {
namespace {

using test::expect_error;
using test::f32;
using test::names;
using test::TempDir;
using test::tensor_of;
using test::tiny_config;
using test::tiny_safetensors;
using test::tiny_tensors;
using test::TinyFile;
using test::TinyTensor;

// Every parameter as row-major (K, N).
std::vector<std::vector<float>> parameters(const std::string& path, const ModelConfig& config,
                                           LoadReport* report = nullptr) {
  const ModelWeights weights(path, config);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::vector<std::vector<float>> out(specs.size());
  weights.read([&](size_t i, const float* data, int64_t stride_k, int64_t stride_n) {
    EXPECT_TRUE(out[i].empty()) << "twice: " << specs[i].name;
    const Shape& shape = specs[i].shape;
    const int64_t K = shape.rank == 2 ? shape[0] : 1, N = shape.last();
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < N; ++n) out[i].push_back(data[k * stride_k + n * stride_n]);
  });
  for (size_t i = 0; i < specs.size(); ++i)
    EXPECT_EQ(static_cast<int64_t>(out[i].size()), specs[i].shape.elements()) << specs[i].name;
  if (report != nullptr) *report = weights.report();
  return out;
}

// A folder with one file of these tensors, loaded.
struct Loaded {
  std::vector<std::vector<float>> values;
  LoadReport report;
};

Loaded load(const TinyFile& file, const ModelConfig& config = tiny_config(), size_t pad = 0) {
  const TempDir dir;
  dir.write("model.safetensors", tiny_safetensors(file, pad));
  Loaded out;
  out.values = parameters(dir.path(), config, &out.report);
  return out;
}

void expect_refused(const TinyFile& file, const std::vector<std::string>& words,
                    const ModelConfig& config = tiny_config()) {
  expect_error([&] { (void)load(file, config); }, ErrorCode::invalid, words);
}

void expect_equal(const Loaded& got, const Loaded& expected) { EXPECT_EQ(got.values, expected.values); }

const Loaded& tiny() {
  static const Loaded loaded = load(tiny_tensors());
  return loaded;
}

TEST(HfFolder, EachParameterHasItsPlaceInTheFile) {
  const std::vector<ParameterSpec> specs = parameter_specs(tiny_config());
  EXPECT_EQ(tiny().report.summary(), "28 of 28 tensors, 0 left over");
  EXPECT_TRUE(tiny().report.warnings.empty());
  EXPECT_TRUE(tiny().report.removed.empty());
  const auto at = [&](const std::string& name) -> const std::vector<float>& {
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i].name == name) return tiny().values[i];
    throw std::runtime_error(name);
  };
  const std::vector<float> table = test::tiny_values(0, 97 * 16, 0, 0.5);
  const std::vector<float> packed = test::tiny_values(32 + 2, 16 * 48, 0, 0.5);  // layer 1, c_attn.weight
  const std::vector<float> bias = test::tiny_values(32 + 3, 48, 0, 0.25);
  const std::vector<float> proj = test::tiny_values(16 + 4, 16 * 16, 0, 0.25);
  for (size_t row = 0; row < 97; ++row)
    for (size_t c = 0; c < 16; ++c) ASSERT_EQ(at("embedding.token")[c * 97 + row], table[row * 16 + c]);
  const char* qkv[] = {"layer.1.attention.q", "layer.1.attention.k", "layer.1.attention.v"};
  for (size_t block = 0; block < 3; ++block)
    for (size_t n = 0; n < 16; ++n) {
      const std::string name = qkv[block];
      ASSERT_EQ(at(name + ".bias")[n], bias[block * 16 + n]);
      for (size_t k = 0; k < 16; ++k) ASSERT_EQ(at(name + ".weight")[k * 16 + n], packed[k * 48 + block * 16 + n]);
    }
  EXPECT_EQ(at("layer.0.attention.proj.weight"), proj);  // square: a transpose would fit, and be wrong
}

TEST(HfFolder, UnalignedDataLoadsTheSame) {
  for (const size_t pad : {1, 2, 3, 4}) expect_equal(load(tiny_tensors(), tiny_config(), pad), tiny());
}

TEST(HfFolder, SaveAndLoadAreBitEqual) {
  for (const bool untied : {false, true}) {
    const TempDir dir;
    ModelConfig config = tiny_config();
    config.tie_word_embeddings = !untied;
    dir.write("in/model.safetensors", tiny_safetensors(tiny_tensors(2, untied)));
    const std::vector<std::vector<float>> values = parameters(dir.file("in"), config);
    const std::vector<ParameterSpec> specs = parameter_specs(config);
    const auto save = [&](const std::string& folder) {
      save_hf_folder(folder, config, [&](size_t i, float* data, int64_t stride_k, int64_t stride_n) {
        const Shape& shape = specs[i].shape;
        const int64_t N = shape.last(), K = shape.elements() / N;
        for (int64_t k = 0; k < K; ++k)
          for (int64_t n = 0; n < N; ++n) data[k * stride_k + n * stride_n] = values[i][static_cast<size_t>(k * N + n)];
      });
    };
    save(dir.file("out"));
    save(dir.file("again"));
    const std::string written = test::read_bytes(dir.file("out/model.safetensors"));
    EXPECT_EQ(written, test::read_bytes(dir.file("again/model.safetensors")));
    EXPECT_EQ(written, tiny_safetensors(tiny_tensors(2, untied)));  // names, order, packing and values
    EXPECT_EQ(read_hf_config(dir.file("out")).model, config);
    EXPECT_EQ(parameters(dir.file("out"), config), values);
    EXPECT_EQ(SafetensorsFile(dir.file("out/model.safetensors")).tensors().size(), untied ? 29u : 28u);
  }
}

TEST(HfFolder, PanelsPackStraightFromTheFile) {
  const TempDir dir;
  dir.write("model.safetensors", tiny_safetensors(tiny_tensors()));
  const std::vector<ParameterSpec> specs = parameter_specs(tiny_config());
  ModelWeights(dir.file("model.safetensors"), tiny_config())
      .read([&](size_t i, const float* data, int64_t stride_k, int64_t stride_n) {
        if (specs[i].shape.rank != 2) return;
        const int64_t K = specs[i].shape[0], N = specs[i].shape[1];
        std::vector<float> panel(static_cast<size_t>(storage_elements(specs[i].shape, Layout::panel(16))));
        pack_panel(data, stride_k, stride_n, panel.data(), K, N, 16);
        std::vector<float> back(static_cast<size_t>(K * N));
        unpack_panel(panel.data(), back.data(), N, 1, K, N, 16);
        EXPECT_EQ(back, tiny().values[i]) << specs[i].name;
      });
}

TEST(HfFolder, C1TiedHeadInTheFile) {
  TinyFile file = tiny_tensors();
  file.push_back(tensor_of(file, "transformer.wte.weight"));
  file.back().name = "lm_head.weight";
  expect_equal(load(file), tiny());
  EXPECT_EQ(load(file).report.summary(), "28 of 28 tensors, 0 left over");
  file.back().bytes[100] ^= 1;
  expect_refused(file, {"wte.weight", "lm_head.weight", "tie_word_embeddings"});
  file.back().shape = {16, 97};
  expect_refused(file, {"lm_head.weight", "97", "16"});
}

TEST(HfFolder, M1Spellings) {
  expect_equal(load(tiny_tensors(2, false, "")), tiny());
  EXPECT_TRUE(load(tiny_tensors(2, false, "")).report.warnings.empty());
  TinyFile half = tiny_tensors(2, false, "");
  for (size_t i = 1; i < half.size(); i += 2) half[i].name = "transformer." + half[i].name;
  expect_refused(half, {"transformer.", "\"wte.weight\""});
  TinyFile both = tiny_tensors();
  both.push_back(both[0]);
  both.back().name = "wte.weight";
  expect_refused(both, {"\"wte.weight\"", "\"transformer.wte.weight\""});
}

TEST(HfFolder, M2ConstantBuffers) {
  const auto with_buffers = [](const std::string& dtype, int64_t size, size_t width, const std::string& name) {
    TinyFile file = tiny_tensors();
    for (const char* h : {"transformer.h.0.", "transformer.h.1."}) {
      file.push_back(
          {h + name, {1, 1, size, size}, dtype, std::string(static_cast<size_t>(size * size) * width, '\1')});
      file.push_back(f32(std::string(h) + "attn.masked_bias", {}, {-1e4f}));
    }
    return file;
  };
  for (const auto& [dtype, width] : {std::pair<const char*, size_t>{"U8", 1}, {"BOOL", 1}, {"F32", 4}}) {
    const Loaded loaded = load(with_buffers(dtype, 16, width, "attn.bias"));
    expect_equal(loaded, tiny());
    EXPECT_EQ(loaded.report.ignored.size(), 4u);
    EXPECT_EQ(loaded.report.ignored[0], "transformer.h.0.attn.bias");
    EXPECT_EQ(loaded.report.ignored[1], "transformer.h.0.attn.masked_bias");
    EXPECT_EQ(loaded.report.summary(), "28 of 28 tensors, 0 left over");
  }
  expect_refused(with_buffers("U8", 17, 1, "attn.bias"), {"attn.bias", "16", "17"});
  expect_refused(with_buffers("U8", 16, 1, "attn.bias2"), {"attn.bias2"});
}

TEST(HfFolder, M3NamesOfWrappedModels) {
  for (const std::string front : {"_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.",
                                  "_orig_mod.module._orig_mod.module.", "model.", "a.b.module.c."}) {
    const Loaded loaded = load(tiny_tensors(2, false, front + "transformer."));
    expect_equal(loaded, tiny());
    EXPECT_EQ(loaded.report.removed, std::vector<std::string>{front});
    EXPECT_EQ(load(tiny_tensors(2, false, front)).report.removed, std::vector<std::string>{front});
  }
  TinyFile inner = tiny_tensors();
  for (TinyTensor& tensor : inner)
    if (const size_t at = tensor.name.find("h.1."); at != std::string::npos) tensor.name.insert(at + 4, "_orig_mod.");
  expect_equal(load(inner), tiny());
  EXPECT_EQ(load(inner).report.removed, std::vector<std::string>{"_orig_mod."});

  // The head of an untied model stands beside "transformer.", behind the same front part.
  ModelConfig untied = tiny_config();
  untied.tie_word_embeddings = false;
  const Loaded plain = load(tiny_tensors(2, true), untied);
  TinyFile wrapped = tiny_tensors(2, true, "_orig_mod.transformer.");
  expect_equal(load(wrapped, untied), plain);
  wrapped.back().name = "_orig_mod.lm_head.weight";
  expect_equal(load(wrapped, untied), plain);
  wrapped.back().name = "other.lm_head.weight";
  expect_refused(wrapped, {"\"other.lm_head.weight\"", "extra", "missing", "\"lm_head.weight\""}, untied);
}

TEST(HfFolder, M8TiedOrNot) {
  ModelConfig untied = tiny_config();
  untied.tie_word_embeddings = false;
  const Loaded head = load(tiny_tensors(2, true), untied);
  EXPECT_EQ(head.report.summary(), "29 of 29 tensors, 0 left over");
  EXPECT_EQ(head.values.size(), tiny().values.size() + 1);
  expect_refused(tiny_tensors(), {"lm_head.weight", "tie_word_embeddings"}, untied);
}

TEST(HfFolder, M14NothingByItsEnding) {
  TinyFile renamed = tiny_tensors();
  tensor_of(renamed, "transformer.h.0.ln_1.weight").name = "old.ln_1.weight";
  expect_refused(renamed, {"transformer.h.0.ln_1.weight", "old.ln_1.weight", "missing", "extra"});
  TinyFile stranger = tiny_tensors();
  stranger.push_back(f32("teacher.transformer.wte.weight", {97, 16}, std::vector<float>(97 * 16)));
  expect_refused(stranger, {"teacher.transformer.wte.weight", "\"transformer.wte.weight\""});
  TinyFile short_one = tiny_tensors();
  TinyTensor& cut = tensor_of(short_one, "transformer.h.1.ln_1.weight");
  cut.shape = {15};
  cut.bytes.resize(60);
  expect_refused(short_one, {"transformer.h.1.ln_1.weight", "16", "15", "misshapen"});
}

TEST(HfFolder, M14TypesWidenExactly) {
  for (const std::string dtype : {"F16", "BF16"}) {
    TinyFile file = tiny_tensors();
    TinyTensor& tensor = tensor_of(file, "transformer.h.1.ln_1.weight");
    tensor.dtype = dtype;
    tensor.bytes = std::string("\x00\x3c\x01\x00\xff\x7b\x00\xfc\x00\x80", 10) + std::string(22, '\0');
    const Loaded loaded = load(file);
    EXPECT_TRUE(names(loaded.report.narrow, "transformer.h.1.ln_1.weight")) << loaded.report.narrow;
    EXPECT_TRUE(names(loaded.report.narrow, dtype)) << loaded.report.narrow;
    const std::vector<ParameterSpec> specs = parameter_specs(tiny_config());
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i].name == "layer.1.ln_1.weight") {
        std::vector<float> expected(16);
        widen(dtype, std::as_bytes(std::span(tensor.bytes)), expected.data());
        EXPECT_EQ(loaded.values[i], expected);
      } else {
        EXPECT_EQ(loaded.values[i], tiny().values[i]) << specs[i].name;
      }
  }
  TinyFile wide = tiny_tensors();
  TinyTensor& tensor = tensor_of(wide, "transformer.ln_f.bias");
  tensor.dtype = "F64";
  tensor.bytes.resize(128);
  expect_refused(wide, {"transformer.ln_f.bias", "F64", "mistyped"});
}

TEST(HfFolder, M15TheNumberOfLayers) {
  expect_refused(tiny_tensors(3), {"n_layer", "2", "3", "h.2."});
  expect_refused(tiny_tensors(1), {"n_layer", "2", "1", "h.1."});
  TinyFile gap = tiny_tensors();
  for (TinyTensor& tensor : gap)
    if (const size_t at = tensor.name.find("h.1."); at != std::string::npos) tensor.name[at + 2] = '2';
  expect_refused(gap, {"h.1.", "h.2."});
  ModelConfig three = tiny_config();
  three.n_layer = 3;
  EXPECT_EQ(load(tiny_tensors(3), three).report.summary(), "40 of 40 tensors, 0 left over");
  three.n_layer = 1 << 24;  // what a config claims costs nothing
  expect_refused(tiny_tensors(3), {"n_layer", "16777216", "3"}, three);
  TinyFile spelt = tiny_tensors();
  tensor_of(spelt, "transformer.h.1.ln_1.bias").name = "transformer.h.01.ln_1.bias";
  expect_refused(spelt, {"transformer.h.01.ln_1.bias", "transformer.h.1.ln_1.bias"});
}

TEST(HfFolder, ManyProblemsOneLineAndATable) {
  TinyFile file = tiny_tensors();
  for (TinyTensor& tensor : file) tensor.name = "x" + tensor.name + "y";
  const TempDir dir;
  dir.write("model.safetensors", tiny_safetensors(file));
  try {
    ModelWeights weights(dir.path(), tiny_config());
    FAIL();
  } catch (const LoadError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    EXPECT_LT(std::string(error.what()).size(), 1000u);
    EXPECT_EQ(error.table().size(), 28u + 1u + 4u);  // all extra, both layers, the four outer ones missing
  }
}

TEST(HfFolder, PaddedVocabularyIsNamed) {
  ModelConfig config = tiny_config();
  config.vocab_size = 99;
  expect_refused(tiny_tensors(), {"wte.weight", "97", "99", "vocab_size"}, config);
}

TEST(HfFolder, FilesThatAreNotThere) {
  const TempDir dir;
  const auto open = [&] { ModelWeights(dir.path(), tiny_config()); };
  expect_error(open, ErrorCode::io, {dir.path(), "model.safetensors"});
  dir.write("pytorch_model.bin", "\x80\x02}q.");
  expect_error(open, ErrorCode::invalid, {"pytorch_model.bin", "bad pickle", "truncated"});
  dir.write("pytorch_model.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548105171\n");
  expect_error(open, ErrorCode::invalid, {"pytorch_model.bin", "Git LFS pointer", "548105171"});
  expect_error([&] { ModelWeights(dir.file("pytorch_model.bin"), tiny_config()); }, ErrorCode::invalid,
               {"pytorch_model.bin", "Git LFS pointer"});
  expect_error([&] { ModelWeights(dir.file("none.safetensors"), tiny_config()); }, ErrorCode::io, {"none.safetensors"});
  dir.write("model.safetensors", "");
  expect_error(open, ErrorCode::invalid, {"model.safetensors", "0", "8"});
}

// Tiny in three shards of ten tensors and their index; `edit` spoils both before they are written.
using Shards = std::map<std::string, TinyFile>;
using Index = std::map<std::string, std::string>;

void write_shards(const TempDir& dir, const std::function<void(Shards&, Index&)>& edit, int64_t total = 33600) {
  Shards shards;
  Index index;
  const TinyFile all = tiny_tensors();
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string shard = "model-0000" + std::to_string(i / 10 + 1) + "-of-00003.safetensors";
    shards[shard].push_back(all[i]);
    index[all[i].name] = shard;
  }
  edit(shards, index);
  for (const auto& [name, tensors] : shards) dir.write(name, tiny_safetensors(tensors));
  dir.write("model.safetensors.index.json",
            nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", index}}.dump());
}

TEST(HfFolder, C14Shards) {
  const std::string second = "model-00002-of-00003.safetensors", lost = "transformer.h.1.ln_1.weight";
  const auto refuse = [](const std::function<void(Shards&, Index&)>& edit, const std::vector<std::string>& words) {
    const TempDir dir;
    write_shards(dir, edit);
    expect_error([&] { ModelWeights(dir.path(), tiny_config()); }, ErrorCode::invalid, words);
  };
  const TempDir sound;
  write_shards(sound, [](Shards&, Index&) {});
  LoadReport report;
  EXPECT_EQ(parameters(sound.path(), tiny_config(), &report), tiny().values);
  EXPECT_EQ(report.summary(), "28 of 28 tensors, 0 left over");
  EXPECT_TRUE(report.warnings.empty());
  EXPECT_EQ(parameters(sound.file("model.safetensors.index.json"), tiny_config()), tiny().values);

  refuse([&](Shards& shards, Index&) { shards.erase(second); }, {second});
  refuse([&](Shards& shards, Index& index) { tensor_of(shards[index[lost]], lost).name += "x"; },
         {lost, "\"" + lost + "x\""});
  refuse(
      [&](Shards& shards, Index&) {
        shards["model-00003-of-00003.safetensors"].push_back(
            f32("transformer.wte.weight", {97, 16}, std::vector<float>(97 * 16)));
      },
      {"transformer.wte.weight", "00001-of-00003", "00003-of-00003"});
  refuse(
      [&](Shards&, Index& index) { index[lost] = second == index[lost] ? "model-00001-of-00003.safetensors" : second; },
      {lost, second});
  refuse([&](Shards&, Index& index) { index.erase(lost); }, {lost, "index"});
  refuse([&](Shards&, Index& index) { index[lost] = "../model.safetensors"; }, {"index", "../model.safetensors"});
  refuse([&](Shards&, Index& index) { index[lost] = "/etc/passwd"; }, {"/etc/passwd"});
  refuse([&](Shards&, Index& index) { index[lost] = ""; }, {"shard name"});
}

TEST(HfFolder, C14Warnings) {
  const TempDir stray;
  write_shards(stray, [](Shards& shards, Index&) {
    shards["model-00004-of-00004.safetensors"].push_back(f32("old", {2}, {1, 1}));
  });
  LoadReport report;
  EXPECT_EQ(parameters(stray.path(), tiny_config(), &report), tiny().values);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_TRUE(names(report.warnings[0], "model-00004-of-00004.safetensors"));

  const TempDir size;
  write_shards(
      size, [](Shards&, Index&) {}, 33604);
  (void)parameters(size.path(), tiny_config(), &report);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_TRUE(names(report.warnings[0], "33604") && names(report.warnings[0], "33600"));

  size.write("model.safetensors", tiny_safetensors(tiny_tensors()));
  (void)parameters(size.path(), tiny_config(), &report);
  EXPECT_EQ(report.warnings.size(), 4u);  // the index and three shards are not used
}

TEST(HfFolder, BadIndexes) {
  const TempDir dir;
  for (const std::string text : {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", "{"}) {
    dir.write("model.safetensors.index.json", text);
    expect_error([&] { ModelWeights(dir.path(), tiny_config()); }, ErrorCode::invalid,
                 {"model.safetensors.index.json"});
  }
  dir.write("model.safetensors.index.json", R"({"weight_map":{}})");
  expect_error([&] { ModelWeights(dir.path(), tiny_config()); }, ErrorCode::invalid, {"missing", "wte.weight"});
}

TEST(Widen, EveryHalfIsItsValue) {
  for (uint32_t word = 0; word < 65536; ++word) {
    const auto half = static_cast<uint16_t>(word);
    float got;
    widen("F16", std::as_bytes(std::span(&half, 1)), &got);
    const int exponent = static_cast<int>(word >> 10 & 31);
    const double fraction = word & 1023;
    const double sign = (word >> 15) != 0 ? -1.0 : 1.0;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(got));
      continue;
    }
    const double value = exponent == 31  ? INFINITY
                         : exponent == 0 ? std::ldexp(fraction, -24)
                                         : std::ldexp(1024.0 + fraction, exponent - 25);
    ASSERT_EQ(static_cast<double>(got), sign * value) << word;
    ASSERT_EQ(std::signbit(got), sign < 0) << word;
    float brain;
    widen("BF16", std::as_bytes(std::span(&half, 1)), &brain);
    uint32_t bits;
    std::memcpy(&bits, &brain, 4);
    ASSERT_EQ(bits, word << 16);
  }
}

}  // namespace
}  // namespace lamina
