// Whether a run that goes on is the run that was begun: which settings decide its numbers, and what differs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "train/schedule.h"

namespace lamina {

// Options that may change at any time: they decide no number, or what they decide is compared itself (the content of
// the data, the model's configuration, the number of steps).
bool is_free_option(std::string_view key);

// Out of what lamina.json says, the part that decides numbers. Goes into each checkpoint.
nlohmann::json deciding_settings(const nlohmann::json& description);

struct Changes {
  std::vector<std::string> model;   // another model: never accepted
  std::vector<std::string> others;  // accepted where that was asked for
};

// "--lr: stored 0.001, given 0.01" for each that differs. More or fewer steps are no change while the rates of the
// `steps_done` steps stay what they were.
Changes compare_settings(const nlohmann::json& stored, const nlohmann::json& given, int64_t steps_done);

// Throws Error(invalid) that names all changes that are not accepted.
void refuse_changes(const Changes& changes, bool accept, const std::string& checkpoint);

}  // namespace lamina
