// The state of Adam's kind of optimizers: a first and a second moment of every weight and the number of updates, as
// training programs keep them. Each is read as what it is; rates and decays are settings and do not move.
//
//   MindSpore   adam_m.NAME, adam_v.NAME (AdamWeightDecay), moment1, moment2 (Adam), exp_avg, exp_avg_sq (AdamW),
//               global_step: beside the weights
//   PyTorch     optimizer.state.3.exp_avg beside the weights (nanoGPT), state.3.exp_avg in optimizer.pt (HuggingFace's
//               Trainer): by the place of a parameter among those of the optimizer
//   Lamina      m.NAME, v.NAME in optimizer.safetensors, under the names of parameters
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/model_weights.h"
#include "migrate/conversion_plan.h"

namespace lamina {

struct OptimizerState {
  std::unique_ptr<TensorFile> file;  // a file of its own; null: the state is in the weights' files
  std::vector<ModelTensor> m, v;     // with the layouts of the tensors that they are in
  int64_t step = 0;                  // updates
};

// Of a model whose weights were opened from `from`. Throws Error(invalid) where there is none, or it is not whole.
OptimizerState read_optimizer(const std::string& from, const ModelWeights& weights, const ModelConfig& config);

bool has_optimizer(const std::string& from, const ModelWeights& weights);

// The state as tensors beside those of a model, under MindSpore's names.
std::vector<PlannedTensor> plan_mindspore_state(const OptimizerState& state, const std::vector<TargetTensor>& targets);

// The state as Lamina keeps it, in a file of its own.
std::vector<PlannedTensor> plan_lamina_state(const OptimizerState& state, const ModelConfig& config);

// The state of torch.optim.AdamW over two groups, matrices and tables first (they decay), then vectors, each in the
// order of the model: state.N.step, state.N.exp_avg, state.N.exp_avg_sq.
std::vector<PlannedTensor> plan_torch_state(const OptimizerState& state, const std::vector<TargetTensor>& targets);

}  // namespace lamina
