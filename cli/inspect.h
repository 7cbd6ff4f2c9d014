// The parts of `lamina inspect`; each adds itself below it.
#pragma once

#include "command.h"

namespace lamina::cli {

void add_inspect_graph(const Command& inspect);
void add_inspect_plan(const Command& inspect);
void add_inspect_config(const Command& inspect);
void add_inspect_checkpoint(const Command& inspect);

}  // namespace lamina::cli
