#include "io/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_map.h"
#include "io/quote.h"
#include "io/sniff.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

// Receives nlohmann's events and builds the value. It throws at the first fault, so that nothing is built in vain.
class Builder {
 public:
  Builder(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // JSON text has none
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto [at, fresh] = stack_.back()->emplace(name, nullptr);
    if (!fresh)
      throw_error(ErrorCode::invalid, "bad JSON: {}: duplicate key {}: expected it once, got it again", where_,
                  path() + quote_text(name));
    key_ = std::move(name);
    value_ = &*at;
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const Json::exception& error) {
    throw_error(ErrorCode::invalid, "bad JSON: {}: byte {}: {}", where_, byte, json_reason(error.what()));
  }

  Json take() { return std::move(root_); }

 private:
  Json* place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    *value_ = std::move(value);
    return value_;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (static_cast<int>(stack_.size()) >= limits_.depth)
      throw_error(ErrorCode::invalid, "bad JSON: {}: nested deeper than is read: expected at most {} levels, got more",
                  where_, limits_.depth);
    names_.push_back(!stack_.empty() && stack_.back()->is_object() ? quote_text(key_) : std::string());
    stack_.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    stack_.pop_back();
    names_.pop_back();
    return true;
  }

  std::string path() const {
    std::string out;
    for (const std::string& name : names_)
      if (!name.empty()) out += name + ".";
    return out;
  }

  const std::string& where_;
  const JsonLimits& limits_;
  Json root_;
  std::string key_;                 // the last one
  Json* value_ = nullptr;           // its place, to be filled
  std::vector<Json*> stack_;        // pointers stay valid: a container grows only while it is the innermost
  std::vector<std::string> names_;  // the key of each open container
};

void check_size(size_t size, const std::string& where, const JsonLimits& limits) {
  if (size > static_cast<size_t>(limits.bytes))
    throw_error(ErrorCode::invalid, "JSON file too large: {}: expected at most {} bytes, got {}", where, limits.bytes,
                size);
}

// A key as people know it; one from a file that could break the line, in quotes.
std::string key_text(const std::string& key) {
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  return plain ? key : quote_text(key, 60);
}

}  // namespace

JsonReader JsonReader::operator[](const std::string& key) const {
  const auto found = object().find(key);
  JsonReader out = *this;
  out.value_ = found == value_->end() ? nullptr : &*found;
  out.name_ += (name_.empty() ? "" : ".") + key_text(key);
  return out;
}

JsonReader JsonReader::entry(size_t i) const {
  JsonReader out = *this;
  out.value_ = i < list().size() ? &(*value_)[i] : nullptr;
  out.name_ += fmt::format("[{}]", i);
  return out;
}

bool JsonReader::is_null() const { return present() && value_->is_null(); }

template <>
bool JsonReader::as<bool>() const {
  if (!present() || !value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

template <>
int64_t JsonReader::as<int64_t>() const {
  if (!present() || !value_->is_number_integer()) refuse("a whole number");
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    refuse("a whole number below 2^63");
  return value_->get<int64_t>();
}

template <>
double JsonReader::as<double>() const {
  if (!present() || !value_->is_number()) refuse("a number");
  return value_->get<double>();
}

template <>
std::string JsonReader::as<std::string>() const {
  if (!present() || !value_->is_string()) refuse("a text");
  return value_->get<std::string>();
}

int64_t JsonReader::count() const {
  const int64_t value = as<int64_t>();
  if (value < 0) refuse("a whole number from 0 on");
  return value;
}

std::optional<double> JsonReader::number() const {
  if (is_null()) return std::nullopt;
  if (!present() || !value_->is_number()) refuse("a number or null");
  return value_->get<double>();
}

const Json& JsonReader::object() const {
  if (!present() || !value_->is_object()) refuse("an object");
  return *value_;
}

const Json& JsonReader::list() const {
  if (!present() || !value_->is_array()) refuse("a list");
  return *value_;
}

void JsonReader::refuse(std::string_view expected) const {
  throw_error(ErrorCode::invalid, "{}: {}expected {}, got {}", front_, name_.empty() ? "" : name_ + ", ", expected,
              present() ? json_text(*value_) : "nothing");
}

std::string json_reason(std::string_view message) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while … ; last read: '…'"
  if (const size_t end = message.find("] "); end != std::string_view::npos) message.remove_prefix(end + 2);
  const size_t colon = message.find(": ");
  if (message.substr(0, 11) == "parse error" && colon != std::string_view::npos) message.remove_prefix(colon + 2);
  if (const size_t tail = message.find("; last read"); tail != std::string_view::npos)
    message = message.substr(0, tail);
  const std::string text = quote_text(message, 160);
  return text.substr(1, text.size() - 2);
}

std::string json_text(const Json& value) {
  if (value.is_string()) return quote_text(value.get_ref<const std::string&>(), 60);
  if (value.is_structured())
    return fmt::format("{} of {} entries", value.is_array() ? "a list" : "an object", value.size());
  return value.dump();
}

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  check_size(text.size(), where, limits);
  Builder builder(where, limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json read_json(const std::string& path, const JsonLimits& limits) {
  return parse_json(read_text_file(path, "a JSON file", limits), path, limits);
}

std::string read_text_file(const std::string& path, const std::string& expected, const JsonLimits& limits) {
  const FileMap file(path);
  refuse_foreign_file(file.bytes(), path, expected);
  check_size(file.bytes().size(), path, limits);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace lamina
