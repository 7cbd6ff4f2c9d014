#include "infer/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/tiny.h"
#include "infer/load.h"
#include "io/files.h"
#include "reference/interpreter.h"

namespace lamina {
namespace {

using test::expect_error;
using Ids = std::vector<int32_t>;

// Tiny in a session of `rows` rows; prompts go in blocks of `block`.
class TinyModel {
 public:
  explicit TinyModel(int64_t rows, int64_t block = 4, const ModelConfig& config = test::tiny_config(),
                     int threads = 1) {
    const test::TempDir folder;
    test::write_tiny(folder.path(), config);
    model_ = load_model(folder.path(), {.needs =
                                            [=](const ModelConfig&) {
                                              return CompileOptions{
                                                  .train = false, .generate_batch = rows, .prompt_block = block};
                                            },
                                        .threads = threads});
  }
  Session& session() { return *model_.session; }
  Generator generator() { return Generator(*model_.session, model_.config); }

  std::vector<Ids> greedy(const std::vector<Ids>& prompts, int64_t count) {
    return ids(prompts, {.max_tokens = count, .sampling = {.temperature = 0.0}});
  }
  std::vector<Ids> ids(const std::vector<Ids>& prompts, const GenerateOptions& options, uint64_t seed = 1) {
    std::vector<Ids> out;
    for (const Generated& row : generator().generate(rows(prompts, seed), options)) out.push_back(row.ids);
    return out;
  }
  static std::vector<Prompt> rows(const std::vector<Ids>& prompts, uint64_t seed = 1) {
    std::vector<Prompt> out;
    for (const Ids& ids : prompts) out.push_back({ids, seed});
    return out;
  }

