// lamina inspect: what the compiler did, what a file holds.
#include "inspect.h"

namespace lamina::cli {

void add_inspect(const Command& program) {
  const Command command = program.add("inspect", "show a graph, a plan, a model's config or a file of weights");
  command.require_one();
  add_inspect_graph(command);
  add_inspect_plan(command);
  add_inspect_config(command);
  add_inspect_checkpoint(command);
}

}  // namespace lamina::cli
