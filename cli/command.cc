#include "command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <sstream>

#include "base/version.h"

namespace lamina::cli {
namespace {

// Help that fits 80 columns; a word that is longer than its column is not cut.
class Formatter : public CLI::Formatter {
 public:
  Formatter() {
    column_width(kColumn);
    label("REQUIRED", "(required)");
    label("TEXT", "");  // a positional is a text, whatever else it is
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option));
  }

  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_name(), wrapped(command->get_description()), kColumn);
    return out.str();
  }

 private:
  static constexpr size_t kColumn = 30, kWidth = 80;

  static std::string wrapped(const std::string& text) {
    std::string out;
    std::istringstream words(text);
    size_t used = 0;
    for (std::string word; words >> word; used += word.size()) {
      if (used > 0) out += used + 1 + word.size() > kWidth - kColumn ? (used = 0, "\n") : (++used, " ");
      out += word;
    }
    return out;
  }
};

std::string flag_name(const OptionRow& row) { return std::string("--") + row.name; }

CLI::Option* finish(CLI::Option* option, const OptionRow& row) {
  return option->type_name(row.value)->required(row.required);
}

// What is given goes through here before CLI11 reads it, which takes nothing for 0, 010 for 8 and cuts what is too
// large. No text is a text and no ids are ids, but no path is a path.
std::string sound(const OptionRow& row, const std::string& text, int64_t) {
  return std::to_string(parse_whole(row, text));
}

std::string sound(const OptionRow& row, const std::string& text, double) {
  return fmt::format("{}", parse_number(row, text));
}

std::string sound(const OptionRow& row, const std::string& text, const std::string&) {
  const std::string_view kind = row.value;
  if (text.empty() && kind != "TEXT" && kind != "IDS") bad_value(row.name, fmt::format("a value, {}", kind), text);
  return text;
}

template <typename T>
CLI::Option* checked(CLI::Option* option, const OptionRow& row) {
  return finish(option, row)->transform([row](const std::string& text) { return sound(row, text, T()); }, "");
}

// The last one counts where an option is given twice.
template <typename T>
void add_value(CLI::App& app, const OptionRow& row, T& field, bool show_default) {
  CLI::Option* option = checked<T>(app.add_option(flag_name(row), field, row.help), row)->take_last();
  if (show_default) option->capture_default_str();
}

template <typename T>
void add_optional(CLI::App& app, const OptionRow& row, std::optional<T>& field) {
  const auto set = [&field](const T& value) { field = value; };
  checked<T>(app.add_option_function<T>(flag_name(row), set, row.help), row)->take_last();
}

// Paths may follow one another, as a shell's pattern gives them; other values are given one at a time.
template <typename T>
void add_list(CLI::App& app, const OptionRow& row, std::vector<T>& field) {
  const bool paths = std::string_view(row.value) == "PATH";
  checked<T>(app.add_option(flag_name(row), field, row.help), row)->allow_extra_args(paths);
}

std::array<double, 2> parse_pair(const std::string& name, const std::string& text) {
  std::array<double, 2> out{};
  const char* at = text.data();
  const char* end = at + text.size();
  for (size_t i = 0; i < out.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, out[i]);
    const bool last = i + 1 == out.size();
    if (error != std::errc() || (last ? next != end : next == end || *next != ','))
      bad_value(name, "two numbers with a comma between them", text);
    at = next + 1;
  }
  return out;
}

// The innermost command that was named.
const CLI::App& innermost(const CLI::App& program) {
  const CLI::App* at = &program;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

// With those around it, for the hint.
std::string full_name(const CLI::App& command) {
  const CLI::App* around = command.get_parent();
  return around == nullptr ? command.get_name() : full_name(*around) + " " + command.get_name();
}

// How many letters have to be put in, taken out or changed.
size_t distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t before = row[0]++;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t changed = before + (from[i] == to[j] ? 0 : 1);
      before = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, before + 1});
    }
  }
  return row.back();
}

