#include "infer/load.h"

#include <gtest/gtest.h>

#include "common/tiny.h"
#include "io/files.h"

namespace lamina {
namespace {

LoadOptions forward_of(int64_t seq) {
  return {.needs = [=] { return CompileOptions{.seq = seq, .train = false, .forward = true}; }};
}

TEST(Load, WhatIsSavedIsByteForByteWhatWasLoaded) {
  for (const bool tied : {true, false}) {
    ModelConfig config = test::tiny_config();
    config.tie_word_embeddings = tied;
    const test::TempDir first, second;
    test::write_tiny(first.path(), config);
    const LoadedModel model = load_model(first.path(), read_hf_config(first.path()), forward_of(8));
    EXPECT_EQ(model.config, config);
    EXPECT_TRUE(model.warnings.empty());
    save_hf_folder(second.path(), model.config, [&](size_t i, float* data, int64_t stride_k, int64_t stride_n) {
      model.session->read(model.specs[i].name, data, stride_k, stride_n);
    });
    for (const char* file : {"model.safetensors", "config.json", "generation_config.json"})
      EXPECT_EQ(test::read_bytes(first.file(file)), test::read_bytes(second.file(file))) << file;
  }
}

TEST(Load, EveryParameterArrives) {
  const test::TempDir folder;
  test::write_tiny(folder.path());
  const LoadedModel model = load_model(folder.path(), read_hf_config(folder.path()), forward_of(8));
  for (const ParameterSpec& spec : model.specs) {
    std::vector<float> wanted(static_cast<size_t>(spec.shape.elements())), got(wanted.size());
    test::fill_tiny(spec, wanted.data(), spec.shape.last(), 1);
    model.session->read(spec.name, got.data(), spec.shape.last(), 1);
    EXPECT_EQ(got, wanted) << spec.name;
  }
}

TEST(Load, P4_CanBeInterruptedBetweenTensors) {
  const test::TempDir folder;
  test::write_tiny(folder.path());
  LoadOptions options = forward_of(8);
  int polls = 0;
  options.poll = [&] {
    if (++polls == 5) throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(load_model(folder.path(), read_hf_config(folder.path()), options), std::runtime_error);
  EXPECT_EQ(polls, 5);
}

TEST(Load, FilesAreJudgedBeforeMemoryIsTaken) {
  const test::TempDir folder;
  test::write_tiny(folder.path());
  bool compiled = false;
  LoadOptions options = forward_of(8);
  options.needs = [&] {
    compiled = true;
    return CompileOptions{};
  };
  folder.write("model.safetensors", "not tensors");
  EXPECT_THROW(load_model(folder.path(), read_hf_config(folder.path()), options), Error);
  EXPECT_FALSE(compiled);
}

TEST(Load, SaysHowMuchMemoryIsMissing) {
  const test::TempDir folder;
  test::write_tiny(folder.path());
  LoadOptions options = forward_of(8);
  options.memory_limit = 1000;
  test::expect_error([&] { load_model(folder.path(), read_hf_config(folder.path()), options); }, ErrorCode::memory,
                     {"1000"});
}

}  // namespace
}  // namespace lamina
