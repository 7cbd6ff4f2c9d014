// Other programs as witnesses of `verify`: a worker in their own Python, carried inside this program, loads the model
// by their own means and writes what it computes.
#pragma once

#include <string>

#include "migrate/verify_witness.h"

namespace lamina::cli {

void check_witness_engine(const std::string& engine);  // throws Error(usage) that names --with

// Throws Error(io) that names the engine where it fails; what it says itself is on standard error.
Witness run_witness(const std::string& engine, const std::string& model, const ModelConfig& config,
                    const VerifyInputs& inputs, int threads);

}  // namespace lamina::cli
