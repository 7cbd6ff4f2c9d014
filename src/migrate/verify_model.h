// A model as `verify` holds it: its configuration and its weights in fp32, whatever file they came from, and what-ifs
// on it. A what-if shares the weights that it does not change.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace lamina {

struct VerifyModel {
  std::string path;
  ModelConfig config;                            // dropout is 0: it never acts here
  std::string format = {}, names = {};           // "safetensors", "hf"
  std::string settings = {};                     // generation_config.json as one line; empty: none
  std::vector<std::vector<float>> weights = {};  // in the order of parameter_specs(config), row-major (in, out)
  std::vector<std::string> warnings = {};        // a line each, for people
};

// `config`: a config.json; empty: the one beside the weights, or what the file says itself. `names`: a profile's id;
// empty: found out. Throws Error or LoadError.
VerifyModel load_verify_model(const std::string& path, const std::string& config, const std::string& names = {});

class WhatIf {
 public:
  explicit WhatIf(const VerifyModel& model);
  WhatIf(WhatIf&&) = default;

  ModelConfig config;
  int64_t target_shift = 0;    // targets are those of so many places later
  double softmax_error = 0.0;  // relative, of each weight, in the mean of squares
  bool causal = true;          // false: every token sees all of its row
  bool other_sum = false;      // attention's gradient adds up do·o in another order, with other roundings

  bool has(const std::string& name) const { return weights_.contains(name); }
  const std::vector<float>& operator[](const std::string& name) const;
  void set(const std::string& name, std::vector<float> values);
  void swap(const std::string& a, const std::string& b);
  const std::vector<std::string>& changed() const { return changed_; }  // names of weights, in no order

 private:
  std::map<std::string, const std::vector<float>*> weights_;
  std::list<std::vector<float>> own_;
  std::vector<std::string> changed_;
};

}  // namespace lamina
