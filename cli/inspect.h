// The parts of `lamina inspect`; each adds itself below it.
#pragma once

#include "command.h"

namespace lamina::cli {

void add_inspect_graph(CLI::App& inspect, Action& action);
void add_inspect_plan(CLI::App& inspect, Action& action);
void add_inspect_config(CLI::App& inspect, Action& action);
void add_inspect_checkpoint(CLI::App& inspect, Action& action);

}  // namespace lamina::cli
