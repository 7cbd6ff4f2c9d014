// The programs of a GPT-2 as graphs: what is computed, with every choice of the configuration still in it as a branch.
// This folder is the only one that knows what a GPT is.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "model/config.h"
#include "model/parameters.h"

namespace lamina {

// Names of the run-time inputs. Capacities are fixed; these are the amounts. Shapes: B rows, T tokens.
//   tokens, positions, key_begin, targets  (B, T) i32   query t of a row sees the keys key_begin … t; a negative target
//                                                       is ignored
//   target_weight  (1) f32   1 / valid targets of the whole step
//   loss_scale     (1) f32   gradient of the loss; the update divides the gradients by it
//   rng            (2) i64   seed, step
//   sample         (B) i64   global number of each row: the key of its dropout
//   hyper          (3) f32   see AdamWAttrs
//   loss           (1) f32   of `update`: the sum over the micro-batches. An output of `step`, `micro_step` and `eval`
// and for the cached programs, with the program's name and a dot in front:
//   tokens, positions (B, T) · past, count, first_key, last (B) i32   row b has `count` new tokens after `past` cached
//                                                       ones, sees keys from first_key, and wants logits at `last`

struct ForwardOptions {
  int64_t batch = 1;
  int64_t seq = 1;
  bool training = false;  // dropout acts
  bool with_loss = true;  // targets in, loss out
  bool residuals =
      false;            // the sums of the embeddings and of each half of a layer, and the final norm, are outputs too
  bool cached = false;  // keys and values of `capacity` positions are kept; logits of one position per row
  int64_t capacity = 0;
  std::string input_prefix = {};  // "" or "decode."
};

struct ForwardGraph {
  Graph graph;
  std::vector<ValueId> parameters;  // one per ParameterSpec, in its order
  ValueId loss = ValueId::none;     // (1), named "loss"
  ValueId loss_scale = ValueId::none;
  ValueId logits = ValueId::none;  // (B, T, V), or (B, V) when cached; named "logits"
};

// The names of those outputs, in the order in which they are made: "embedding", "layer.0.attention.residual",
// "layer.0.mlp.residual", …, "ln_f".
std::vector<std::string> residual_names(const ModelConfig& config);

ForwardGraph build_forward(std::string name, const ModelConfig& config, const ForwardOptions& options);

struct UpdateOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double clip = 0.0;        // global norm; 0: off
  double clip_layer = 0.0;  // norm of each layer, before the global one; 0: off
  // The matrices of the layers are updated with their gradients as they are, so that a pass can do it where they are
  // made: without a clip and a loss scale, and whatever the norm says afterwards.
  bool in_backward = false;
};

// What the update reads besides the gradients, each (1): the loss of the whole step and the scale of its gradients.
struct UpdateInputs {
  ValueId loss = ValueId::none;
  ValueId loss_scale = ValueId::none;
};

// Appends norms, clipping and AdamW. `gradients`, scaled, in the order of `specs`; where the loss or the norm is not
// finite, nothing is updated (but see in_backward). With both clips on, the global norm is that of the gradients after
// the clip per layer, so that neither undoes the other. Outputs "grad_norm" (1) of the scaled gradients, before any
// clipping.
void append_update(Graph& graph, const std::vector<ParameterSpec>& specs, const std::vector<ValueId>& parameters,
                   const std::vector<ValueId>& gradients, const UpdateInputs& inputs, const UpdateOptions& options);

}  // namespace lamina
