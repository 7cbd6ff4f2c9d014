// Which tensor of a file is which parameter of a GPT-2. The whole set of names decides: a front part common to all of
// them and parts that wrappers put in are taken off; what is left has to be exactly a GPT-2's names. Nothing is matched
// by its ending alone. Works on names and shapes; knows no file format.
//
//   module._orig_mod.transformer.h.0.ln_1.weight
//   ^^^^^^^^^^^^^^^^^ wrappers  ^^^^^^^^^^^^^^^^ the parameter
//                    ^^^^^^^^^^^^ "front": the same in all names, here the usual one
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/name_profile.h"
#include "model/config.h"

namespace lamina {

struct FileTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

enum class ProblemKind { doubled, layers, missing, extra, misshapen, mistyped };

struct NameProblem {
  ProblemKind kind;
  std::string text;  // one line that names the tensor, what was expected and what is there
};

std::string problem_name(ProblemKind kind);  // "missing", …

struct WantedTensor {
  std::string name;  // the profile's, without front part: "h.0.attn.c_attn.weight", "lm_head.weight"
  std::vector<int64_t> shape;
  int64_t source = -1;  // index of the tensor in the file, -1 where there is none
};

struct NameMatch {
  std::vector<WantedTensor> wanted;  // in the order of profile_tensors()
  int64_t tied_head = -1;            // a head in the file of a tied model: it has to equal the table
  std::vector<std::string> removed;  // what was taken off the names, each once: "_orig_mod.module."
  std::vector<std::string> ignored;  // constant buffers of older files
  std::vector<NameProblem> problems;
};

// Without the parts that wrappers put in: "h.0._orig_mod.ln_1.weight" is "h.0.ln_1.weight".
std::string without_wrappers(const std::string& name);

// `problems` is empty exactly where each parameter has one source and each tensor one use. Without `biases` those of
// linear maps and LayerNorm may be missing: their source stays -1, and they are zero.
NameMatch match_gpt2_names(const std::vector<FileTensor>& tensors, const ModelConfig& config,
                           const NameProfile& profile, bool biases = true);

// The profile that knows most of the names; of those that share their names, the one that the shapes fit.
const NameProfile& detect_profile(const std::vector<FileTensor>& tensors);

}  // namespace lamina
