#include "infer/decoder.h"

#include <gtest/gtest.h>

#include <utility>

#include "infer/tiny_model.h"

namespace lamina {
namespace {

using test::Ids;
using test::kSameLogits;
using test::largest_gap;
using test::reference_logits;
using test::TinyModel;

TEST(Decoder, I10_CachedLogitsAreThoseOfTheFullPassAtEverySplit) {
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

// The caches have room for 16 ids behind 7 pads; the positions are still those of the ids.
TEST(Decoder, I10_LeftPaddingChangesNothingAtAnySplit) {
  const Ids ids = test::tiny_tokens(16);
  ModelConfig config = test::tiny_config();
  config.n_positions = 23;
  const std::vector<double> full = reference_logits(ids, config);
  TinyModel model(3, 6, config);
  Decoder decoder(model.session());
  for (size_t split = 1; split < ids.size(); ++split) {
    for (const auto& [row, pads] : {std::pair{0, 0}, {1, 3}, {2, 7}}) decoder.reset(row, pads);
    for (size_t end = split, begin = 0; end <= ids.size(); begin = end++) {
      const std::span<const int32_t> part(ids.data() + begin, end - begin);
      decoder.append(std::vector(3, part));
      for (int64_t row = 0; row < 3; ++row)
        EXPECT_LE(largest_gap(decoder.logits(row), full, end - 1), kSameLogits)
            << "split " << split << " row " << row << " position " << end;
    }
  }
}

// The logits behind each id of `ids[r]`, where row r gets `first` of them at once and then one at a time.
std::vector<std::vector<float>> logits_of(TinyModel& model, const std::vector<Ids>& ids,
                                          const std::vector<size_t>& first) {
  Decoder decoder(model.session());
  std::vector<std::vector<float>> out(ids.size());
  std::vector<size_t> done(ids.size());
  for (bool going = true; std::exchange(going, false);) {
    std::vector<std::span<const int32_t>> parts;
    for (size_t r = 0; r < ids.size(); ++r) {
      const size_t count = std::min(done[r] == 0 ? first[r] : 1, ids[r].size() - done[r]);
      parts.push_back(std::span(ids[r]).subspan(done[r], count));
      done[r] += count;
      going = going || count > 0;
    }
    decoder.append(parts);
    for (size_t r = 0; r < ids.size(); ++r) {
      const std::span<const float> logits = decoder.logits(static_cast<int64_t>(r));
      if (!parts[r].empty()) out[r].insert(out[r].end(), logits.begin(), logits.end());
    }
  }
  return out;
}

float largest_gap(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return HUGE_VALF;
  float gap = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) gap = std::max(gap, std::abs(a[i] - b[i]));
  return gap;
}

// Prompts of four lengths that end at different steps. To the last bit, a row's logits depend neither on the rows
// beside it (a draw may not either) nor on threads; a session of one row is another plan and rounds by itself.
TEST(Decoder, N24_LogitsInABatchAreThoseOfTheRowAlone) {
  const Ids stream = test::tiny_tokens(64);
  const auto ids = [&](size_t begin, size_t count) { return Ids(&stream[begin], &stream[begin] + count); };
  const std::vector<Ids> rows{ids(0, 16), ids(16, 7), ids(30, 12), ids(48, 4)};
  const std::vector<size_t> first{11, 2, 1, 4};
  for (const int64_t block : {1, 4, 64}) {
    TinyModel together(4, block), threads(4, block, test::tiny_config(), 3), one(1, 4);
    const std::vector<std::vector<float>> batch = logits_of(together, rows, first);
    EXPECT_EQ(logits_of(threads, rows, first), batch) << "block " << block;
    for (size_t r = 0; r < rows.size(); ++r) {
      std::vector<Ids> others(4, rows[r]);
      EXPECT_EQ(logits_of(together, others, std::vector<size_t>(4, first[r]))[r], batch[r]) << "row " << r;
      const std::vector<float> alone = logits_of(one, {rows[r]}, {first[r]}).front();
      EXPECT_LE(largest_gap(alone, batch[r]), kSameLogits) << "block " << block << " row " << r;
    }
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

TEST(Decoder, N1_HonoursTheAttentionFlags) {
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

}  // namespace
}  // namespace lamina
