#include "command.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/file_map.h"
#include "io/quote.h"

namespace lamina::cli {

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw_error(ErrorCode::io, "cannot write to standard output: {}", std::strerror(errno));
}

void print_json(const Json& value) {
  print(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::vector<int32_t> parse_ids(std::string_view text, const std::string& where) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  std::vector<int32_t> out;
  for (size_t at = text.find_first_not_of(kSpace); at < text.size(); at = text.find_first_not_of(kSpace, at)) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    int32_t id = 0;
    const auto [last, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || last != text.data() + end)
      throw_error(ErrorCode::invalid, "bad id: {}: byte {}: expected a decimal number below 2147483648, got {}", where, at,
                  quote_text(text.substr(at, end - at), 40));
    out.push_back(id);
    at = end;
  }
  return out;
}

std::string read_input(const std::string& path) {
  if (path != "-") {
    const FileMap file(path);
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  std::string out;
  char block[65536];
  while (const size_t count = std::fread(block, 1, sizeof(block), stdin)) out.append(block, count);
  if (std::ferror(stdin) != 0) throw_error(ErrorCode::io, "cannot read standard input: {}", std::strerror(errno));
  return out;
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
