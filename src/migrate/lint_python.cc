// Imports, aliases and calls out of the tokens of a script, in one walk.
#include "migrate/lint_python.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "migrate/lint_tokens.h"

namespace lamina {
namespace {

// Where things live and under what name they are documented.
constexpr std::pair<std::string_view, std::string_view> kHomes[] = {
    {"mindspore.ops.operations.nn_ops.", "mindspore.ops."},
    {"mindspore.ops.operations.", "mindspore.ops."},
    {"mindspore.ops.functional.", "mindspore.ops."},
    {"mindspore.ops.composite.", "mindspore.ops."},
    {"mindspore.nn.layer.normalization.", "mindspore.nn."},
    {"mindspore.nn.layer.activation.", "mindspore.nn."},
    {"mindspore.nn.layer.basic.", "mindspore.nn."},
    {"mindspore.nn.layer.embedding.", "mindspore.nn."},
    {"mindspore.nn.layer.", "mindspore.nn."},
    {"mindspore.nn.optim.adam.", "mindspore.nn."},
    {"mindspore.nn.optim.", "mindspore.nn."},
    {"mindspore.nn.loss.loss.", "mindspore.nn."},
    {"mindspore.nn.loss.", "mindspore.nn."},
    {"mindspore.common.dtype.", "mindspore."},
    {"mindspore.dtype.", "mindspore."},
    {"mindspore.train.serialization.", "mindspore."},
    {"mindspore.train.amp.", "mindspore.amp."},
    {"mindspore.train.loss_scale_manager.", "mindspore.amp."},
    {"mindspore.train.model.", "mindspore."},
    {"mindspore.train.Model", "mindspore.Model"},
    {"mindspore.DynamicLossScaleManager", "mindspore.amp.DynamicLossScaleManager"},
    {"mindspore.FixedLossScaleManager", "mindspore.amp.FixedLossScaleManager"},
    {"torch.nn.modules.normalization.", "torch.nn."},
    {"torch.nn.modules.activation.", "torch.nn."},
    {"torch.nn.modules.", "torch.nn."},
    {"torch.nn.utils.clip_grad.", "torch.nn.utils."},
    {"torch.optim.adamw.", "torch.optim."},
    {"transformers.modeling_utils.Conv1D", "transformers.pytorch_utils.Conv1D"},
    {"transformers.models.gpt2.modeling_gpt2.", "transformers."},
};

// Of an alias of an alias: `a = a.b` would otherwise grow line by line.
constexpr size_t kMaxMeaning = 256;

std::string documented(std::string path) {
  for (const auto& [home, name] : kHomes)
    if (path.starts_with(home)) return std::string(name) + path.substr(home.size());
  return path;
}

class Walk {
 public:
  explicit Walk(PyScript& script) : script_(script), tokens_(script.tokens) {}

  void run() {
    for (at_ = 0; at_ < tokens_.size();) {
      if (open_.empty() && starts_statement(at_)) {
        statement_ = at_;
        if (is(at_, "import") || is(at_, "from")) {
          imports();
          continue;
        }
        bind();
      }
      if (tokens_[at_].kind == PyToken::name) {
        dotted();
      } else {
        punctuation();
        ++at_;
      }
    }
  }

 private:
  // An open bracket, and the argument that goes on in it where it belongs to a call.
  struct Open {
    std::optional<size_t> call;
    PyArgument argument;
    bool starts_statement = false;
    int lambdas = 0;  // whose colon has not come: their commas part no arguments
  };

  bool is(size_t at, std::string_view word) const { return at < tokens_.size() && tokens_[at].word == word; }
  bool is_kind(size_t at, PyToken::Kind kind) const { return at < tokens_.size() && tokens_[at].kind == kind; }

  bool starts_statement(size_t at) const {
    if (at == 0) return true;
    const PyToken& before = tokens_[at - 1];
    return before.kind == PyToken::newline || before.word == ";" || (before.word == ":" && opens_block(statement_));
  }

  // Whether a colon ends a header there: after other words it begins a type, or the body of a lambda.
  bool opens_block(size_t at) const {
    constexpr std::string_view kHeaders[] = {"if",     "elif",    "else",  "for", "while", "with", "try",
                                             "except", "finally", "class", "def", "async", "case", "match"};
    return std::find(std::begin(kHeaders), std::end(kHeaders), tokens_[at].word) != std::end(kHeaders);
  }

  // Behind the type of `NAME: TYPE = VALUE`; `at` itself where there is none.
  size_t skip_type(size_t at) const {
    if (!is(at, ":")) return at;
    for (int depth = 0; !ends_statement(at) && !(depth == 0 && is(at, "=")); ++at) {
      if (is(at, "(") || is(at, "[") || is(at, "{")) ++depth;
      if (is(at, ")") || is(at, "]") || is(at, "}")) --depth;
    }
    return at;
  }

  bool ends_statement(size_t at) const {
    return at >= tokens_.size() || tokens_[at].kind == PyToken::newline || tokens_[at].word == ";";
  }

  // NAME (. NAME)* from `at` on; `at` moves behind it.
  std::string path_from(size_t& at) const {
    std::string path(tokens_[at].word);
    for (++at; is(at, ".") && is_kind(at + 1, PyToken::name); at += 2) path += "." + std::string(tokens_[at + 1].word);
    return path;
  }

  std::string resolve(const std::string& path) const {
    const size_t dot = std::min(path.find('.'), path.size());
    const auto found = bound_.find(path.substr(0, dot));
    return found == bound_.end() ? "" : documented(found->second + path.substr(dot));
  }

