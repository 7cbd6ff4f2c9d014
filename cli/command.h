// What all commands share: how a table of options becomes a command line, where output goes, how a command is run.
// Results of `--json` and what was asked for (text, ids, a graph) go to standard output, all else to standard error.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "train/option_row.h"

namespace CLI {
class App;  // seen by command.cc only: it takes long to compile
}

namespace lamina::cli {

using Json = nlohmann::json;

// Set by the command that was named; returns the exit code.
using Action = std::function<int()>;

// A command of the command line, to be filled.
class Command {
 public:
  Command(CLI::App& app, Action& action) : app_(&app), action_(&action) {}

  Command add(const char* name, const char* help) const;  // a command below this one
  void require_one() const;                               // of the commands below

  void option(const OptionRow& row, bool& field) const;
  void option(const OptionRow& row, int64_t& field) const;
  void option(const OptionRow& row, double& field) const;
  void option(const OptionRow& row, std::string& field) const;
  void option(const OptionRow& row, std::array<double, 2>& field) const;
  void option(const OptionRow& row, std::optional<int64_t>& field) const;
  void option(const OptionRow& row, std::optional<double>& field) const;
  void option(const OptionRow& row, std::optional<std::string>& field) const;
  void option(const OptionRow& row, std::vector<std::string>& field) const;
  void option(const OptionRow& row, std::vector<int64_t>& field) const;
  void positional(const char* name, std::string& field, const char* help, bool required = true) const;
  void positionals(const char* name, std::vector<std::string>& field, const char* help) const;  // any number, also none
  void json(bool& field) const;                                                                 // every command has it

  // Every row of a table as `--name`. `options` lives as long as the program.
  template <typename Options>
  void options(Options& options) const {
    for_each_option(options, [this](const OptionRow& row, auto& field) { this->option(row, field); });
  }

  // What the program does when this command was named. `parsed` is told whether one below it was named too, and may
  // give no action.
  void run(std::function<Action(bool below)> parsed) const;

  // The whole of a simple command: `options` has a table and a field `json`; `body` takes it.
  template <typename Options>
  void run(const std::shared_ptr<Options>& options, int (*body)(const Options&)) const {
    json(options->json);
    run([options, body](bool) -> Action { return [options, body] { return body(*options); }; });
  }

 private:
  CLI::App* app_;
  Action* action_;
};

void add_train(const Command& program);
void add_generate(const Command& program);
void add_eval(const Command& program);
void add_tokenize(const Command& program);
void add_inspect(const Command& program);
void add_plan(const Command& program);
void add_doctor(const Command& program);
void add_bench(const Command& program);
void add_convert(const Command& program);
void add_lint_migration(const Command& program);
void add_verify(const Command& program);

// All of the command line to what shall be done. Throws Error(usage).
Action parse_command_line(int argc, char** argv);

// One line for people, on standard error.
void say_line(const std::string& line);
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_line(fmt::format(format, std::forward<Args>(args)...));
}

// To standard output. Throws Error(io) where it cannot be written.
void print(std::string_view text);
void print_json(const Json& value);  // one object, one line

// Decimal ids with white space between them. Throws Error(invalid) that names `where` and the byte.
std::vector<int32_t> parse_ids(std::string_view text, const std::string& where);

// A whole file, or standard input for "-". Throws Error(io).
std::string read_input(const std::string& path);

}  // namespace lamina::cli
