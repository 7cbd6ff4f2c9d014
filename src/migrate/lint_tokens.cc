// The tokens of a Python script.
#include "migrate/lint_tokens.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "io/quote.h"
#include "io/utf8.h"

namespace lamina {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_name(char c) { return starts_name(c) || is_digit(c); }

// Operators of more than one character, longest first.
constexpr std::string_view kOperators[] = {"**=", "//=", ">>=", "<<=", "...", "**", "//", ">>", "<<", "<=", ">=", "==",
                                           "!=",  "->",  "+=",  "-=",  "*=",  "/=", "%=", "&=", "|=", "^=", "@=", ":="};

class Scanner {
 public:
  Scanner(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  std::vector<PyToken> scan() {
    while (at_ < text_.size()) next();
    if (!open_.empty()) refuse(open_.back().line, "a bracket that is closed", std::string(1, open_.back().bracket));
    end_line();
    return std::move(tokens_);
  }

 private:
  struct Open {
    char bracket;
    int64_t line;
  };

  [[noreturn]] void refuse(int64_t line, std::string_view expected, std::string_view got) const {
    throw_error(ErrorCode::invalid, "bad script: {}: line {}: expected {}, got {}", where_, line, expected,
                quote_text(got, 40));
  }

  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void add(PyToken::Kind kind, size_t begin, int64_t line) {
    tokens_.push_back({kind, text_.substr(begin, at_ - begin), line});
  }

  void end_line() {
    if (!tokens_.empty() && tokens_.back().kind != PyToken::newline)
      tokens_.push_back({PyToken::newline, text_.substr(at_, 0), line_});
  }

  void next() {
    const char c = peek();
    if (c == '\n' || c == '\r') return line_break();
    if (c == ' ' || c == '\t' || c == '\f') {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
    } else if (c == '\\' && (peek(1) == '\n' || peek(1) == '\r')) {
      ++at_;
      skip_break();
    } else if (c == '"' || c == '\'') {
      string(at_);
    } else if (starts_name(c)) {
      name();
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else {
      op();
    }
  }

  void skip_break() {
    at_ += peek() == '\r' && peek(1) == '\n' ? 2 : 1;
    ++line_;
  }

  void line_break() {
    if (open_.empty()) end_line();
    skip_break();
  }

  void name() {
    const size_t begin = at_;
    while (is_name(peek())) ++at_;
    const bool prefix = at_ - begin <= 2 && (peek() == '"' || peek() == '\'') &&
                        text_.substr(begin, at_ - begin).find_first_not_of("rRbBuUfFtT") == std::string_view::npos;
    if (prefix) return string(begin);
    add(PyToken::name, begin, line_);
  }

  // A sign belongs to it after an exponent only: 1e-5, but not 0xe-5.
  void number() {
    const size_t begin = at_;
    const bool hex = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    while (is_name(peek()) || peek() == '.' ||
           (!hex && (peek() == '+' || peek() == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))
      ++at_;
    add(PyToken::number, begin, line_);
  }

  void string(size_t begin) {
    const int64_t line = line_;
    const char quote = peek();
    const bool triple = peek(1) == quote && peek(2) == quote;
    at_ += triple ? 3 : 1;
    while (true) {
      if (at_ >= text_.size()) refuse(line, "a text that ends", text_.substr(begin, 40));
      const char c = peek();
      if (c == '\\') {
        ++at_;
        if (at_ >= text_.size()) continue;
        if (peek() == '\n' || peek() == '\r')
          skip_break();
        else
          ++at_;
      } else if (c == '\n' || c == '\r') {
        if (!triple) refuse(line, "a text that ends in its line", text_.substr(begin, 40));
        skip_break();
      } else if (c == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        at_ += triple ? 3 : 1;
        break;
      } else {
        ++at_;
      }
    }
    add(PyToken::text, begin, line);
  }

  void op() {
    const size_t begin = at_;
    const std::string_view rest = text_.substr(at_);
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [rest](std::string_view word) { return rest.starts_with(word); });
    at_ += found == std::end(kOperators) ? 1 : found->size();
    add(PyToken::op, begin, line_);
    bracket(text_[begin]);
  }

  void bracket(char c) {
    constexpr std::string_view kPairs = "()[]{}";
    const size_t place = kPairs.find(c);
    if (place == std::string_view::npos) return;
    if (place % 2 == 0) {
      open_.push_back({c, line_});
      if (open_.size() > kMaxScriptDepth)
        refuse(line_, fmt::format("at most {} open brackets", kMaxScriptDepth), "more");
    } else if (open_.empty() || open_.back().bracket != kPairs[place - 1]) {
      refuse(line_, "brackets that match", std::string(1, c));
    } else {
      open_.pop_back();
    }
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::vector<Open> open_;
  std::vector<PyToken> tokens_;
};

}  // namespace

std::vector<PyToken> python_tokens(std::string_view text, const std::string& where) {
  if (text.size() > kMaxScriptBytes)
    throw_error(ErrorCode::invalid, "bad script: {}: expected at most {} bytes, got {}", where, kMaxScriptBytes,
                text.size());
  require_utf8(text, where);
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw_error(ErrorCode::invalid, "bad script: {}: byte {}: expected text, got a zero byte", where, zero);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return Scanner(text, where).scan();
}

}  // namespace lamina
