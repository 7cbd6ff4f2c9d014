#include "infer/generate.h"

#include <gtest/gtest.h>

#include "common/long_run.h"
#include "infer/tiny_model.h"
#include "io/files.h"

namespace lamina {
namespace {

using test::expect_error;
using test::Ids;
using test::reference_logits;
using test::TinyModel;

const std::vector<Ids> kPrompts{{3, 91}, {3, 7}, {47, 30, 79, 88, 91}};
const std::vector<Ids> kGreedy{
    {55, 44, 41, 35, 44, 27, 40, 3}, {40, 40, 61, 55, 91, 91, 91, 91}, {35, 30, 40, 30, 3, 64, 54, 87}};

TEST(Generator, N8_GreedyContinuationsAreTinys) {
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

TEST(Generator, I1_I3_I5_FiltersAndTemperatures) {
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
  expect_error([&] { ids({.top_p = 1.5}); }, ErrorCode::usage, {"top_p", "1.5"});
  expect_error([&] { ids({.temperature = -1.0}); }, ErrorCode::usage, {"temperature", "-1"});
}

TEST(Generator, I6_RowsEndAtDifferentSteps) {
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
    EXPECT_EQ(row.reason, FinishReason::eos);
    EXPECT_EQ(row.log_probabilities.size(), row.ids.size());
  }
  const std::vector<double> full = reference_logits(kPrompts[1]);
  const std::vector<float> last(full.end() - 97, full.end());
  EXPECT_NEAR(rows[1].log_probabilities[0], log_probability(last, 40), 1e-5);
  EXPECT_EQ(model.ids({kPrompts[1]}, options).front(), rows[1].ids);
}

// Without max_tokens each row goes to the end of its own context, whatever stands beside it.
TEST(Generator, I8_TheContextEndsEachRowByItself) {
  TinyModel model(2);
  const Ids stream = test::tiny_tokens(16);
  const std::vector<Ids> prompts{{3, 91}, Ids(stream.begin(), stream.begin() + 15)};
  const GenerateOptions options{.sampling = {.temperature = 0.0}};
  const std::vector<Generated> rows = model.generator().generate(TinyModel::rows(prompts), options);
  for (size_t r = 0; r < prompts.size(); ++r) {
    EXPECT_EQ(rows[r].ids.size(), 16 - prompts[r].size());
    EXPECT_EQ(rows[r].reason, FinishReason::length);
    EXPECT_EQ(model.ids({prompts[r]}, options).front(), rows[r].ids);
  }
  expect_error([&] { model.ids({{3}, stream}, options); }, ErrorCode::invalid, {"row 1", "16 + 1", "at most 16"});
}

// N25: what stands in logits behind the last known id is never drawn, whatever it is.
TEST(Generator, N25_DrawsKnownIdsOnly) {
  TinyModel model(16);
  std::vector<Prompt> rows;
  for (uint64_t seed = 0; seed < 640; ++seed) rows.push_back({{3}, seed});
  const GenerateOptions options{.max_tokens = 15, .sampling = {.temperature = 1e30}};  // 9,600 draws, all as likely
  int32_t highest = 0, highest_known = 0;
  for (const Generated& row : model.generator().generate(rows, options))
    highest = std::max(highest, *std::max_element(row.ids.begin(), row.ids.end()));
  GenerateOptions known = options;
  known.known_ids = 50;
  for (const Generated& row : model.generator().generate(rows, known))
    highest_known = std::max(highest_known, *std::max_element(row.ids.begin(), row.ids.end()));
  EXPECT_EQ(highest, 96);
  EXPECT_EQ(highest_known, 49);
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
  EXPECT_EQ(rows[0].reason, FinishReason::stop);
  EXPECT_EQ(rows[1].ids, kGreedy[1]);
  EXPECT_EQ(rows[1].reason, FinishReason::length);
  EXPECT_EQ(streamed, (std::vector<Ids>{rows[0].ids, rows[1].ids}));
}

TEST(Generator, I8_RefusesWhatExceedsTheContextBeforeTheFirstId) {
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

TEST(Generator, I12_AnEmptyPromptStartsFromBos) {
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

// A prompt of several blocks ends at a poll between them, and leaves nothing behind in any row.
TEST(Generator, P4_AnInterruptionMayFallIntoAPrompt) {
  TinyModel model(2, 4);
  Generator generator = model.generator();
  int polls = 0;
  GenerateHooks hooks;
  hooks.poll = [&] {
    if (++polls == 3) throw std::runtime_error("interrupted");
  };
  const GenerateOptions options{.max_tokens = 1, .sampling = {.temperature = 0.0}};
  {
    const std::vector<Prompt> rows = TinyModel::rows({test::tiny_prompt(), test::tiny_prompt()});
    EXPECT_THROW(generator.generate(rows, options, hooks), std::runtime_error);
  }
  EXPECT_EQ(generator.generate(TinyModel::rows({kPrompts[0]}), options).front().ids, (Ids{55}));
}

TEST(Generator, P7_ALongLoopStaysAsItWas) {
  test::expect_steady([] {
    auto model = std::make_unique<TinyModel>(2);
    auto generator = std::make_unique<Generator>(model->generator());
    return [model = std::move(model), generator = std::move(generator), rows = TinyModel::rows({kPrompts[0]})] {
      generator->generate(rows, {.max_tokens = 4});
    };
  });
}

TEST(Generator, NeedsAPlanThatGenerates) {
  const Compiled compiled = compile(test::tiny_config(), {.seq = 4, .train = false, .forward = true});
  Session session(compiled.plan, 1);
  expect_error([&] { Generator generator(session, test::tiny_config()); }, ErrorCode::invalid, {"prefill"});
}

}  // namespace
}  // namespace lamina
