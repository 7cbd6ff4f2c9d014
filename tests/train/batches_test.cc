#include "train/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "io/files.h"
#include "train/permutation.h"

namespace lamina {
namespace {

std::vector<int32_t> counting(int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TokenStream stream_of(const std::vector<int32_t>& ids) {
  TokenStream out;
  out.add(ids);
  return out;
}

// All (token, target) pairs of an epoch; ids are their own places, so that a pair says where it came from.
std::vector<std::pair<int32_t, int32_t>> pairs_of_epoch(Batches& batches, int64_t epoch) {
  std::vector<std::pair<int32_t, int32_t>> out;
  for (int64_t s = 1; s <= batches.steps_per_epoch(); ++s)
    for (const Row& row : batches.rows(epoch * batches.steps_per_epoch() + s)) {
      EXPECT_EQ(row.tokens.size(), row.targets.size());
      for (size_t i = 0; i < row.tokens.size(); ++i) out.emplace_back(row.tokens[i], row.targets[i]);
    }
  return out;
}

TEST(Permutation, IsOneForEverySize) {
  for (uint64_t n : {1u, 2u, 3u, 15u, 16u, 17u, 255u, 256u, 257u, 5000u}) {
    std::set<uint64_t> seen;
    const Permutation order(n, 42 + n);
    for (uint64_t i = 0; i < n; ++i) {
      EXPECT_LT(order(i), n);
      seen.insert(order(i));
    }
    EXPECT_EQ(seen.size(), n);
  }
}

TEST(Permutation, KeysGiveDifferentOrders) {
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t key = 0; key < 200; ++key) {
    std::vector<uint64_t> order(4);
    for (uint64_t i = 0; i < 4; ++i) order[i] = Permutation(4, key)(i);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 24u);  // all of them occur
}

// 99 targets of 100 ids, each exactly once an epoch, the last window short.
TEST(Batches, T17EachTargetOnceAnEpoch) {
  const std::vector<int32_t> ids = counting(100);
  Batches batches(stream_of(ids), {.seq = 8, .rows = 8, .seed = 1});
  EXPECT_EQ(batches.windows(), 13);
  EXPECT_EQ(batches.steps_per_epoch(), 2);
  EXPECT_EQ(batches.rows(2).size(), 5u);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::pair<int32_t, int32_t>> pairs = pairs_of_epoch(batches, epoch);
    EXPECT_FALSE(std::is_sorted(pairs.begin(), pairs.end()));
    std::sort(pairs.begin(), pairs.end());
    ASSERT_EQ(pairs.size(), 99u);
    for (int32_t i = 0; i < 99; ++i) EXPECT_EQ(pairs[static_cast<size_t>(i)], std::pair(i, i + 1));
  }
  EXPECT_NE(pairs_of_epoch(batches, 0), pairs_of_epoch(batches, 1));
}

TEST(Batches, RowsDependOnSeedAndStepOnly) {
  const std::vector<int32_t> ids = counting(1000);
  const auto first_tokens = [](std::span<const Row> rows) {
    std::vector<int32_t> out;
    for (const Row& row : rows) out.push_back(row.tokens[0]);
    return out;
  };
  Batches forward(stream_of(ids), {.seq = 8, .rows = 4, .seed = 7}),
      backward(stream_of(ids), {.seq = 8, .rows = 4, .seed = 7});
  Batches other(stream_of(ids), {.seq = 8, .rows = 4, .seed = 8});
  std::vector<std::vector<int32_t>> steps;
  for (int64_t step = 1; step <= 100; ++step) steps.push_back(first_tokens(forward.rows(step)));
  bool same_as_other = true;
  for (int64_t step = 100; step >= 1; --step) {
    EXPECT_EQ(first_tokens(backward.rows(step)), steps[static_cast<size_t>(step - 1)]);
    same_as_other = same_as_other && first_tokens(other.rows(step)) == steps[static_cast<size_t>(step - 1)];
  }
  EXPECT_FALSE(same_as_other);
}

TEST(Batches, WithoutASeedInOrder) {
  const std::vector<int32_t> ids = counting(20);
  Batches batches(stream_of(ids), {.seq = 4, .rows = 2});
  const auto pairs = pairs_of_epoch(batches, 0);
  EXPECT_TRUE(std::is_sorted(pairs.begin(), pairs.end()));
  EXPECT_EQ(pairs.size(), 19u);
}

TEST(Batches, T16TooFewIdsNameBothNumbers) {
  for (int64_t count : {0, 1, 16}) {
    const std::vector<int32_t> ids = counting(count);
    test::expect_error([&] { Batches(stream_of(ids), {.seq = 16, .what = "training data"}); }, ErrorCode::invalid,
                       {"17", std::to_string(count), "training data"});
  }
  const std::vector<int32_t> few = counting(9);
  Batches part(stream_of(few), {.seq = 16, .whole_window = false});
  EXPECT_EQ(part.rows(1)[0].tokens.size(), 8u);
  const std::vector<int32_t> ids = counting(17);
  Batches one(stream_of(ids), {.seq = 16, .rows = 4, .seed = 1});
  EXPECT_EQ(one.windows(), 1);
  EXPECT_EQ(one.rows(5).size(), 1u);
}

TEST(TokenStream, ReadsAcrossPartsAndCuts) {
  const std::vector<int32_t> first = counting(5), second{100, 101, 102}, none;
  const test::TempDir folder;
  const std::vector<int32_t> in_file{7, 8, 9, 10};
  write_token_file(folder.path() + "/a.bin", in_file);
  const TokenFile file(folder.path() + "/a.bin");
  TokenStream all;
  all.add(first), all.add(none), all.add(file), all.add(second);
  ASSERT_EQ(all.size(), 12);
  const std::vector<int32_t> expected{0, 1, 2, 3, 4, 7, 8, 9, 10, 100, 101, 102};
  for (int64_t begin = 0; begin <= 12; ++begin)
    for (int64_t end = begin; end <= 12; ++end) {
      std::vector<int32_t> direct(static_cast<size_t>(end - begin)), cut(direct.size());
      all.read(begin, direct);
      const TokenStream part = all.part(begin, end);
      ASSERT_EQ(part.size(), end - begin);
      part.read(0, cut);
      EXPECT_EQ(direct, std::vector<int32_t>(expected.begin() + begin, expected.begin() + end));
      EXPECT_EQ(cut, direct);
    }
}

}  // namespace
}  // namespace lamina
