// A comparison as the command line and Python ask for it: paths in, one report out, the same for both as text of JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "migrate/verify.h"

namespace lamina {

struct VerifyRequest {
  std::string a = {}, b = {};                // models in any format
  std::string config_a = {}, config_b = {};  // a config.json each; empty: the one beside the weights
  std::string names_a = {}, names_b = {};    // profiles' ids; empty: found out
  std::string witness = {};                  // a file of numbers in place of B
  std::string write_witness = {};            // A's numbers are written there, and compared with nothing
  std::optional<int64_t> tokens = {};        // of each of two rows
  int64_t seed = 0;                          // of the ids
  std::optional<std::vector<int32_t>> ids = {};
  std::string ids_from = "ids";  // for messages
  std::optional<int64_t> steps = {};
  std::optional<double> lr = {};
};

// A program that computes the witness: who it is, and its numbers for a model on these inputs.
struct WitnessProgram {
  std::string name = {};  // empty: none
  std::function<Witness(const std::string& model, const ModelConfig& config, const VerifyInputs& inputs)> run = {};
};

struct Verified {
  VerifyReport report;  // empty where A's numbers were written
  VerifyInputs inputs;
  std::string a, b;  // b: or who witnesses
  double seconds = 0.0;
};

// Throws Error(usage) for options that contradict each other, Error and LoadError
// for what cannot be read or compared.
Verified verify(const VerifyRequest& request, const VerifyOptions& options, const WitnessProgram& program = {});

// The largest difference of the two models' logits; none where these were not compared.
std::optional<double> logits_gap(const VerifyReport& report);

nlohmann::json verified_json(const Verified& verified);
std::string verified_text(const Verified& verified);  // the same, on one line

}  // namespace lamina