  void import_one(const std::string& front) {
    const int64_t line = tokens_[at_].line;
    std::string path = path_from(at_);
    std::string name = front.empty() ? path.substr(0, path.find('.')) : path;
    std::string meaning = front.empty() ? name : front + "." + path;
    script_.imports.push_back({documented(front.empty() ? path : meaning), line});
    if (is(at_, "as") && is_kind(at_ + 1, PyToken::name)) {
      name = tokens_[at_ + 1].word;
      if (front.empty()) meaning = path;
      at_ += 2;
    }
    bound_[name] = std::move(meaning);
  }

  void imports() {
    std::string front;
    if (is(at_++, "from")) {
      for (; is(at_, ".") || is(at_, "..."); ++at_) front += ".";  // of its own package: unknown, whatever follows
      if (is_kind(at_, PyToken::name) && !is(at_, "import")) front += path_from(at_);
      if (front.empty() || !is(at_, "import")) return;
      ++at_;
    }
    while (!ends_statement(at_)) {
      if (tokens_[at_].kind == PyToken::name)
        import_one(front);
      else
        ++at_;
    }
  }

  // What a statement binds first: a class, a function, a plain name. An alias of an import stays one.
  void bind() {
    if (tokens_[at_].kind != PyToken::name) return;
    if ((is(at_, "class") || is(at_, "def")) && is_kind(at_ + 1, PyToken::name)) {
      bound_.erase(std::string(tokens_[at_ + 1].word));
      return;
    }
    size_t at = at_;
    const std::string target = path_from(at);
    if (!opens_block(at_)) at = skip_type(at);
    if (!is(at, "=")) return;
    size_t end = at + 1;
    std::string value;
    if (is_kind(end, PyToken::name)) value = path_from(end);
    const bool plain = !value.empty() && ends_statement(end);
    if (plain) script_.assignments.push_back({target, value, tokens_[at_].line});
    if (target.find('.') != std::string::npos) return;
    const std::string meaning = plain ? resolve(value) : "";
    if (meaning.empty() || meaning.size() > kMaxMeaning)
      bound_.erase(target);
    else
      bound_[target] = meaning;
  }

  // A dotted name: a use of an import, a call, or neither.
  void dotted() {
    const size_t begin = at_;
    const bool method = begin > 0 && is(begin - 1, ".");
    const bool defined = begin > 0 && (is(begin - 1, "def") || is(begin - 1, "class"));
    const bool keyword = !open_.empty() && is(begin + 1, "=") && (is(begin - 1, "(") || is(begin - 1, ","));
    if (is(begin, "lambda") && !open_.empty()) ++open_.back().lambdas;
    const std::string path = path_from(at_);
    const std::string meaning = method || keyword ? "" : resolve(path);
    if (!meaning.empty()) script_.uses.push_back({meaning, tokens_[begin].line});
    if (!is(at_, "(") || defined) return;
    PyCall call{meaning, path, tokens_[begin].line, !meaning.empty(), false, {}, tokens_.size()};
    const size_t dot = path.rfind('.');
    if (meaning.empty()) call.callee = dot != std::string::npos ? path.substr(dot) : (method ? "." : "") + path;
    pending_ = script_.calls.size();
    script_.calls.push_back(std::move(call));
    pending_starts_ = open_.empty() && begin == statement_;
  }

  void punctuation() {
    const std::string_view word = tokens_[at_].word;
    if (tokens_[at_].kind != PyToken::op) return;
    if (word == "(" || word == "[" || word == "{") {
      open_.push_back({word == "(" ? std::exchange(pending_, {}) : std::nullopt, {}, pending_starts_, 0});
      open_.back().argument.begin = at_ + 1;
      return;
    }
    if (open_.empty()) return;
    if (word == ":" && open_.back().lambdas > 0) --open_.back().lambdas;
    if (word == "," && open_.back().lambdas == 0) end_argument();
    if (word != ")" && word != "]" && word != "}") return;
    end_argument();
    const Open closed = open_.back();
    open_.pop_back();
    if (!closed.call) return;
    script_.calls[*closed.call].end = at_ + 1;
    if (closed.starts_statement) script_.calls[*closed.call].dropped = ends_statement(at_ + 1);
  }

  void end_argument() {
    Open& open = open_.back();
    PyArgument argument = open.argument;
    open.argument = {};
    open.argument.begin = at_ + 1;
    argument.end = at_;
    if (!open.call || argument.begin >= argument.end) return;
    if (is(argument.begin, "*") || is(argument.begin, "**")) argument.star = true;
    if (tokens_[argument.begin].kind == PyToken::name && is(argument.begin + 1, "=")) {
      argument.name = tokens_[argument.begin].word;
      argument.begin += 2;
    }
    script_.calls[*open.call].arguments.push_back(argument);
  }

  PyScript& script_;
  const std::vector<PyToken>& tokens_;
  size_t at_ = 0;
  size_t statement_ = 0;                      // where the one at hand begins
  std::map<std::string, std::string> bound_;  // name to what it means; relative imports begin with a dot
  std::vector<Open> open_;
  std::optional<size_t> pending_;  // the call whose bracket comes next
  bool pending_starts_ = false;
};

}  // namespace

PyScript scan_python(std::string_view text, const std::string& where) {
  PyScript script;
  script.tokens = python_tokens(text, where);
  Walk(script).run();
  return script;
}

std::string joined(const PyScript& script, size_t begin, size_t end) {
  std::string out;
  for (size_t i = begin; i < end; ++i) out += script.tokens[i].word;
  return out;
}

}  // namespace lamina
