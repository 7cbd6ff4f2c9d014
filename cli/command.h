// What all commands share: how a table of options becomes a command line, where output goes, how a command is run.
// Results of `--json` and what was asked for (text, ids, a graph) go to standard output, all else to standard error.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "train/option_row.h"

namespace lamina::cli {

using Json = nlohmann::json;

// Set by the command that was named; returns the exit code.
using Action = std::function<int()>;

void add_train(CLI::App& program, Action& action);
void add_generate(CLI::App& program, Action& action);
void add_eval(CLI::App& program, Action& action);
void add_tokenize(CLI::App& program, Action& action);
void add_inspect(CLI::App& program, Action& action);
void add_plan(CLI::App& program, Action& action);
void add_doctor(CLI::App& program, Action& action);
void add_bench(CLI::App& program, Action& action);

// One line for people, on standard error.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string line = fmt::format(format, std::forward<Args>(args)...) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// To standard output. Throws Error(io) where it cannot be written.
void print(std::string_view text);
void print_json(const Json& value);  // one object, one line

// Decimal ids with white space between them. Throws Error(invalid) that names `where` and the byte.
std::vector<int32_t> parse_ids(std::string_view text, const std::string& where);

// A whole file, or standard input for "-". Throws Error(io).
std::string read_input(const std::string& path);

namespace detail {

std::string flag_name(const OptionRow& row);
CLI::Option* finish(CLI::Option* option, const OptionRow& row);
std::string betas_text(const std::array<double, 2>& betas);
std::array<double, 2> parse_pair(const std::string& name, const std::string& text);

template <typename T>
CLI::Option* bind(CLI::App& app, const OptionRow& row, T& field) {
  return finish(app.add_option(flag_name(row), field, row.help)->capture_default_str(), row);
}
inline CLI::Option* bind(CLI::App& app, const OptionRow& row, bool& field) {
  return app.add_flag(flag_name(row), field, row.help);
}
inline CLI::Option* bind(CLI::App& app, const OptionRow& row, std::string& field) {
  CLI::Option* option = app.add_option(flag_name(row), field, row.help);
  return finish(field.empty() ? option : option->capture_default_str(), row);
}
template <typename T>
CLI::Option* bind(CLI::App& app, const OptionRow& row, std::vector<T>& field) {
  return finish(app.add_option(flag_name(row), field, row.help), row);
}
template <typename T>
CLI::Option* bind(CLI::App& app, const OptionRow& row, std::optional<T>& field) {
  return finish(app.add_option_function<T>(flag_name(row), [&field](const T& value) { field = value; }, row.help), row);
}
inline CLI::Option* bind(CLI::App& app, const OptionRow& row, std::array<double, 2>& field) {
  const auto set = [&field, name = std::string(row.name)](const std::string& text) { field = parse_pair(name, text); };
  return finish(app.add_option_function<std::string>(flag_name(row), set, row.help), row)
      ->default_str(betas_text(field));
}

}  // namespace detail

// Adds every row of a table as `--name` to a command. `options` lives as long as the program.
template <typename Options>
void bind_options(CLI::App& app, Options& options) {
  for_each_option(options, [&](const OptionRow& row, auto& field) { detail::bind(app, row, field); });
}

// Every command has it.
inline void bind_json(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "print exactly one JSON object on standard output");
}

}  // namespace lamina::cli
