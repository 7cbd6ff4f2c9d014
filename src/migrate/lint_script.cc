// The rules that are found in the text of a Python script: those of lint_calls.cc call by call, the others by what the
// script as a whole has and lacks.
#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <set>

#include "base/error.h"
#include "migrate/lint.h"
#include "migrate/lint_calls.h"
#include "migrate/lint_python.h"

namespace lamina {
namespace {

constexpr size_t kLongest = 80;  // of an expression that is shown

using Words = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view word, Words words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Whether `list`, words with `between` between them, has the word.
bool lists(std::string_view list, std::string_view word, char between) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(between), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

class ScriptLinter {
 public:
  ScriptLinter(std::string_view text, const std::string& file) : file_(file), script_(scan_python(text, file)) {
    for (const PyName& name : script_.imports)
      modules_.try_emplace(std::string_view(name.path).substr(0, name.path.find('.')), &name);
  }

  std::vector<Finding> run() {
    for (const PyCall& call : script_.calls)
      for (const CallRule& row : call_rules())
        if (matches(row, call)) {
          add(row.rule, call.line, fmt::format("{}(...): {}", call.written, row.what));
          if (row.when == When::positional) write_out(row, call);
        }
    train_mode();
    clip_scaled();
    tied_head();
    decays();
    mask_values();
    loss_accumulation();
    assignments();
    imports();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Finding& a, const Finding& b) { return a.place.line < b.place.line; });
    return std::move(found_);
  }

 private:
  void add(std::string_view id, int64_t line, std::string what) {
    const LintRule& rule = lint_rule(id);
    found_.push_back({&rule,
                      rule.severity,
                      {file_, line, "", {}},
                      std::move(what),
                      std::string(rule.pytorch_setting),
                      std::string(rule.mindspore_setting)});
  }

  // The import of a module or of something in it; nothing where the list, with | between, is not imported.
  const PyName* import_of(std::string_view modules) const {
    while (!modules.empty()) {
      const size_t end = std::min(modules.find('|'), modules.size());
      if (const auto found = modules_.find(modules.substr(0, end)); found != modules_.end()) return found->second;
      modules.remove_prefix(std::min(end + 1, modules.size()));
    }
    return nullptr;
  }

  bool calls(Words callees) const {
    return std::any_of(script_.calls.begin(), script_.calls.end(),
                       [&](const PyCall& call) { return is_one_of(call.callee, callees); });
  }

  // A call of a method of this name, of an import's part too.
  bool calls_method(Words names) const {
    return std::any_of(script_.calls.begin(), script_.calls.end(), [&](const PyCall& call) {
      return call.callee.find('.') != std::string::npos && is_one_of(last_part(call.callee), names);
    });
  }

  bool has_word(std::string_view word) const {
    return std::any_of(script_.tokens.begin(), script_.tokens.end(),
                       [&](const PyToken& token) { return token.word == word; });
  }

  // ---- one call

  static const PyArgument* argument_of(const CallRule& row, const PyCall& call) {
    for (const PyArgument& argument : call.arguments)
      if (!argument.name.empty() && lists(row.argument, argument.name, '|')) return &argument;
    int place = 0;
    for (const PyArgument& argument : call.arguments) {
      if (argument.star || !argument.name.empty()) break;
      if (place++ == row.position) return &argument;
    }
    return nullptr;
  }

  static bool has_star(const PyCall& call) {
    return std::any_of(call.arguments.begin(), call.arguments.end(), [](const PyArgument& a) { return a.star; });
  }

  std::string literal(const PyArgument& argument) const {
    std::string text = joined(script_, argument.begin, argument.end);
    std::erase_if(text, [](char c) { return c == '"' || c == '\''; });
    return text;
  }