 private:
  LoadedModel model_;
};

// Logits (T, V) of one row in double, without a cache.
std::vector<double> reference_logits(const Ids& ids, const ModelConfig& config = test::tiny_config()) {
  const auto T = static_cast<int64_t>(ids.size());
  const Compiled compiled = compile(config, {.seq = T, .train = false, .forward = true});
  Interpreter<double> interpreter;
  std::vector<int64_t> positions(ids.size());
  for (size_t t = 0; t < ids.size(); ++t) positions[t] = static_cast<int64_t>(t);
  interpreter.set("tokens", {{}, {}, {ids.begin(), ids.end()}});
  interpreter.set("positions", {{}, {}, positions});
  interpreter.set("key_begin", {{}, {}, std::vector<int64_t>(ids.size(), 0)});
  for (const ParameterSpec& spec : parameter_specs(config)) {
    std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
    test::fill_tiny(spec, values.data(), spec.shape.last(), 1);
    interpreter.set(spec.name, {{}, {values.begin(), values.end()}, {}});
  }
  interpreter.run(compiled.graphs.front());
  return interpreter.get("logits").values;
}

double largest_gap(std::span<const float> got, const std::vector<double>& all, size_t position) {
  double gap = 0.0;
  for (size_t v = 0; v < got.size(); ++v)
    gap = std::max(gap, std::abs(static_cast<double>(got[v]) - all[position * got.size() + v]));
  return gap;
}

constexpr double kSameLogits = 1e-5;  // rounding makes 2e-6 of Tiny's logits, the smallest mistake 6e-4

const std::vector<Ids> kPrompts{{3, 91}, {3, 7}, {47, 30, 79, 88, 91}};
const std::vector<Ids> kGreedy{
    {55, 44, 41, 35, 44, 27, 40, 3}, {40, 40, 61, 55, 91, 91, 91, 91}, {35, 30, 40, 30, 3, 64, 54, 87}};

TEST(Decoder, CachedLogitsAreThoseOfTheFullPassAtEverySplit) {
  const Ids ids = test::tiny_tokens(16);
  const std::vector<double> full = reference_logits(ids);
  TinyModel model(1, 6);
  Decoder decoder(model.session());
  for (size_t split = 1; split < ids.size(); ++split) {
    decoder.reset(0);
    for (size_t end = split, begin = 0; end <= ids.size(); begin = end++) {
      const std::span<const int32_t> part(ids.data() + begin, end - begin);
      decoder.append({&part, 1});
      EXPECT_LE(largest_gap(decoder.logits(0), full, end - 1), kSameLogits) << "split " << split << " position " << end;
    }
  }
}

TEST(Decoder, LeftPaddingChangesNothing) {
  const Ids ids = test::tiny_tokens(9);
  const std::vector<double> full = reference_logits(ids);
  TinyModel model(3);
  Decoder decoder(model.session());
  for (const auto& [row, pads] : {std::pair{0, 0}, {1, 3}, {2, 7}}) decoder.reset(row, pads);
  for (size_t end = 5, begin = 0; end <= ids.size(); begin = end++) {
    const std::span<const int32_t> part(ids.data() + begin, end - begin);
    decoder.append(std::vector(3, part));
    for (int64_t row = 0; row < 3; ++row)
      EXPECT_LE(largest_gap(decoder.logits(row), full, end - 1), kSameLogits) << "row " << row << " position " << end;
  }
}

TEST(Decoder, WhatStandsInUnseenPlacesDoesNotMatter) {
  const Ids ids = test::tiny_tokens(5);
  const std::span<const int32_t> all(ids);
  TinyModel model(2);
  Decoder decoder(model.session());
  decoder.reset(1, 4);
  decoder.append(std::vector{std::span<const int32_t>(), all});
  const std::vector<float> before(decoder.logits(1).begin(), decoder.logits(1).end());
  for (const char* cache : {"cache.0.k", "cache.0.v", "cache.1.k", "cache.1.v"})
    model.session().fill(cache, std::nanf(""));
  decoder.reset(1, 4);
  decoder.append(std::vector{std::span<const int32_t>(), all});
  EXPECT_TRUE(std::equal(before.begin(), before.end(), decoder.logits(1).begin()));
}

TEST(Decoder, HonoursTheAttentionFlags) {
  for (const bool scale : {true, false})
    for (const bool inverse : {true, false}) {
      ModelConfig config = test::tiny_config();
      config.scale_attn_weights = scale;
      config.scale_attn_by_inverse_layer_idx = inverse;
      TinyModel model(1, 5, config);
      Decoder decoder(model.session());
      const Ids& ids = test::tiny_prompt();
      const std::span<const int32_t> all(ids);
      for (const std::span<const int32_t> part : {all.first(5), all.subspan(5)}) decoder.append({&part, 1});
      EXPECT_LE(largest_gap(decoder.logits(0), reference_logits(ids, config), ids.size() - 1), kSameLogits);
    }
}

TEST(Decoder, GivesTinysPublishedLogits) {
  TinyModel model(1);
  Decoder decoder(model.session());
  const std::span<const int32_t> ids(test::tiny_prompt());
  decoder.append({&ids, 1});
  const double first[] = {-3.060298899, 0.031926143, 0.21040521, -1.117393683, -1.300453271, -2.246694797};
  for (size_t v = 0; v < std::size(first); ++v) EXPECT_NEAR(decoder.logits(0)[v], first[v], kSameLogits);
}

TEST(Generator, GreedyContinuationsAreTinys) {
  TinyModel one(1);
  for (size_t i = 0; i < kPrompts.size(); ++i) EXPECT_EQ(one.greedy({kPrompts[i]}, 8).front(), kGreedy[i]);
  EXPECT_EQ(one.greedy(kPrompts, 8), kGreedy);  // more prompts than rows: in groups
  EXPECT_EQ(TinyModel(3).greedy(kPrompts, 8), kGreedy);
  EXPECT_EQ(TinyModel(2, 1).greedy(kPrompts, 8), kGreedy);
  EXPECT_EQ(TinyModel(5, 64).greedy({kPrompts[2], kPrompts[0], kPrompts[1]}, 8),
            (std::vector<Ids>{kGreedy[2], kGreedy[0], kGreedy[1]}));
}

TEST(Generator, ARowDependsOnItselfAlone) {
  const GenerateOptions options{.max_tokens = 8};
  TinyModel model(3);
  std::vector<Ids> alone;
  for (const Ids& prompt : kPrompts) alone.push_back(model.ids({prompt}, options, 7).front());
  EXPECT_EQ(model.ids(kPrompts, options, 7), alone);
  EXPECT_EQ(model.ids({kPrompts[1], kPrompts[2], kPrompts[0], kPrompts[1]}, options, 7),
            (std::vector<Ids>{alone[1], alone[2], alone[0], alone[1]}));
  EXPECT_EQ(TinyModel(3, 4, test::tiny_config(), 2).ids(kPrompts, options, 7), alone);
  EXPECT_NE(model.ids(kPrompts, options, 8), alone);
}

TEST(Generator, FiltersAndTemperatures) {
  TinyModel model(1);
  const auto ids = [&](const SamplingOptions& sampling, uint64_t seed = 1) {
    return model.ids({kPrompts[0]}, {.max_tokens = 8, .sampling = sampling}, seed).front();
  };
  for (uint64_t seed : {1u, 2u, 3u}) EXPECT_EQ(ids({.temperature = 0.0}, seed), kGreedy[0]);
  for (const SamplingOptions& greedy :
       {SamplingOptions{.top_k = 1}, SamplingOptions{.top_p = 0.0}, SamplingOptions{.top_p = 1e-9},
        SamplingOptions{.temperature = 1e-30}, SamplingOptions{.temperature = 0.0, .top_k = 5, .top_p = 0.9}})
    EXPECT_EQ(ids(greedy), kGreedy[0]);
  for (int64_t k : {97, 98, 1000000}) EXPECT_EQ(ids({.top_k = k}), ids({}));
  EXPECT_EQ(ids({.top_k = 50}).size(), 8u);
  EXPECT_EQ(ids({.top_p = 1.0}), ids({}));
  for (int32_t id : ids({.temperature = 1e30})) EXPECT_TRUE(id >= 0 && id < 97);
  expect_error([&] { ids({.top_k = -1}); }, ErrorCode::usage, {"top_k", "-1"});
}

TEST(Generator, RowsEndAtDifferentSteps) {
  TinyModel model(2);
  const GenerateOptions options{
      .max_tokens = 8, .sampling = {.temperature = 0.0}, .end_ids = {55}, .log_probabilities = true};
  int steps = 0;
  const std::vector<Generated> rows =
      model.generator().generate(TinyModel::rows({kPrompts[0], kPrompts[1]}), options, {.poll = [&] { ++steps; }});
  EXPECT_EQ(rows[0].ids, (Ids{55}));
  EXPECT_EQ(rows[1].ids, (Ids{40, 40, 61, 55}));
  EXPECT_EQ(steps, 4);  // and not 8: nothing runs once all rows have ended
  for (const Generated& row : rows) {
    EXPECT_EQ(row.reason, FinishReason::end_id);
    EXPECT_EQ(row.log_probabilities.size(), row.ids.size());
  }
  const std::vector<double> full = reference_logits(kPrompts[1]);
  const std::vector<float> last(full.end() - 97, full.end());
  EXPECT_NEAR(rows[1].log_probabilities[0], log_probability(last, 40), 1e-5);
  EXPECT_EQ(model.ids({kPrompts[1]}, options).front(), rows[1].ids);
}

TEST(Generator, StreamsAndStopsWhereTheCallerSays) {
  TinyModel model(2);
  std::vector<Ids> streamed(2);
  GenerateHooks hooks;
  hooks.id = [&](size_t row, int32_t id) {
    streamed[row].push_back(id);
    return row != 0 || id != 41;
  };
  const std::vector<Generated> rows = model.generator().generate(
      TinyModel::rows({kPrompts[0], kPrompts[1]}), {.max_tokens = 8, .sampling = {.temperature = 0.0}}, hooks);
  EXPECT_EQ(rows[0].ids, (Ids{55, 44, 41}));
  EXPECT_EQ(rows[0].reason, FinishReason::stopped);
  EXPECT_EQ(rows[1].ids, kGreedy[1]);
  EXPECT_EQ(rows[1].reason, FinishReason::length);
  EXPECT_EQ(streamed, (std::vector<Ids>{rows[0].ids, rows[1].ids}));
}

TEST(Generator, RefusesWhatExceedsTheContextBeforeTheFirstId) {
  TinyModel model(2);
  const Ids stream = test::tiny_tokens(17);
  const auto prompt = [&](size_t n) { return Ids(stream.begin(), stream.begin() + static_cast<ptrdiff_t>(n)); };
  EXPECT_EQ(model.greedy({prompt(15)}, 1).front().size(), 1u);
  int calls = 0;
  const auto refuse = [&](const std::vector<Ids>& prompts, int64_t count, const std::vector<std::string>& words) {
    const GenerateOptions options{.max_tokens = count, .end_ids = {96}};
    GenerateHooks hooks;
    hooks.id = [&](size_t, int32_t) { return ++calls > 0; };
    expect_error([&] { model.generator().generate(TinyModel::rows(prompts), options, hooks); }, ErrorCode::invalid,
                 words);
  };
  refuse({prompt(15)}, 2, {"16", "15", "2", "row 0"});
  refuse({prompt(16)}, 1, {"16", "1"});
  refuse({prompt(17)}, 1, {"16", "17"});
  refuse({prompt(3), prompt(15)}, 2, {"16", "15", "2", "row 1"});
  refuse({prompt(3)}, INT64_MAX, {"16", "3"});
  EXPECT_EQ(calls, 0);
  expect_error([&] { model.greedy({prompt(3)}, 0); }, ErrorCode::usage, {"max_tokens", "0"});
}

TEST(Generator, AnEmptyPromptStartsFromBos) {
  TinyModel model(3);
  EXPECT_EQ(model.greedy({{}}, 8).front(), Ids(8, 44));
  std::vector<std::string> said;
  GenerateHooks hooks;
  hooks.say = [&](const std::string& line) { said.push_back(line); };
  const std::vector<Generated> rows = model.generator().generate(
      TinyModel::rows({kPrompts[0], {}, kPrompts[1]}), {.max_tokens = 8, .sampling = {.temperature = 0.0}}, hooks);
  EXPECT_EQ(rows[0].ids, kGreedy[0]);
  EXPECT_EQ(rows[1].ids, Ids(8, 44));
  EXPECT_EQ(rows[2].ids, kGreedy[1]);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(test::names(said[0], "row 1") && test::names(said[0], "96")) << said[0];

  ModelConfig config = test::tiny_config();
  config.bos_token_id.reset();
  TinyModel without(2, 4, config);
  expect_error([&] { without.greedy({kPrompts[0], {}}, 2); }, ErrorCode::invalid, {"bos_token_id", "row 1"});
}

TEST(Generator, RefusesIdsOutsideTheVocabulary) {
  TinyModel model(2);
  expect_error([&] { model.greedy({{1}, {5, 97}}, 1); }, ErrorCode::invalid, {"row 1", "position 1", "97"});
  expect_error([&] { model.greedy({{-1}}, 1); }, ErrorCode::invalid, {"row 0", "-1"});
  expect_error([&] { model.ids({{1}}, {.max_tokens = 1, .end_ids = {97}}); }, ErrorCode::invalid, {"97"});
}

TEST(Generator, StartsAfreshAfterAnInterruption) {
  TinyModel model(1);
  Generator generator = model.generator();
  int polls = 0;
  GenerateHooks hooks;
  hooks.poll = [&] {
    if (++polls == 4) throw std::runtime_error("interrupted");
  };
  const GenerateOptions options{.max_tokens = 8, .sampling = {.temperature = 0.0}};
  EXPECT_THROW(generator.generate(TinyModel::rows({kPrompts[0]}), options, hooks), std::runtime_error);
  EXPECT_EQ(generator.generate(TinyModel::rows({kPrompts[0]}), options).front().ids, kGreedy[0]);
}

TEST(Generator, NeedsAPlanThatGenerates) {
  const Compiled compiled = compile(test::tiny_config(), {.seq = 4, .train = false, .forward = true});
  Session session(compiled.plan, 1);
  expect_error([&] { Generator generator(session, test::tiny_config()); }, ErrorCode::invalid, {"prefill"});
}

}  // namespace
}  // namespace lamina
