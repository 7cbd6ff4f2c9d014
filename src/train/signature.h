// One number for everything that decides the numbers: a short training run on made-up tokens with the portable kernels,
// the same on every machine. A change of code that is meant to change nothing keeps it.
#pragma once

#include <string>

namespace lamina {

// 128 bits in hex over all parameters, and over loss and norm of each of the eight steps. `threads` must not matter.
std::string signature(int threads);

}  // namespace lamina
