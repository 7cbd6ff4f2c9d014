#include "train/options.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "io/files.h"

namespace lamina {
namespace {

using test::expect_error;

TrainOptions good() {
  TrainOptions options;
  options.data = {"text.txt"};
  options.out = "run";
  return options;
}

template <typename F>
void refuse(F&& change, const std::vector<std::string>& words) {
  TrainOptions options = good();
  change(options);
  expect_error([&] { validate(options); }, ErrorCode::usage, words);
}

TEST(Options, DefaultsAreAllowed) { EXPECT_NO_THROW(validate(good())); }

TEST(Options, EachNameOnce) {
  std::set<std::string> names;
  const TrainOptions options = good();
  for_each_option(options, [&](const OptionRow& row, const auto&) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_NE(std::string(row.help), "") << row.name;
  });
  EXPECT_TRUE(names.contains("batch") && names.contains("schedule"));
}

TEST(Options, NeverAllowedValuesNameOptionAndValue) {
  refuse([](TrainOptions& o) { o.batch = 0; }, {"--batch", "0"});
  refuse([](TrainOptions& o) { o.accumulate = -3; }, {"--accumulate", "-3"});
  refuse([](TrainOptions& o) { o.seq = 0; }, {"--seq", "0"});
  refuse([](TrainOptions& o) { o.lr = -0.5; }, {"--lr", "-0.5"});
  refuse([](TrainOptions& o) { o.lr = std::numeric_limits<double>::quiet_NaN(); }, {"--lr", "nan"});
  refuse([](TrainOptions& o) { o.lr = std::numeric_limits<double>::infinity(); }, {"--lr", "inf"});
  refuse([](TrainOptions& o) { o.lr = 1e39; }, {"--lr", "to 3.4028234663852886e+38", "1e+39"});
  refuse([](TrainOptions& o) { o.min_lr = 1e39; }, {"--min-lr", "1e+39"});
  refuse([](TrainOptions& o) { o.weight_decay = 1e39; }, {"--weight-decay", "1e+39"});
  refuse([](TrainOptions& o) { o.betas = {0.9, 1.0}; }, {"--betas", "1"});
  refuse([](TrainOptions& o) { o.dropout = 1.5; }, {"--dropout", "1.5"});
  refuse([](TrainOptions& o) { o.schedule = "square"; }, {"--schedule", "square"});
  refuse([](TrainOptions& o) { o.token_type = "u64"; }, {"--token-type", "u64"});
  refuse([](TrainOptions& o) { o.invalid_utf8 = "skip"; }, {"--invalid-utf8", "skip"});
  refuse([](TrainOptions& o) { o.memory_limit = "8 apples"; }, {"--memory-limit", "8 apples"});
  refuse([](TrainOptions& o) { o.recompute = "gelu,relu"; }, {"--recompute", "relu"});
  refuse([](TrainOptions& o) { o.valid_fraction = 1.0; }, {"--valid-fraction", "1"});
  refuse([](TrainOptions& o) { o.threads = 0; }, {"--threads", "0"});
  refuse([](TrainOptions& o) { o.passes = {"set_layout"}; }, {"--passes", "set_layout"});
  refuse([](TrainOptions& o) { o.passes = {"-no_such_pass"}; }, {"no_such_pass", "set_layout"});
  refuse([](TrainOptions& o) { o.steps = 1, o.epochs = 1; }, {"--steps", "--epochs"});
}

TEST(Options, BytesWithUnits) {
  EXPECT_EQ(parse_bytes("x", "123"), 123);
  EXPECT_EQ(parse_bytes("x", "8GiB"), int64_t{8} << 30);
  EXPECT_EQ(parse_bytes("x", "1.5 MiB"), 1572864);
  EXPECT_EQ(parse_bytes("x", "500MB"), 500000000);
  for (const char* bad : {"", "GiB", "0", "-1", "1e3", "1XB", "nan", "99999999999TiB", "8GiB "})
    expect_error([&] { parse_bytes("x", bad); }, ErrorCode::usage, {"--x"});
}

TEST(Options, RowsLongerThanTheModelAllows) {
  ShapeOptions options;
  ModelConfig config;
  config.n_positions = 16;
  EXPECT_EQ(resolve_seq(options, config), 16);
  options.seq = 17;
  expect_error([&] { resolve_seq(options, config); }, ErrorCode::invalid, {"n_positions", "16", "17"});
}

}  // namespace
}  // namespace lamina
