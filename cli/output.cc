// Where the words of a command go, and where its input comes from.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file_map.h"
#include "command.h"
#include "io/quote.h"

namespace lamina::cli {

void say_line(const std::string& line) {
  const std::string whole = line + "\n";
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) std::_Exit(128 + SIGPIPE);  // quietly, as every program whose reader, `head`, has seen enough
  throw_error(ErrorCode::io, "cannot write to standard output: {}", std::strerror(errno));
}

void print_json(const Json& value) { print(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }

std::vector<int32_t> parse_ids(std::string_view text, const std::string& where) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  std::vector<int32_t> out;
  for (size_t at = text.find_first_not_of(kSpace); at < text.size(); at = text.find_first_not_of(kSpace, at)) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    int32_t id = 0;
    const auto [last, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || last != text.data() + end)
      throw_error(ErrorCode::invalid, "bad id: {}: byte {}: expected a decimal number below 2147483648, got {}", where,
                  at, quote_text(text.substr(at, end - at), 40));
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

}  // namespace lamina::cli
