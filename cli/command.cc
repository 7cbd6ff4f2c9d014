#include "command.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace lamina::cli {

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw_error(ErrorCode::io, "cannot write to standard output: {}", std::strerror(errno));
}

void print_json(const Json& value) {
  print(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

namespace detail {

std::string flag_name(const OptionRow& row) { return std::string("--") + row.name; }

CLI::Option* finish(CLI::Option* option, const OptionRow& row) {
  option->type_name(row.value);
  return option->required(row.required);
}

std::string betas_text(const std::array<double, 2>& betas) { return fmt::format("{},{}", betas[0], betas[1]); }

std::array<double, 2> parse_pair(const std::string& name, const std::string& text) {
  std::array<double, 2> out{};
  const char* at = text.data();
  const char* end = at + text.size();
  for (size_t i = 0; i < out.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, out[i]);
    const bool last = i + 1 == out.size();
    if (error != std::errc() || (last ? next != end : next == end || *next != ','))
      bad_value(name, "two numbers with a comma between them", text);
    at = next + 1;
  }
  return out;
}

}  // namespace detail

}  // namespace lamina::cli
