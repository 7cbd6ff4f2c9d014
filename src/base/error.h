// Errors. Two kinds, never mixed:
//  * the caller or the world is wrong (a bad option, a corrupt file, no memory): throw Error;
//  * we are wrong (a broken invariant): LAMINA_CHECK, which prints where and aborts.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lamina {

enum class ErrorCode {
  usage,        // an option or value that is never allowed: exit 2
  invalid,      // wrong input: config, file content, contradiction
  io,           // the file system refused
  memory,       // not enough memory for the plan
  unsupported,  // understood, and not offered
};

// One line that says what is wrong, where, expected and got; `hint` is one more line, or empty.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text, std::string hint = {})
      : std::runtime_error(text), code_(code), hint_(std::move(hint)) {}
  ErrorCode code() const { return code_; }
  const std::string& hint() const { return hint_; }

 private:
  ErrorCode code_;
  std::string hint_;
};

// throw_error(ErrorCode::invalid, "bad shape: {}, expected {}, got {}", name, a, b)
template <typename... Args>
[[noreturn]] void throw_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& context);

}  // namespace lamina

// Always on, except in kernels' inner loops. The context is only formatted on failure.
#define LAMINA_CHECK(condition, ...)                                                      \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::lamina::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
