// JSON read strictly: UTF-8, no key twice in one object, nesting and size bounded, numbers that fit. What a document
// means is the caller's business. Writing is nlohmann's dump().
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

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

// The reason out of nlohmann's message, on one line and short.
std::string json_reason(std::string_view message);

// A value for a message: short, one line.
std::string json_text(const nlohmann::json& value);

}  // namespace lamina
