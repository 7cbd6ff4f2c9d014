// Which tensor of one model becomes which of another, and how: a plain value made from names, shapes and layouts before
// any number is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/model_weights.h"
#include "io/tensor_content.h"
#include "migrate/rearrange.h"

namespace lamina {

// Numbers that move from one source tensor.
struct PlannedMove {
  size_t from = 0;  // index in PlannedTensor::from
  Move move;
};

struct PlannedTensor {
  TensorEntry target;
  std::vector<const ModelTensor*> from;  // each once; none: `constant`, or zeros
  std::vector<PlannedMove> moves;        // none: all bytes as they are
  std::vector<std::byte> constant;       // bytes that are known already
  std::string operation;                 // "copy", "split, transpose", …: what conversion.json says
};

// A tensor as the target wants it: its name in the file, and which parameters lie in it.
struct TargetTensor {
  std::string name;
  ProfileTensor what;
};

// Tables may have more rows in one than in the other: they are cut off, or zeros are added. `dtype`: of all targets
// ("F32", "F16", "BF16"); empty: each keeps its own. Throws Error(invalid) where parts of one target have different
// types and none was asked for.
std::vector<PlannedTensor> plan_conversion(const std::vector<ModelTensor>& source,
                                           const std::vector<TargetTensor>& target, const std::string& dtype);

}  // namespace lamina
