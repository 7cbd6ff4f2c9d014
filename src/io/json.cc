#include "io/json.h"

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
    if (!fresh) throw_error(ErrorCode::invalid, "bad JSON: {}: duplicate key {}", where_, path() + quote_text(name));
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
      throw_error(ErrorCode::invalid, "bad JSON: {}: nested deeper than {} levels", where_, limits_.depth);
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

}  // namespace

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
