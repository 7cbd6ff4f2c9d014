#include "train/option_row.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace lamina {
namespace {

std::string allowed_text(const Allowed& allowed, const char* kind) {
  const bool from = allowed.least > -kNoLimit, to = allowed.most < kNoLimit;
  std::string out = kind;
  if (from && to)
    return fmt::format("{} from {} to {}{}", out, allowed.least, allowed.below ? "below " : "", allowed.most);
  if (from)
    return allowed.above ? fmt::format("{} above {}", out, allowed.least)
                         : fmt::format("{} from {} on", out, allowed.least);
  if (to) return fmt::format("{} up to {}", out, allowed.most);
  return out;
}

bool fits(const Allowed& allowed, double value) {
  if (!std::isfinite(value) || value < allowed.least || value > allowed.most) return false;
  return !(allowed.above && value == allowed.least) && !(allowed.below && value == allowed.most);
}

template <typename T>
bool reads(std::string_view text, T& out) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void check_value(const OptionRow& row, int64_t value) {
  if (!fits(row.allowed, static_cast<double>(value)))
    bad_value(row.name, allowed_text(row.allowed, "a whole number"), std::to_string(value));
}

void check_value(const OptionRow& row, double value) {
  if (!fits(row.allowed, value)) bad_value(row.name, allowed_text(row.allowed, "a number"), fmt::format("{}", value));
}

int64_t parse_whole(const OptionRow& row, std::string_view text) {
  int64_t value = 0;
  if (!reads(text, value)) bad_value(row.name, allowed_text(row.allowed, "a whole number"), text);
  return value;
}

double parse_number(const OptionRow& row, std::string_view text) {
  double value = 0.0;
  if (!reads(text, value)) bad_value(row.name, allowed_text(row.allowed, "a number"), text);
  return value;
}

void bad_value(std::string_view name, std::string_view expected, std::string_view got) {
  throw_error(ErrorCode::usage, "bad value of --{}: expected {}, got {}", name, expected,
              got.empty() ? "nothing" : got);
}

int64_t parse_bytes(std::string_view name, std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1.0},    {"B", 1.0},      {"KB", 1e3},        {"MB", 1e6},           {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [suffix, factor] : kUnits) {
    const double bytes = number * factor;
    if (error == std::errc() && unit == suffix && bytes >= 1.0 && bytes < 9e18) return static_cast<int64_t>(bytes);
  }
  bad_value(name, "a number of bytes such as 8GiB or 500MB", text);
}

}  // namespace lamina
