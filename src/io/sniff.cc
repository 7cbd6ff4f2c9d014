#include "io/sniff.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"

namespace lamina {
namespace {

constexpr std::string_view kLfsLine = "version https://git-lfs.github.com/spec/";

std::string_view front_text(std::span<const std::byte> bytes, size_t length) {
  return {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), length)};
}

// Without byte-order mark and white space, in lower case.
std::string first_words(std::span<const std::byte> bytes) {
  std::string_view text = front_text(bytes, 512);
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  std::string out(text.substr(0, 64));
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// The decimal number behind "\nsize ", empty where there is none.
std::string lfs_size(std::string_view text) {
  const size_t at = text.find("\nsize ");
  if (at == std::string_view::npos) return {};
  const std::string_view digits = text.substr(at + 6, 20);
  return std::string(digits.substr(0, std::min(digits.find_first_not_of("0123456789"), digits.size())));
}

}  // namespace

void refuse_foreign_file(std::span<const std::byte> bytes, const std::string& where, const std::string& expected) {
  const std::string_view text = front_text(bytes, 1024);
  if (text.substr(0, kLfsLine.size()) == kLfsLine) {
    const std::string size = lfs_size(text);
    throw Error(ErrorCode::invalid,
                fmt::format("not a model file: {}: expected {}, got a Git LFS pointer{}", where, expected,
                            size.empty() ? "" : fmt::format(" to {} bytes", size)),
                "fetch the file itself: git lfs pull");
  }
  const std::string words = first_words(bytes);
  for (const std::string_view page : {"<!doctype html", "<html", "<head", "<?xml", "<!--"})
    if (words.compare(0, page.size(), page) == 0)
      throw Error(ErrorCode::invalid,
                  fmt::format("not a model file: {}: expected {}, got {}", where, expected,
                              page == "<?xml" ? "an XML page" : "an HTML page"),
                  "the download brought a page (a sign-in or an error?) in place of the file");
}

std::string known_format(std::span<const std::byte> bytes) {
  struct Magic {
    std::string_view bytes;
    const char* name;
  };
  using namespace std::string_view_literals;
  static constexpr Magic kMagics[] = {{"PK\x03\x04"sv, "a zip archive (torch's own format?)"},
                                      {"PK\x05\x06"sv, "an empty zip archive"},
                                      {"\x80\x02"sv, "a pickle (torch's own format?)"},
                                      {"\x80\x03"sv, "a pickle"},
                                      {"\x80\x04"sv, "a pickle"},
                                      {"\x80\x05"sv, "a pickle"},
                                      {"GGUF"sv, "a GGUF file"},
                                      {"\x89HDF"sv, "an HDF5 file"},
                                      {"\x93NUMPY"sv, "a NumPy array"},
                                      {"\x1f\x8b"sv, "a gzip file"},
                                      {"{"sv, "JSON or other text"}};
  for (const Magic& magic : kMagics)
    if (front_text(bytes, magic.bytes.size()) == magic.bytes) return magic.name;
  if (front_text(bytes, 262).ends_with("ustar") && bytes.size() >= 262)
    return "a tar archive (torch's own format before 0.2?)";
  return {};
}

}  // namespace lamina
