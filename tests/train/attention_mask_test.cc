// Every form of mask comes to the same key_begin, and what cannot be said by it is refused with its place.
#include "train/attention_mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "io/files.h"
#include "train/tiny_run.h"

namespace lamina {
namespace {

using test::expect_error;
using test::Rows;
using test::TinyRun;

using Ints = std::vector<int32_t>;
using Bits = std::vector<uint8_t>;

// An array of some type with these elements.
struct Array {
  std::vector<std::byte> bytes;
  MaskType type;
  MaskView view(std::vector<int64_t> shape) const {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t axis = shape.size() - 1; axis > 0; --axis) strides[axis - 1] = strides[axis] * shape[axis];
    return {bytes.data(), type, std::move(shape), std::move(strides)};
  }
};

template <typename T>
Array array_of(MaskType type, const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {{bytes.begin(), bytes.end()}, type};
}

template <typename T>
Array choose(MaskType type, const Bits& visible, T yes, T no) {
  std::vector<T> values;
  for (const uint8_t bit : visible) values.push_back(bit != 0 ? yes : no);
  return array_of(type, values);
}

// These bits in every type and every way to write them.
std::vector<Array> all_formats(const Bits& bits) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<Array> out{
      choose<int8_t>(MaskType::i8, bits, 1, 0),    choose<int16_t>(MaskType::i16, bits, 1, 0),
      choose<int32_t>(MaskType::i32, bits, 1, 0),  choose<int64_t>(MaskType::i64, bits, 1, 0),
      choose<uint8_t>(MaskType::u8, bits, 1, 0),   choose<uint16_t>(MaskType::u16, bits, 1, 0),
      choose<uint32_t>(MaskType::u32, bits, 1, 0), choose<uint64_t>(MaskType::u64, bits, 1, 0),
      choose(MaskType::f32, bits, 1.0f, 0.0f),     choose(MaskType::f64, bits, 1.0, 0.0),
  };
  for (const float masked : {-10000.0f, -1e9f, std::numeric_limits<float>::lowest(), -inf}) {
    out.push_back(choose(MaskType::f32, bits, 0.0f, masked));
    out.push_back(choose(MaskType::f64, bits, -0.0, static_cast<double>(masked)));
  }
  for (const uint16_t masked : {0xf0e2, 0xfbff, 0xfc00})  // -10000, -65504, -inf
    out.push_back(choose<uint16_t>(MaskType::f16, bits, 0, masked));
  for (const uint16_t masked : {0xc61c, 0xff7f, 0xff80})  // -9984, the lowest, -inf
    out.push_back(choose<uint16_t>(MaskType::bf16, bits, 0x8000, masked));
  out.push_back(choose<uint16_t>(MaskType::f16, bits, 0x3c00, 0));
  out.push_back(choose<uint16_t>(MaskType::bf16, bits, 0x3f80, 0));
  return out;
}

Ints key_begin(const Bits& bits, std::vector<int64_t> shape, int64_t rows, int64_t width) {
  return key_begin_of(choose<uint8_t>(MaskType::u8, bits, 1, 0).view(std::move(shape)), rows, width);
}

// What each query of a row with these tokens sees, with or without causality.
Bits by_query(const Bits& tokens, int64_t rows, int64_t width, bool causal) {
  Bits out;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t q = 0; q < width; ++q)
      for (int64_t k = 0; k < width; ++k)
        out.push_back(causal && k > q ? 0 : tokens[static_cast<size_t>(r * width + k)]);
  return out;
}

TEST(AttentionMask, PaddingInEveryFormAndShape) {
  const Bits tokens{1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0};
  const Ints wanted{0, 0, 0, 4, 5, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 1, 1, 1, 1, 5};
  const int64_t B = 5, T = 5;
  for (const Array& array : all_formats(tokens)) {
    EXPECT_EQ(key_begin_of(array.view({B, T}), B, T), wanted);
    EXPECT_EQ(key_begin_of(array.view({B, 1, T}), B, T), wanted);
    EXPECT_EQ(key_begin_of(array.view({B, 1, 1, T}), B, T), wanted);
  }
  for (const bool causal : {true, false}) {
    for (const Array& array : all_formats(by_query(tokens, B, T, causal))) {
      EXPECT_EQ(key_begin_of(array.view({B, T, T}), B, T), wanted);
      EXPECT_EQ(key_begin_of(array.view({B, 1, T, T}), B, T), wanted);
    }
  }
}

