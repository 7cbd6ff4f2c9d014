// One table of options per command: name, what people read, what values are allowed, and the field. The command line,
// the checks and what a run writes down about itself are made from the same rows. Which values are allowed here is a
// matter of the option alone; what contradicts a file or a model is found later.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

// Allowed numbers: from `least` (or above it) to `most` (or below it). Both ends infinite: any finite number.
struct Allowed {
  double least;
  double most;
  bool above = false;  // `least` itself is not allowed
  bool below = false;  // nor `most`
};

constexpr double kNoLimit = 1e300;
constexpr Allowed kAnyNumber{-kNoLimit, kNoLimit};
constexpr Allowed kFromZero{0.0, kNoLimit};
constexpr Allowed kFloatFromZero{0.0, std::numeric_limits<float>::max()};  // kernels take it in fp32
constexpr Allowed kFromOne{1.0, kNoLimit};
constexpr Allowed kAboveZero{0.0, kNoLimit, true};
constexpr Allowed kProbability{0.0, 1.0};

struct OptionRow {
  const char* name;   // without the dashes; the same in Python
  const char* value;  // what stands for its value in help: "N", "DIR"; "" for a switch
  const char* help;
  Allowed allowed = kAnyNumber;
  bool required = false;
};

// Throws Error(usage): "bad value of --batch: expected a whole number from 1 on, got 0".
void check_value(const OptionRow& row, int64_t value);
void check_value(const OptionRow& row, double value);

inline void check_value(const OptionRow&, bool) {}
inline void check_value(const OptionRow&, const std::string&) {}
inline void check_value(const OptionRow&, const std::vector<std::string>&) {}
inline void check_value(const OptionRow& row, const std::array<double, 2>& values) {
  for (double value : values) check_value(row, value);
}
inline void check_value(const OptionRow& row, const std::vector<int64_t>& values) {
  for (int64_t value : values) check_value(row, value);
}
template <typename T>
void check_value(const OptionRow& row, const std::optional<T>& value) {
  if (value) check_value(row, *value);
}

// Checks every row of a table of options.
template <typename Options>
void check_options(const Options& options) {
  for_each_option(options, [](const OptionRow& row, const auto& field) { check_value(row, field); });
}

// The number that the text is, decimal and all of it; what is allowed is not asked. Throws Error(usage).
int64_t parse_whole(const OptionRow& row, std::string_view text);
double parse_number(const OptionRow& row, std::string_view text);

// Throws Error(usage): "bad value of --schedule: expected constant, linear or cosine, got "square"".
[[noreturn]] void bad_value(std::string_view name, std::string_view expected, std::string_view got);

// "8GiB", "500MB", "123": bytes. Throws Error(usage).
int64_t parse_bytes(std::string_view name, std::string_view text);

}  // namespace lamina
