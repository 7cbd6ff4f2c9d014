// Numbers that a program has computed, as a safetensors file: the tokens, the stream, logits, loss, gradients, and what
// they were computed from, so that other inputs are told from other numbers. HuggingFace's names and packing for
// gradients and weights. docs/verify.md lists the names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "migrate/verify_numbers.h"

namespace lamina {

struct Witness {
  std::string path;
  std::string engine = {};                                 // that computed it: "torch 2.13.0"
  double unit = 0.0;                                       // its unit roundoff
  double softmax_error = 0.0;                              // beyond that, relative, in the mean of squares
  std::string hash = {};                                   // of its inputs; empty: not said
  std::optional<VerifyInputs> inputs = {};                 // where the file holds them
  std::optional<double> lr = {};                           // of the losses of several steps
  std::vector<double> losses = {};                         // empty: none
  Numbers numbers = {};                                    // by our names
  std::map<std::string, std::vector<float>> weights = {};  // by our names, those that were given
};

// Throws Error that names the file and the tensor; names that no tensor of such a model has are an error too.
Witness read_witness(const std::string& path, const ModelConfig& config);
bool is_witness(const std::string& path);  // a file with tokens and targets
void write_witness(const std::string& path, const ModelConfig& config, const Witness& witness);

// Throws Error(invalid) that names what differs, with both values, where a witness was made of other inputs.
void check_same_inputs(const Witness& witness, const VerifyInputs& inputs, std::optional<double> lr);

}  // namespace lamina