TEST(AttentionMask, WhatEachQuerySees) {
  const Bits documents{1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1};
  const Bits window{1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1};
  for (const Array& array : all_formats(documents)) {
    EXPECT_EQ(key_begin_of(array.view({4, 4}), 2, 4), (Ints{0, 0, 2, 2, 0, 0, 2, 2}));
    EXPECT_EQ(key_begin_of(array.view({1, 4, 4}), 2, 4), (Ints{0, 0, 2, 2, 0, 0, 2, 2}));
  }
  EXPECT_EQ(key_begin(window, {4, 4}, 1, 4), (Ints{0, 0, 1, 2}));
  EXPECT_EQ(key_begin(Bits(16, 1), {4, 4}, 1, 4), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(key_begin(Bits(16, 0), {4, 4}, 1, 4), (Ints{1, 2, 3, 4}));
  EXPECT_EQ(key_begin(Bits{0, 1, 1, 1}, {1, 4}, 3, 4), (Ints{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(key_begin({}, {0, 4}, 0, 4), Ints());
  // Query 1 sees nothing and is seen by query 2; padding that sees everything, as some programs write it.
  EXPECT_EQ(key_begin({1, 0, 0, 0, 0, 0, 0, 1, 1}, {3, 3}, 1, 3), (Ints{0, 2, 1}));
  EXPECT_EQ(key_begin({1, 1, 1, 1, 1, 1, 0, 0, 1}, {3, 3}, 1, 3), (Ints{0, 0, 2}));
}

TEST(AttentionMask, AnyStride) {
  const Array column = choose<uint8_t>(MaskType::u8, {0, 1, 1, 1, 1, 0}, 1, 0);
  // Transposed: rows lie beside one another. Expanded: one row of keys for all queries.
  EXPECT_EQ(key_begin_of({column.bytes.data(), MaskType::u8, {2, 3}, {1, 2}}, 2, 3), (Ints{1, 1, 1, 0, 0, 3}));
  EXPECT_EQ(key_begin_of({column.bytes.data(), MaskType::u8, {2, 1, 3, 3}, {3, 0, 0, 1}}, 2, 3),
            (Ints{1, 1, 1, 0, 0, 3}));
  const uint8_t* last = reinterpret_cast<const uint8_t*>(column.bytes.data()) + 5;
  EXPECT_EQ(key_begin_of({last, MaskType::u8, {1, 6}, {6, -1}}, 1, 6), (Ints{1, 1, 1, 1, 1, 6}));
}

TEST(AttentionMask, HolesAreNamed) {
  const auto refused = [](const Bits& bits, std::vector<int64_t> shape, int64_t rows, int64_t width, const char* text) {
    expect_error([&] { key_begin(bits, std::move(shape), rows, width); }, ErrorCode::invalid, {text});
  };
  refused({1, 1, 1, 1, 0, 1}, {2, 3}, 2, 3, "row 1, query 2, key 1, expected all keys from 0 to 2");
  refused({1, 0, 0, 1, 1, 0, 1, 0, 1}, {1, 3, 3}, 2, 3, "row 0, query 2, key 1");
  refused({1, 0, 0, 1, 0, 0, 1, 1, 1}, {3, 3}, 1, 3, "row 0, query 1, key 1, expected a query that sees itself");
}

// What the header says, word by word; empty where it cannot be said.
Ints by_definition(const Bits& bits, int64_t width) {
  const auto sees = [&](int64_t q, int64_t k) { return k <= q && bits[static_cast<size_t>(q * width + k)] != 0; };
  Ints out;
  for (int64_t q = 0; q < width; ++q) {
    int64_t begin = q + 1;
    while (begin > 0 && sees(q, begin - 1)) --begin;
    bool more = false, seen = false;
    for (int64_t k = 0; k < begin; ++k) more = more || sees(q, k);
    for (int64_t other = q + 1; other < width; ++other) seen = seen || (sees(other, other) && sees(other, q));
    if (more && (sees(q, q) || seen)) return {};
    out.push_back(static_cast<int32_t>(begin));
  }
  return out;
}

TEST(AttentionMask, AllMasksOfFourTokens) {
  int64_t accepted = 0;
  for (uint32_t number = 0; number < 1u << 10; ++number) {
    Bits bits(16, static_cast<uint8_t>(number & 1u));  // what lies behind a query is anything
    for (uint32_t q = 0, bit = 0; q < 4; ++q)
      for (uint32_t k = 0; k <= q; ++k) bits[q * 4 + k] = number >> bit++ & 1u;
    const Ints wanted = by_definition(bits, 4);
    accepted += wanted.empty() ? 0 : 1;
    if (wanted.empty())
      expect_error([&] { key_begin(bits, {4, 4}, 1, 4); }, ErrorCode::invalid, {"has a hole: row 0, query"});
    else
      EXPECT_EQ(key_begin(bits, {4, 4}, 1, 4), wanted) << number;
  }
  EXPECT_GT(accepted, 120);  // each of 2 · 3 · 4 · 5 answers at least once
  EXPECT_LT(accepted, 1024);
}

TEST(AttentionMask, ValuesWithoutMeaningAreNamed) {
  const auto refused = [](const Array& array, const char* text) {
    expect_error([&] { key_begin_of(array.view({2, 3}), 2, 3); }, ErrorCode::invalid, {text});
  };
  const float nan = std::nanf("");
  refused(array_of<int32_t>(MaskType::i32, {1, 1, 1, 1, 2, 1}), "row 1, key 1, expected 0 or 1, got 2");
  refused(array_of<int8_t>(MaskType::i8, {1, -1, 1, 1, 1, 1}), "row 0, key 1, expected 0 or 1, got -1");
  refused(array_of<float>(MaskType::f32, {0, 0, 0, 0, 0, -3.5f}), "row 1, key 2, expected 0 (visible), or -10000");
  refused(array_of<float>(MaskType::f32, {0, 0, 0, 0, 0, -3.5f}), "got -3.5");
  refused(array_of<float>(MaskType::f32, {0, nan, 0, 0, 0, 0}), "row 0, key 1, expected 0 (visible)");
  refused(array_of<float>(MaskType::f32, {0, nan, 0, 0, 0, 0}), "got nan");
  refused(array_of<float>(MaskType::f32, {1, 1, 1, 0, -1e9f, 0}), "row 1, key 1, expected 0 or 1");
  refused(array_of<double>(MaskType::f64, {0, 0, 0, 0, 0.5, 0}), "got 0.5");
  const Array square = array_of<int32_t>(MaskType::i32, {1, 0, 1, 7});
  expect_error([&] { key_begin_of(square.view({1, 1, 2, 2}), 1, 2); }, ErrorCode::invalid, {"row 0, query 1, key 1"});
}

TEST(AttentionMask, ShapesAreNamed) {
  const Array array = choose<uint8_t>(MaskType::u8, Bits(400, 1), 1, 0);
  const std::vector<std::vector<int64_t>> wrong = {{4},          {2, 3},       {3, 4},          {2, 2, 4}, {3, 4, 4},
                                                   {2, 2, 4, 4}, {2, 1, 4, 3}, {1, 1, 1, 1, 4}, {}};
  for (const std::vector<int64_t>& shape : wrong) {
    const MaskView view{array.bytes.data(), MaskType::u8, shape, std::vector<int64_t>(shape.size(), 1)};
    expect_error([&] { key_begin_of(view, 2, 4); }, ErrorCode::invalid, {"expected (2, 4), (2, 1, 1, 4), (4, 4)"});
    expect_error([&] { key_begin_of(view, 2, 4); }, ErrorCode::invalid,
                 {fmt::format("got ({})", fmt::join(shape, ", "))});
  }
}

// As many rows as tokens: (T, T) and (B, T) are one shape. It means (B, T), unless it looks like the other one.
TEST(AttentionMask, SquareOfRows) {
  expect_error([] { key_begin({1, 0, 0, 1, 1, 0, 1, 1, 1}, {3, 3}, 3, 3); }, ErrorCode::invalid, {"in two ways"});
  expect_error([] { key_begin({1, 0, 0, 1, 1, 0, 0, 0, 1}, {3, 3}, 3, 3); }, ErrorCode::invalid, {"in two ways"});
  EXPECT_EQ(key_begin({1, 0, 0, 1, 1, 1, 1, 1, 1}, {3, 3}, 3, 3), (Ints{0, 2, 3, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(key_begin({1, 0, 0, 1, 1, 0, 1, 1, 1}, {3, 1, 3}, 3, 3), (Ints{0, 2, 3, 0, 0, 3, 0, 0, 0}));
  EXPECT_EQ(key_begin({1}, {1, 1}, 1, 1), Ints{0});
}

TEST(AttentionMask, HiddenTargets) {
  const auto hidden = [](const Ints& begin, Ints targets) {
    hide_targets(begin, targets);
    return targets;
  };
  EXPECT_EQ(hidden({0, 0, 3, 4}, {5, 6, 7, 8}), (Ints{5, 6, kIgnored, kIgnored}));
  EXPECT_EQ(hidden({0, 0, 3, 4}, {5, 6, 7}), (Ints{5, kIgnored, kIgnored}));    // padding is not predicted
  EXPECT_EQ(hidden({1, 1, 1, 1}, {5, 6, 7}), (Ints{kIgnored, 6, 7}));           // nor from padding
  EXPECT_EQ(hidden({0, 0, 2, 2, 2}, {5, 6, 7, 8}), (Ints{5, kIgnored, 7, 8}));  // nor from another text
}

struct Outcome {
  StepResult result;
  std::vector<std::vector<float>> gradients;
};

Outcome backward(std::span<const Row> rows, int64_t batch) {
  TinyRun run({.batch = batch, .seq = 16, .keep_gradients = true});
  Outcome out{TrainStep(run.session(), {}).backward(rows, 1), {}};
  for (const ParameterSpec& spec : run.specs()) out.gradients.push_back(run.read("grad." + spec.name));
  return out;
}

// key_begin says what `start` and `borders` say: not a bit differs.
TEST(AttentionMask, KeyBeginIsStartAndBorders) {
  const Ints ids{5, 17, 80, 3, 41, 0, 95, 62}, next{17, 80, 3, 41, kIgnored, 95, 62, 23}, borders{5};
  const Ints padded{9, 9, 9, 5, 17, 80, 3, 41, 0, 95, 62};
  Ints padded_next(3, kIgnored);
  padded_next.insert(padded_next.end(), next.begin(), next.end());
  const Ints begin{1, 2, 3, 3, 3, 3, 3, 3, 8, 8, 8}, positions{0, 0, 0, 0, 1, 2, 3, 4, 0, 1, 2};
  const Row plain{.tokens = ids, .targets = next, .start = 3, .borders = borders};
  const Row masked{.tokens = padded, .targets = padded_next, .key_begin = begin};
  const Row numbered{.tokens = padded, .targets = padded_next, .key_begin = begin, .positions = positions};
  const Outcome wanted = backward(std::span(&plain, 1), 2);
  for (const Row& row : {masked, numbered}) {
    const Outcome got = backward(std::span(&row, 1), 2);
    EXPECT_EQ(got.result.loss, wanted.result.loss);
    EXPECT_EQ(got.gradients, wanted.gradients);
  }
  Ints shifted = positions;
  shifted[5] = 9;
  const Row other{.tokens = padded, .targets = padded_next, .key_begin = begin, .positions = shifted};
  EXPECT_NE(backward(std::span(&other, 1), 2).result.loss, wanted.result.loss);
}

// Rows that see nothing at all, with targets or without, beside one that does: everything is finite, and without
// targets nothing of them is in loss or gradients.
TEST(AttentionMask, RowsThatSeeNothingAreFinite) {
  const Ints ids{5, 17, 80, 3}, next{17, 80, 3, 41}, none(4, kIgnored), begin{1, 2, 3, 4};
  const Row seen{.tokens = ids, .targets = next};
  const Row blind[] = {seen, {.tokens = ids, .targets = next, .key_begin = begin}};
  const Row silent[] = {seen, {.tokens = ids, .targets = none, .key_begin = begin}};
  const Outcome with = backward(blind, 2), without = backward(silent, 2), alone = backward(std::span(&seen, 1), 2);
  EXPECT_TRUE(std::isfinite(with.result.loss));
  for (const std::vector<float>& gradient : with.gradients)
    for (const float value : gradient) EXPECT_TRUE(std::isfinite(value));
  EXPECT_NE(with.result.loss, alone.result.loss);
  EXPECT_EQ(without.result.loss, alone.result.loss);
  for (size_t t = 0; t < alone.gradients.size(); ++t)
    for (size_t i = 0; i < alone.gradients[t].size(); ++i) EXPECT_EQ(without.gradients[t][i], alone.gradients[t][i]);
}

TEST(AttentionMask, PositionsOutsideTheContextAreNamed) {
  const Ints ids{5, 17, 80}, begin{1, 1, 1}, wrong{-1, 0, 16};
  TinyRun run({.batch = 1, .seq = 16, .train = false, .eval = true});
  BatchInputs inputs(run.session());
  const Row row{.tokens = ids, .targets = ids, .key_begin = begin, .positions = wrong};
  expect_error([&] { inputs.check(std::span(&row, 1), 1); }, ErrorCode::invalid,
               {"position outside the context: row 0, place 2, expected 0 to 15, got 16"});
}

}  // namespace
}  // namespace lamina
