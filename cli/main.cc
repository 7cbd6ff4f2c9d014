// The program `lamina`: parses the command line, runs one command, turns errors into one line and an exit code.
#include <CLI/CLI.hpp>
#include <new>

#include "command.h"
#include "io/hf_folder.h"
#include "signals.h"
#include "train/version.h"

namespace {

using lamina::Error;
using lamina::ErrorCode;

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

int fail(int code, const std::string& text, const std::string& hint = {}) {
  lamina::cli::say("lamina: error: {}", one_line(text));
  if (!hint.empty()) lamina::cli::say("hint: {}", one_line(hint));
  return code;
}

// The innermost command that was named, for the hint.
std::string named_command(const CLI::App& program) {
  std::string name = program.get_name();
  const CLI::App* at = &program;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  return name;
}

std::string usage_text(const CLI::App& program, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = program.remaining(true);
  const bool command_missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (command_missing && !unknown.empty() && !unknown.front().starts_with('-'))
    return "unknown command: " + unknown.front();
  return error.what();
}

int run(int argc, char** argv) {
  CLI::App program("Compiles a GPT into static programs with planned memory and trains it on CPUs.", "lamina");
  program.set_version_flag("--version", std::string("lamina ") + lamina::kVersion, "print the version");
  program.require_subcommand(1);
  program.get_formatter()->column_width(34);
  program.get_formatter()->label("REQUIRED", "(required)");
  lamina::cli::Action action;
  const lamina::cli::Command root(program, action);
  lamina::cli::add_train(root);
  lamina::cli::add_generate(root);
  lamina::cli::add_eval(root);
  lamina::cli::add_tokenize(root);
  lamina::cli::add_inspect(root);
  lamina::cli::add_plan(root);
  lamina::cli::add_doctor(root);
  lamina::cli::add_bench(root);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return program.exit(error);  // --help
    return fail(kWrongUsage, usage_text(program, error), named_command(program) + " --help shows what is expected");
  }
  return action();
}

}  // namespace

int main(int argc, char** argv) {
  lamina::cli::install_signal_handlers();
  try {
    return run(argc, argv);
  } catch (const lamina::LoadError& error) {
    for (const std::string& line : error.table()) lamina::cli::say_line(line);
    return fail(kFailed, error.what(), error.hint());
  } catch (const Error& error) {
    return fail(error.code() == ErrorCode::usage ? kWrongUsage : kFailed, error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "not enough memory");
  } catch (const std::exception& error) {
    return fail(kFailed, error.what());
  }
}
