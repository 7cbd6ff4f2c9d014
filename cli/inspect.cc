// lamina inspect: what the compiler did, what a file holds.
#include "inspect.h"

namespace lamina::cli {

void add_inspect(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("inspect", "show a graph, a plan, a model's config or a file of weights");
  command->require_subcommand(1);
  add_inspect_graph(*command, action);
  add_inspect_plan(*command, action);
  add_inspect_config(*command, action);
  add_inspect_checkpoint(*command, action);
}

}  // namespace lamina::cli
