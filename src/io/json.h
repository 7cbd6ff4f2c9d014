// JSON read strictly: UTF-8, no key twice in one object, nesting and size bounded, numbers that fit; then value by
// value, as the type that is expected. What a document means is the caller's business. Writing is nlohmann's dump().
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lamina {

struct JsonLimits {
  int64_t bytes = int64_t{16} << 20;
  int depth = 32;
};

// `where` is the file's name for messages. Throws Error(invalid) that names it and the byte or the key.
nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

// The same with a whole file.
nlohmann::json read_json(const std::string& path, const JsonLimits& limits = {});

// A file of at most limits.bytes as text, refused where it is a pointer or a page in place of what was expected.
std::string read_text_file(const std::string& path, const std::string& expected, const JsonLimits& limits = {});

// A value of a document from outside, taken as the type that it has to be. What is of another type or missing throws
// Error(invalid) "front: key, expected a whole number, got "x"", never an exception of the library. Views the document.
class JsonReader {
 public:
  // `front`: what the document is and where it lies, "bad checkpoint: run/checkpoints/step-2".
  JsonReader(const nlohmann::json& value, std::string front) : value_(&value), front_(std::move(front)) {}

  JsonReader operator[](const std::string& key) const;  // a missing one is not present(); no object: throws
  JsonReader entry(size_t i) const;                     // of a list
  bool present() const { return value_ != nullptr; }
  const nlohmann::json& json() const { return *value_; }  // of one that is present
  bool is_null() const;                                   // present

  template <typename T>
  T as() const;  // bool, int64_t, double, std::string
  template <typename T>
  T as_or(T fallback) const {  // where it is not present
    return present() ? as<T>() : std::move(fallback);
  }
  int64_t count() const;                 // a whole number from 0 on
  std::optional<double> number() const;  // or null
  const nlohmann::json& object() const;
  const nlohmann::json& list() const;

  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  const nlohmann::json* value_;  // null: missing
  std::string front_;
  std::string name_;  // keys from the root on, with dots between them
};

template <>
bool JsonReader::as<bool>() const;
template <>
int64_t JsonReader::as<int64_t>() const;
template <>
double JsonReader::as<double>() const;
template <>
std::string JsonReader::as<std::string>() const;

// The reason out of nlohmann's message, on one line and short.
std::string json_reason(std::string_view message);

// A value for a message: short, one line.
std::string json_text(const nlohmann::json& value);

}  // namespace lamina
