// What the io tests share: a folder of their own, small files in it, and errors checked by what they name.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lamina::test {

// Gone with everything in it at the end of the test.
class TempDir {
 public:
  TempDir() {
    static std::atomic<int> counter{0};
    path_ = std::filesystem::temp_directory_path() /
            ("lamina-io-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)));
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

  std::string write(const std::string& name, std::string_view content) const {
    const std::filesystem::path target = path_ / name;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    return target.string();
  }

  // Names of all entries, hidden ones too.
  std::vector<std::string> list() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

// Files of this process may not grow beyond `bytes`: the nearest thing to a full disk that needs no privilege.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &saved_);
    const rlimit limit{bytes, saved_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &saved_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit saved_{};
  void (*handler_)(int);
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Letter case aside; a number counts only as a whole number.
inline bool names(std::string text, std::string word) {
  const auto lower = [](std::string& s) {
    for (char& c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  };
  lower(text), lower(word);
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool cut_before = is_digit(word.front()) && at > 0 && is_digit(text[at - 1]);
    const size_t end = at + word.size();
    const bool cut_behind = is_digit(word.back()) && end < text.size() && is_digit(text[end]);
    if (!cut_before && !cut_behind) return true;
  }
  return false;
}

// The call throws Error of this code, in one line that names all the words.
template <typename F>
void expect_error(F&& call, ErrorCode code, const std::vector<std::string>& words) {
  try {
    call();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    for (const std::string& word : words) EXPECT_TRUE(names(text, word)) << "expected \"" << word << "\" in: " << text;
    return;
  }
  ADD_FAILURE() << "no error, expected one that names " << (words.empty() ? "anything" : words.front());
}

// A file of safetensors with this header and this many bytes of data, zero unless given.
inline std::string safetensors_bytes_of(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + header + data;
}

// The folder of case files in the source tree, in which (or below which) the tests run.
inline std::filesystem::path cases_folder() {
  for (std::filesystem::path at = std::filesystem::current_path();; at = at.parent_path()) {
    if (std::filesystem::exists(at / "tests/cases")) return at / "tests/cases";
    if (!at.has_relative_path()) throw std::runtime_error("no folder tests/cases above the working folder");
  }
}

}  // namespace lamina::test