// The option that was perhaps meant.
std::string nearest_option(const CLI::App& command, std::string_view given) {
  std::string best;
  size_t least = 3;  // more letters are another word
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames())
      if (const size_t letters = distance(given, "--" + name); letters < least) {
        least = letters;
        best = "--" + name;
      }
  return best;
}

std::string usage_text(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& command = innermost(program);
  const std::vector<std::string> unknown = program.remaining(true);
  for (const std::string& word : unknown) {
    if (!word.starts_with("--") || word == "--") continue;
    const std::string name = word.substr(0, word.find('=')), meant = nearest_option(command, name);
    return "unknown option: " + name + (meant.empty() ? "" : ", is " + meant + " meant?");
  }
  if (unknown.empty() && command.get_parent() == nullptr && command.get_subcommands().empty())
    return "no command was given";
  if (unknown.empty() || unknown.front().starts_with('-')) return error.what();
  const bool has_commands = !command.get_subcommands([](const CLI::App*) { return true; }).empty();
  return (has_commands ? "unknown command: " : "unexpected argument: ") + unknown.front();
}

}  // namespace

Command Command::add(const char* name, const char* help) const { return {*app_->add_subcommand(name, help), *action_}; }

void Command::require_one() const { app_->require_subcommand(1); }

void Command::option(const OptionRow& row, bool& field) const { app_->add_flag(flag_name(row), field, row.help); }
void Command::option(const OptionRow& row, int64_t& field) const { add_value(*app_, row, field, true); }
void Command::option(const OptionRow& row, double& field) const { add_value(*app_, row, field, true); }
void Command::option(const OptionRow& row, std::string& field) const { add_value(*app_, row, field, !field.empty()); }
void Command::option(const OptionRow& row, std::optional<int64_t>& field) const { add_optional(*app_, row, field); }
void Command::option(const OptionRow& row, std::optional<double>& field) const { add_optional(*app_, row, field); }
void Command::option(const OptionRow& row, std::optional<std::string>& field) const { add_optional(*app_, row, field); }
void Command::option(const OptionRow& row, std::vector<std::string>& field) const { add_list(*app_, row, field); }
void Command::option(const OptionRow& row, std::vector<int64_t>& field) const { add_list(*app_, row, field); }

void Command::option(const OptionRow& row, std::array<double, 2>& field) const {
  const auto set = [&field, name = std::string(row.name)](const std::string& text) { field = parse_pair(name, text); };
  finish(app_->add_option_function<std::string>(flag_name(row), set, row.help), row)
      ->take_last()
      ->default_str(fmt::format("{},{}", field[0], field[1]));
}

void Command::positional(const char* name, std::string& field, const char* help, bool required) const {
  app_->add_option(name, field, help)->required(required);
}

void Command::positionals(const char* name, std::vector<std::string>& field, const char* help) const {
  app_->add_option(name, field, help);
}

void Command::json(bool& field) const {
  app_->add_flag("--json", field, "print exactly one JSON object on standard output");
}

void Command::run(std::function<Action(bool below)> parsed) const {
  app_->callback([app = app_, action = action_, parsed = std::move(parsed)] {
    if (Action own = parsed(!app->get_subcommands().empty())) *action = std::move(own);
  });
}

Action parse_command_line(int argc, char** argv) {
  CLI::App program("Compiles a GPT into static programs with planned memory and trains it on CPUs.", "lamina");
  program.set_version_flag("--version", std::string("lamina ") + kVersion, "print the version");
  program.require_subcommand(1);
  program.formatter(std::make_shared<Formatter>());
  Action action;
  const Command root(program, action);
  add_train(root);
  add_generate(root);
  add_eval(root);
  add_tokenize(root);
  add_inspect(root);
  add_plan(root);
  add_doctor(root);
  add_bench(root);
  add_convert(root);
  add_lint_migration(root);
  add_verify(root);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success))  // --help, --version
      return [code = program.exit(error)] { return code; };
    throw Error(ErrorCode::usage, usage_text(program, error),
                full_name(innermost(program)) + " --help shows what is expected");
  }
  return action;
}

}  // namespace lamina::cli
