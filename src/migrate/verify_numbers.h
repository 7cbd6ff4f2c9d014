// What a model computes on a few rows of ids, as named numbers: the residual stream after each half of a layer, the
// final norm, logits, loss and the gradient of every parameter. By the slow truth in any scalar, and by the fast path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "migrate/verify_model.h"
#include "runtime/session.h"

namespace lamina {

// Rows of equal length. A negative target does not count.
struct VerifyInputs {
  int64_t rows = 0, seq = 0;
  std::vector<int32_t> tokens, targets;  // (rows, seq)
  std::string hash() const;              // XXH3-128 of tokens, then targets, as int32
};

// The first `seq` tokens of each row.
VerifyInputs first_tokens(const VerifyInputs& inputs, int64_t seq);

struct NamedNumbers {
  std::string name;            // as residual_names() has it, "logits", "loss", "grad.layer.0.ln_1.weight"
  std::vector<int64_t> shape;  // (rows, seq, C), (rows, seq, V), (1), that of the parameter
  std::vector<double> values;
};
using Numbers = std::vector<NamedNumbers>;  // in the order in which they are computed

const NamedNumbers* find_numbers(const Numbers& numbers, std::string_view name);  // null where there are none

struct ReferenceOptions {
  bool gradients = true;
  int64_t layers = -1;  // so many layers and nothing behind them; -1: all and the head
};

template <typename S>
Numbers reference_numbers(const WhatIf& model, const VerifyInputs& inputs, const ReferenceOptions& options = {});
extern template Numbers reference_numbers<float>(const WhatIf&, const VerifyInputs&, const ReferenceOptions&);
extern template Numbers reference_numbers<double>(const WhatIf&, const VerifyInputs&, const ReferenceOptions&);

// Losses of `steps` steps of AdamW with the rate `lr` on the same rows, in double: no decay, no clip.
std::vector<double> reference_losses(const VerifyModel& model, const VerifyInputs& inputs, int64_t steps, double lr);

// The program as it trains and generates, in fp32.
class FastModel {
 public:
  FastModel(const VerifyModel& model, const VerifyInputs& inputs, int threads);
  Numbers numbers();
  // What follows the first half of each row, always the most likely id: as many as the other half has.
  std::vector<std::vector<int32_t>> greedy();

 private:
  void fill(const std::vector<int32_t>& tokens);
  std::vector<double> read(const std::string& name);

  ModelConfig config_;
  VerifyInputs inputs_;
  std::unique_ptr<Session> session_;
};

}  // namespace lamina
