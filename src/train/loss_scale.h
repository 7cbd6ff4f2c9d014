// The dynamic loss scale of training in fp16: gradients are computed of the loss times a power of two, so that small
// ones are not lost below 2^-24, and divided by it before they are used. Where one becomes too large, the step is
// skipped and the scale halved; after 2000 good steps in a row it is doubled. The schedule is that of
// torch.amp.GradScaler, with 1 as the floor. Which steps these were is the trainer's business.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/parameters.h"

namespace lamina {

struct LossScale {
  double scale = 65536.0;
  int64_t good_steps = 0;  // in a row, since the scale changed

  bool operator==(const LossScale&) const = default;
};

inline constexpr int64_t kGoodStepsToGrow = 2000;

// After a step at this scale.
LossScale next_loss_scale(const LossScale& now, bool overflow);

// HuggingFace's name of the tensor that holds the gradient which was not finite; several parameters may lie in one. An
// empty parameter: every gradient was finite, the sum of their squares was not.
std::string gradient_name(const std::vector<ParameterSpec>& specs, std::string_view parameter);

// Throws Error(invalid) where a step overflowed at the floor, in the gradient of this parameter: no scale can help.
void check_loss_scale(double scale, int64_t step, const std::vector<ParameterSpec>& specs, std::string_view parameter);

}  // namespace lamina
