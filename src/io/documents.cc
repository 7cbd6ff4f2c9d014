#include "io/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/json.h"
#include "io/quote.h"

namespace lamina {
namespace {

constexpr size_t kBytes = size_t{16} << 20;  // of text at a time, or one document
constexpr size_t kFiles = 1024;              // mapped at a time
constexpr JsonLimits kLineLimits{.bytes = INT32_MAX, .depth = 32};

std::string fields_of(const nlohmann::json& object) {
  std::string out;
  for (const auto& [key, value] : object.items()) out += (out.empty() ? "" : ", ") + quote_text(key, 40);
  return out.empty() ? "none" : out.size() > 200 ? out.substr(0, out.find(", ", 150)) + ", …" : out;
}

}  // namespace

std::string text_of_json_line(std::string_view line, const std::string& field, const std::string& where) {
  nlohmann::json object = parse_json(line, where, kLineLimits);
  if (!object.is_object())
    throw_error(ErrorCode::invalid, "bad line: {}: expected a JSON object, got {}", where, json_text(object));
  const auto text = object.find(field);
  if (text == object.end())
    throw Error(
        ErrorCode::invalid,
        fmt::format("bad line: {}: expected a field {}, got {}", where, quote_text(field, 40), fields_of(object)),
        "--text-field NAME says which field holds the text");
  if (!text->is_string())
    throw_error(ErrorCode::invalid, "bad line: {}: expected text in the field {}, got {}", where, quote_text(field, 40),
                json_text(*text));
  return std::move(text->get_ref<std::string&>());
}

DocumentReader::DocumentReader(std::vector<std::string> files, DocumentOptions options,
                               std::function<void(const std::string&)> say)
    : files_(std::move(files)), options_(std::move(options)), say_(std::move(say)) {}

std::span<const Document> DocumentReader::next() {
  documents_.clear();
  texts_.clear();
  open_.clear();
  bytes_ = 0;
  while (bytes_ < kBytes && open_.size() < kFiles) {
    if (lines_) {
      read_lines();
    } else if (next_file_ < files_.size()) {
      open(files_[next_file_++]);
    } else {
      break;
    }
  }
  return documents_;
}

void DocumentReader::open(const std::string& path) {
  TextFile file(path, options_.invalid);
  if (say_ && file.had_bom()) say_(fmt::format("{}: byte-order mark dropped", path));
  if (say_ && file.replaced() > 0)
    say_(fmt::format("{}: {} ill-formed parts replaced by U+FFFD", path, file.replaced()));
  if (path.ends_with(".jsonl")) {
    lines_ = std::move(file);
    at_ = 0;
    line_ = 0;
    return;
  }
  const TextFile& kept = open_.emplace_back(std::move(file));
  documents_.push_back({kept.text(), path, kept.had_bom() ? 3 : 0});
  bytes_ += kept.text().size();
}

void DocumentReader::read_lines() {
  const std::string_view text = lines_->text();
  while (at_ < text.size() && bytes_ < kBytes) {
    const size_t end = std::min(text.find('\n', at_), text.size());
    const std::string_view line = text.substr(at_, end - at_);
    at_ = std::min(end + 1, text.size());
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}: line {}", lines_->path(), line_);
    const std::string& document = texts_.emplace_back(text_of_json_line(line, options_.text_field, where));
    documents_.push_back({document, where});
    bytes_ += document.size() + 1;  // many empty documents fill a batch too
  }
  if (at_ == text.size()) lines_.reset();
}

}  // namespace lamina
