// What goes wrong between two programs that should compute the same GPT-2, as a table: each row gives what-ifs on the
// model, and whichever meets the other one's numbers names the cause. Nothing is named that was not tried.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "migrate/verify_compare.h"

namespace lamina {

// The other side: its numbers, and what else is known of it.
struct VerifyOther {
  const Numbers* numbers = nullptr;
  double unit = kUnit64;                                          // its unit roundoff
  std::optional<ModelConfig> config = {};                         // none: a program that computes itself
  std::map<std::string, const std::vector<float>*> weights = {};  // those that are known
};

struct MistakeContext {
  const VerifyModel& model;
  const Numbers& truth;  // of the model
  const VerifyInputs& inputs;
  const VerifyOther& other;
  const Tolerances& tolerances;
  std::string first;  // the tensor that differs first
};

struct Candidate {
  std::string what;                    // for people: "layer.0.attention.proj.weight"
  std::function<void(WhatIf&)> apply;  // a what-if …
  std::function<bool()> seen = {};     // … or a property of the numbers themselves
  bool all_tokens = false;             // shows only where whole rows are looked at
};

struct Mistake {
  std::string_view id;    // "transposed_weight"
  std::string_view what;  // for people: "transposed weight"
  void (*candidates)(const MistakeContext&, std::vector<Candidate>&);
};

std::span<const Mistake> mistakes();

struct Cause {
  std::string id, what;  // empty: none of the tested ones
  int64_t tested = 0;    // candidates
};

// `say` is told what is being tried.
Cause find_cause(const MistakeContext& context, const std::function<void(const std::string&)>& say);

}  // namespace lamina
