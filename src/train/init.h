// The values that training starts from where no weights are given: GPT-2's initialisation.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "runtime/session.h"

namespace lamina {

// Matrices and tables normal around 0 with the deviation that their spec names, LayerNorm weights 1, biases 0. A value
// depends on the seed, the parameter's name and its place in it: not on the order of parameters, threads or layout.
void initialise(Session& session, const std::vector<ParameterSpec>& specs, uint64_t seed);

}  // namespace lamina
