#include "train/loss_scale.h"

#include <algorithm>

#include "base/error.h"

namespace lamina {
namespace {

constexpr double kFloor = 1.0;

const ParameterSpec* find(const std::vector<ParameterSpec>& specs, std::string_view parameter) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const ParameterSpec& spec) { return spec.name == parameter; });
  return found == specs.end() ? nullptr : &*found;
}

}  // namespace

LossScale next_loss_scale(const LossScale& now, bool overflow) {
  if (overflow) return {std::max(now.scale / 2.0, kFloor), 0};
  if (now.good_steps + 1 < kGoodStepsToGrow) return {now.scale, now.good_steps + 1};
  return {now.scale * 2.0, 0};
}

std::string gradient_name(const std::vector<ParameterSpec>& specs, std::string_view parameter) {
  const ParameterSpec* spec = find(specs, parameter);
  return spec == nullptr ? "grad_norm" : spec->hf.name;
}

void check_loss_scale(double scale, int64_t step, const std::vector<ParameterSpec>& specs, std::string_view parameter) {
  if (scale > kFloor) return;
  const ParameterSpec* spec = find(specs, parameter);
  const std::string layer = spec == nullptr || spec->layer < 0 ? "" : fmt::format("layer {}, ", spec->layer);
  const std::string where = layer + gradient_name(specs, parameter);
  throw Error(ErrorCode::invalid,
              fmt::format("gradients overflow at the smallest loss scale: step {}, {}, expected a finite gradient at "
                          "loss scale {}, got one that is not",
                          step, where, kFloor),
              "a smaller --lr or --clip 1 may help; bf16 has the range of fp32 and needs no loss scale");
}

}  // namespace lamina