  bool matches(const CallRule& row, const PyCall& call) const {
    if (row.callee.empty() ? call.imported : call.callee != row.callee) return false;
    if (!row.imports.empty() && import_of(row.imports) == nullptr) return false;
    if (row.when == When::always) return true;
    if (row.when == When::dropped) return call.dropped;
    const PyArgument* argument = argument_of(row, call);
    if (row.when == When::absent) return argument == nullptr && !has_star(call);
    if (argument == nullptr) return false;
    if (row.when == When::positional) return argument->name.empty();
    if (row.when == When::given) return literal(*argument) != "None";
    return lists(row.values, literal(*argument), ' ') && (row.when == When::value || call.dropped);
  }

  // The value that stands at a place whose meaning differs, by its name: what was kept is 1 - p, if it was meant so.
  void write_out(const CallRule& row, const PyCall& call) {
    const std::string value = literal(*argument_of(row, call));
    std::string p = "p=" + value;
    if (row.argument == "keep_prob") {
      double kept = 0.0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), kept);
      const bool known = error == std::errc() && end == value.data() + value.size();
      p = fmt::format("p={} keeps what it does now; p={} if that share was to be dropped",
                      known ? fmt::format("{:.15g}", 1.0 - kept) : "1 - (" + value + ")", value);
    }
    found_.back().pytorch = found_.back().mindspore = value.size() <= kLongest ? p : "p by its name";
  }

  // ---- the script as a whole

  const PyCall* optimizer(Words modules) const {
    const Words kNames = {"Adam", "AdamW", "AdamWeightDecay", "SGD", "Momentum", "Lamb", "LAMB", "Adafactor"};
    for (const PyCall& call : script_.calls)
      for (const std::string_view module : modules)
        if (call.callee.starts_with(module) && is_one_of(std::string_view(call.callee).substr(module.size()), kNames))
          return &call;
    return nullptr;
  }

  // set_train() or set_train(True), of any net.
  bool sets_train() const {
    constexpr CallRule kMode{.argument = "mode", .position = 0};
    return std::any_of(script_.calls.begin(), script_.calls.end(), [&](const PyCall& call) {
      const PyArgument* mode = argument_of(kMode, call);
      return call.callee == ".set_train" && (mode == nullptr || literal(*mode) != "False");
    });
  }

  void train_mode() {
    const PyCall* mindspore = optimizer({"mindspore.nn.", "mindspore.experimental.optim.", "mindspore.mint.optim."});
    if (mindspore != nullptr && !sets_train() && !calls_method({"train"}))
      add("train-mode", mindspore->line, mindspore->written + "(...): training without set_train(): dropout is off");
    const PyCall* torch = optimizer({"torch.optim."});
    if (torch != nullptr && !calls_method({"train"}))
      add("train-mode", torch->line,
          torch->written + "(...): training without train(): the mode is left to the framework");
  }

  void clip_scaled() {
    const bool torch = calls({"torch.amp.GradScaler", "torch.cuda.amp.GradScaler"}) && !calls_method({"unscale_"});
    const bool mindspore =
        calls({"mindspore.amp.DynamicLossScaler", "mindspore.amp.StaticLossScaler"}) && !calls_method({"unscale"});
    for (const PyCall& call : script_.calls)
      if ((torch && call.callee == "torch.nn.utils.clip_grad_norm_") ||
          (mindspore && is_one_of(call.callee, {"mindspore.ops.clip_by_global_norm", "mindspore.ops.clip_by_norm"})))
        add("clip-scaled", call.line, call.written + "(...): gradients are never unscaled before it");
  }

  // A second parameter made of a table. An assignment of the parameter itself is right.
  void tied_head() {
    if (import_of("mindspore") == nullptr) return;
    for (const PyCall& call : script_.calls) {
      const bool copies = call.callee == ".set_data" && call.written.find("embedding_table") == std::string::npos;
      if (!copies && call.callee != "mindspore.Parameter") continue;
      for (const PyArgument& argument : call.arguments)
        for (size_t i = argument.begin; argument.name.empty() && i < argument.end; ++i)
          if (script_.tokens[i].word == "embedding_table")
            return add("tied-head", call.line, call.written + "(...): a second parameter, not tied to embedding_table");
    }
  }

  // No decay said, neither in the call nor in a group; or one for everything.
  void decays() {
    constexpr CallRule kDecay{.argument = "weight_decay", .position = 4};
    constexpr CallRule kParameters{.argument = "params", .position = 0};
    const bool in_groups = has_word("\"weight_decay\"") || has_word("'weight_decay'");
    for (const PyCall& call : script_.calls) {
      const bool torch = call.callee == "torch.optim.AdamW";
      if (!torch && !is_one_of(call.callee, {"mindspore.experimental.optim.AdamW", "mindspore.mint.optim.AdamW"}))
        continue;
      const PyArgument* parameters = argument_of(kParameters, call);
      const PyArgument* decay = argument_of(kDecay, call);
      if (torch && decay == nullptr && !in_groups && !has_star(call))
        add("adamw-settings", call.line, call.written + "(...): no weight_decay: 0.01");
      if (parameters == nullptr || (decay != nullptr && is_one_of(literal(*decay), {"0", "0.0"}))) continue;
      std::string text = literal(*parameters);
      if (text.starts_with("list(") ||
          (text.starts_with("filter(") && text.find(".requires_grad,") != std::string::npos))
        text.pop_back();  // the bracket: all of them still
      for (const std::string_view all : {".parameters()", ".trainable_params()", ".get_parameters()"})
        if (text.ends_with(all)) add("decay-groups", call.line, call.written + "(...): biases and LayerNorm decay too");
    }
  }

  // Whether the token is a number that fp16 has not.
  bool beyond_fp16(size_t at) const {
    const std::string_view word = script_.tokens[at].word;
    double value = 0.0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return script_.tokens[at].kind == PyToken::number && error == std::errc() && end == word.data() + word.size() &&
           value > 65504.0;
  }

  // "-1e9" at `at`, alone or as what a call is made of: torch.tensor(-1e9).
  bool is_large_negative(size_t begin, size_t at, size_t end) const {
    const auto& tokens = script_.tokens;
    return at + 1 < end && tokens[at].word == "-" && beyond_fp16(at + 1) &&
           (at == begin || tokens[at - 1].word == "(") && (at + 2 == end || is_one_of(tokens[at + 2].word, {")", ","}));
  }

  // Whether the factor that ends (step -1) or begins (step 1) at `at` names a mask.
  bool names_mask(size_t at, int step) const {
    const auto& tokens = script_.tokens;
    const Words kLeft = {"(", "[", "{"}, kRight = {")", "]", "}"};
    const Words &open = step > 0 ? kLeft : kRight, &close = step > 0 ? kRight : kLeft;
    int depth = 0;
    for (; at < tokens.size(); at += static_cast<size_t>(step)) {
      const PyToken& token = tokens[at];
      const bool word =
          token.kind == PyToken::name && !is_one_of(token.word, {"if", "else", "and", "or", "in", "return"});
      if (word && token.word.find("mask") != std::string_view::npos) return true;
      const bool closes = is_one_of(token.word, close);
      depth += is_one_of(token.word, open) ? 1 : closes ? -1 : 0;
      if (depth < 0 || token.kind == PyToken::newline) return false;
      if (depth == 0 && !word && !closes && token.word != ".") return false;
    }
    return false;
  }

  // A product of a mask and the negative number at `at`, which may stand in brackets.
  bool times_a_mask(size_t at) const {
    const auto& tokens = script_.tokens;
    size_t before = at, behind = at + 2;
    while (before > 0 && tokens[before - 1].word == "(") --before;
    while (behind < tokens.size() && tokens[behind].word == ")") ++behind;
    return (before > 1 && tokens[before - 1].word == "*" && names_mask(before - 2, -1)) ||
           (behind + 1 < tokens.size() && tokens[behind].word == "*" && names_mask(behind + 1, 1));
  }

  void mask_values() {
    if (import_of("torch|mindspore") == nullptr) return;
    const auto& tokens = script_.tokens;
    std::set<size_t> told;
    for (const PyCall& call : script_.calls) {
      if (!is_one_of(last_part(call.callee), {"masked_fill", "masked_fill_", "where", "full", "full_like", "select"}))
        continue;
      for (const PyArgument& argument : call.arguments)
        for (size_t at = argument.begin; at < argument.end; ++at)
          if (is_large_negative(argument.begin, at, argument.end) && told.insert(at).second)
            add("mask-value", call.line,
                call.written + "(...): -" + std::string(tokens[at + 1].word) + " is -inf in fp16");
    }
    for (size_t i = 0; i + 1 < tokens.size(); ++i)
      if (tokens[i].word == "-" && beyond_fp16(i + 1) && !told.contains(i) && times_a_mask(i))
        add("mask-value", tokens[i].line,
            "a mask times -" + std::string(tokens[i + 1].word) + ", which is -inf in fp16");
  }

  // The loss before a division by a number of accumulations at `at`.
  void divided(std::string_view loss, size_t at) {
    const auto& tokens = script_.tokens;
    if (loss.find("loss") == std::string_view::npos || at + 1 >= tokens.size()) return;
    if (tokens[at].word != "/" && tokens[at].word != "/=") return;
    size_t last = at + 1;
    while (last + 2 < tokens.size() && tokens[last + 1].word == ".") last += 2;
    if (tokens[last].kind == PyToken::name && tokens[last].word.find("accum") != std::string_view::npos)
      add("loss-accumulation", tokens[at].line, fmt::format("{} / {}: a mean of means", loss, tokens[last].word));
  }

  void loss_accumulation() {
    for (size_t i = 0; i < script_.tokens.size(); ++i)
      if (script_.tokens[i].kind == PyToken::name) divided(script_.tokens[i].word, i + 1);
    for (const PyCall& call : script_.calls) divided(last_part(call.written), call.end);
  }

  void assignments() {
    for (const PyAssignment& assignment : script_.assignments) {
      const std::string_view target = last_part(assignment.target), value = last_part(assignment.value);
      if ((target == "pad_token" && value == "eos_token") || (target == "pad_token_id" && value == "eos_token_id"))
        add("pad-is-eos", assignment.line, fmt::format("{} = {}", target, value));
    }
  }

  void imports() {
    if (const PyName* mindnlp = import_of("mindnlp")) add("mindnlp-import", mindnlp->line, "imports mindnlp");
    const auto gpt2 = [](const PyName& name) {
      return name.path.starts_with("mindformers.") && name.path.find("GPT2") != std::string::npos;
    };
    for (const auto* names : {&script_.imports, &script_.uses})
      if (const auto found = std::find_if(names->begin(), names->end(), gpt2); found != names->end()) {
        add("mindformers-gpt2", found->line, fmt::format("{} of MindFormers", last_part(found->path)));
        break;
      }
    const auto use_of = [&](Words paths) -> const PyName* {
      for (const auto* names : {&script_.imports, &script_.uses})
        for (const PyName& name : *names)
          if (is_one_of(name.path, paths)) return &name;
      return nullptr;
    };
    if (const PyName* bf16 = use_of({"mindspore.bfloat16"})) add("bf16-cpu", bf16->line, "bfloat16");
    if (has_word("__version__")) return;
    const PyName* mindspore = import_of("mindspore");
    if (mindspore != nullptr && import_of("numpy") != nullptr)
      add("numpy-2", mindspore->line, "imports mindspore and numpy, and asks for no version");
    if (const PyName* name =
            use_of({"mindspore.nn.Dense", "mindspore.nn.LayerNorm", "mindspore.nn.GELU", "mindspore.nn.Embedding"}))
      add("coming-names", name->line, fmt::format("nn.{}, and no version is asked for", last_part(name->path)));
  }

  const std::string& file_;
  PyScript script_;
  std::map<std::string_view, const PyName*> modules_;  // and where each is imported first
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> lint_script(std::string_view text, const std::string& file) {
  return ScriptLinter(text, file).run();
}

}  // namespace lamina
