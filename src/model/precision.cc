#include "model/precision.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"

namespace lamina {
namespace {

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 7> kLayerParts{"attention.q",    "attention.k", "attention.v", "attention.core",
                                                      "attention.proj", "mlp.fc",      "mlp.proj"};

// HuggingFace's words and what they are here; c_proj belongs to attention and mlp alike.
constexpr std::pair<std::string_view, std::string_view> kTheirWords[] = {
    {"h", "layer"}, {"attn", "attention"}, {"c_attn", "{q,k,v}"}, {"c_proj", "proj"},
    {"c_fc", "fc"}, {"wte", "embedding"},  {"wpe", "embedding"},  {"lm_head", "head"},
};

[[noreturn]] void refuse(std::string_view pattern, std::string_view why) {
  throw_error(ErrorCode::invalid,
              "bad precision map: pattern {}, expected *, embedding, head, layer.N, attention.{{q,k,v,core,proj}} or "
              "mlp.{{fc,proj}}, got {}",
              pattern, why);
}

// Dots inside braces do not separate.
Words words_of(std::string_view text) {
  Words words(1);
  bool inside = false;
  for (char c : text) {
    inside = c == '{' || (inside && c != '}');
    if (c == '.' && !inside)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

// "a" or "{a,b}" as a list of names.
Words alternatives(const std::string& word) {
  if (word.size() < 2 || word.front() != '{' || word.back() != '}') return {word};
  Words out(1);
  for (char c : word.substr(1, word.size() - 2)) {
    if (c == ',')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

class Pattern {
 public:
  explicit Pattern(const std::string& text) : text_(text) {
    Words words = words_of(text);
    if (words.front() == "transformer") words.erase(words.begin());
    if (words.size() > 1 && words.back() == "weight") words.pop_back();
    for (std::string& word : words)
      for (const auto& [theirs, ours] : kTheirWords)
        if (word == theirs) word = ours;
    if (words.empty() || words.front().empty()) refuse(text, "nothing");
    for (const std::string& word : words)
      if (word.starts_with("ln_")) refuse(text, "a LayerNorm, which is always fp32");
    size_t first = 0;
    if (words.front() == "layer") {
      if (words.size() < 2) refuse(text, "layer without a number");
      layers(words[1]);
      first = 2;
    }
    for (; first < words.size(); ++first) names_.push_back(alternatives(words[first]));
    for (const Words& names : names_)
      if (names.size() > 1 && std::find(names.begin(), names.end(), "*") != names.end()) refuse(text, "* in braces");
    if (!is_known()) refuse(text, fmt::format("\"{}\"", text));
  }

  bool matches(int64_t layer, std::string_view part) const {
    if (layer < least_ || layer > most_) return false;
    if (names_.size() == 1 && names_[0] == Words{"*"}) return true;
    const Words words = words_of(part);
    if (names_.size() > words.size()) return false;
    for (size_t i = 0; i < names_.size(); ++i)
      if (std::find(names_[i].begin(), names_[i].end(), words[i]) == names_[i].end()) return false;
    return true;
  }

 private:
  // "3", "0-3" or "*".
  void layers(const std::string& word) {
    most_ = INT64_MAX;
    least_ = 0;
    if (word == "*") return;
    const size_t dash = std::min(word.find('-'), word.size());
    const std::optional<int64_t> from = whole(std::string_view(word).substr(0, dash));
    const std::optional<int64_t> to = dash == word.size() ? from : whole(std::string_view(word).substr(dash + 1));
    if (!from || !to || *from > *to) refuse(text_, fmt::format("layers \"{}\"", word));
    least_ = *from;
    most_ = *to;
  }

  // Every alternative is the beginning of some part.
  bool is_known() const {
    for (size_t i = 0; i < names_.size(); ++i)
      for (const std::string& name : names_[i]) {
        Pattern one = *this;
        one.names_.resize(i + 1);
        one.names_[i] = {name};
        if (!one.matches_some_part()) return false;
      }
    return true;
  }
  bool matches_some_part() const {
    if (least_ < 0 && (matches(-1, "embedding") || matches(-1, "head"))) return true;
    return std::any_of(kLayerParts.begin(), kLayerParts.end(),
                       [&](auto part) { return matches(std::max<int64_t>(least_, 0), part); });
  }

  std::string text_;
  int64_t least_ = -1, most_ = INT64_MAX;  // layers; −1: what is in no layer too
  std::vector<Words> names_;               // of each word of a part, what it may be
};

struct Part {
  int64_t layer;
  std::string_view name;
  std::string text() const { return layer < 0 ? std::string(name) : fmt::format("layer.{}.{}", layer, name); }
};

std::vector<Part> parts_of(const ModelConfig& config) {
  std::vector<Part> parts{{-1, "embedding"}};
  for (int64_t layer = 0; layer < config.n_layer; ++layer)
    for (std::string_view name : kLayerParts) parts.push_back({layer, name});
  parts.push_back({-1, "head"});
  return parts;
}

}  // namespace

std::vector<PartPrecision> precision_of_parts(const PrecisionMap& map, const ModelConfig& config) {
  const std::vector<Part> parts = parts_of(config);
  struct Match {
    const PrecisionRule* rule;
    size_t width;  // parts that its pattern matches
  };
  std::vector<std::vector<Match>> matches(parts.size());
  for (const PrecisionRule& rule : map) {
    const Pattern pattern(rule.pattern);
    std::vector<size_t> matched;
    for (size_t i = 0; i < parts.size(); ++i)
      if (pattern.matches(parts[i].layer, parts[i].name)) matched.push_back(i);
    if (matched.empty())
      throw_error(ErrorCode::invalid, "bad precision map: pattern {} matches no part, expected layers 0 to {}",
                  rule.pattern, config.n_layer - 1);
    for (size_t i : matched) matches[i].push_back({&rule, matched.size()});
  }
  std::vector<PartPrecision> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    out.push_back({parts[i].text(), Dtype::f32});
    if (matches[i].empty()) continue;
    const auto narrower = [](const Match& a, const Match& b) { return a.width < b.width; };
    const Match best = *std::min_element(matches[i].begin(), matches[i].end(), narrower);
    out.back().dtype = best.rule->dtype;
    for (const Match& other : matches[i])
      if (other.width == best.width && other.rule->dtype != best.rule->dtype)
        throw_error(ErrorCode::invalid, "bad precision map: {} is {} by {} and {} by {}, expected one of them",
                    out.back().part, precision_name(best.rule->dtype), best.rule->pattern,
                    precision_name(other.rule->dtype), other.rule->pattern);
  }
  return out;
}

std::vector<std::string> nodes_of_part(const std::string& part) {
  if (part == "embedding") return {"embedding.token", "embedding.position"};
  constexpr std::string_view kCore = ".core";
  if (!part.ends_with(kCore)) return {part};
  const std::string attention = part.substr(0, part.size() - kCore.size());
  return {attention, attention + ".cached"};
}

std::string_view precision_name(Dtype dtype) {
  return dtype == Dtype::f32 ? "fp32" : dtype == Dtype::f16 ? "fp16" : dtype_name(dtype);
}

std::optional<Dtype> parse_precision_name(std::string_view name) {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    if (precision_name(dtype) == name) return dtype;
  return std::nullopt;
}

}  // namespace lamina
