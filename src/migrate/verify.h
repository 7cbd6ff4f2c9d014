// Whether two models compute the same: activations, logits, loss and gradients on the same tokens, in double and in
// fp32, with computed tolerances; where they do not, the first tensor that differs and, where one of the tested
// mistakes explains it, why. The other one is a model of any format, or numbers that another program has computed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "migrate/verify_compare.h"
#include "migrate/verify_witness.h"

namespace lamina {

struct VerifyOptions {
  int threads = 1;
  std::optional<double> tolerance = {};  // of the comparison between the two, in place of the computed one
  std::function<void(const std::string&)> say = [](const std::string&) {};   // progress, a line each
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // of what is loaded
};

// Seeded ids: two rows of `tokens`; 0: as many as are computed in some minutes at most.
VerifyInputs seeded_inputs(const ModelConfig& config, int64_t vocab_size, int64_t tokens, uint64_t seed);
// One or two rows of `tokens` ids (0: as many as fit), end to end; each id but the first is a target. Throws
// Error(invalid) that names `where`.
VerifyInputs inputs_of_ids(const ModelConfig& config, int64_t vocab_size, int64_t tokens,
                           const std::vector<int32_t>& ids, const std::string& where);

// One comparison of two sets of numbers.
struct VerifyComparison {
  std::string id, what;  // "models", "fast_a", "fast_b"; for people
  std::vector<TensorGap> tensors;
};

struct VerifyReport {
  bool equal = true;
  std::optional<TensorGap> first;  // that differs; its tensor may be a key of the configuration, "config.n_embd"
  std::string where;               // the comparison that it is of
  std::string cause_id, cause;     // empty: none of the tested ones
  int64_t causes_tested = 0;
  int64_t compared = 0, tensors = 0;  // so many of A's; the other side may have none of some
  std::vector<VerifyComparison> comparisons;
  std::vector<TensorGap> weights;                        // those that differ in value
  std::vector<std::string> notes;                        // a line each: differences that change no number
  std::vector<std::vector<int32_t>> greedy_a, greedy_b;  // of two models
};

VerifyReport verify_models(const VerifyModel& a, const VerifyModel& b, const VerifyInputs& inputs,
                           const VerifyOptions& options);
VerifyReport verify_witness(const VerifyModel& a, const Witness& witness, const VerifyInputs& inputs,
                            const VerifyOptions& options);
// What this program computes in double, as a witness for others; with the losses of so many steps of AdamW (0: none).
Witness make_witness(const VerifyModel& a, const VerifyInputs& inputs, int64_t steps, double lr);

}  // namespace lamina
