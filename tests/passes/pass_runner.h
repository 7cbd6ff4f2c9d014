// Runs one pass by its name, with the verifier and the check of its claim.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string_view>
#include <vector>

#include "passes/pass.h"

namespace lamina {

inline Graph run_pass(std::string_view name, Graph graph) {
  for (std::span<const Pass> list : {forward_passes(), whole_passes(), memory_passes()})
    for (const Pass& pass : list)
      if (pass.name == name) {
        std::vector<PassRecord> records;
        run_passes(graph, {&pass, 1}, {.panel_width = 16}, {.skip = {}, .check_claims = true, .observe = {}}, records);
        return graph;
      }
  ADD_FAILURE() << "no pass " << name;
  return graph;
}

}  // namespace lamina
