// How programs name and lay out the tensors of a GPT-2, as data: one row of the table in the source for each. Neutral
// are the parameters of model/parameters.h; a profile says in which tensors they lie, and how.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace lamina {

// How a linear map (K, N) lies in its tensor.
enum class LinearStorage : uint8_t {
  in_out,  // (K, N): HuggingFace's Conv1D
  out_in,  // (N, K): nn.Linear of PyTorch, nn.Dense of MindSpore
};

// How q, k and v lie.
enum class QkvPacking : uint8_t {
  apart,   // three tensors
  blocks,  // one: all of q, all of k, all of v
  heads,   // one: q, k and v of the first head, of the second, …: Megatron-LM from version 2 on
};

struct NameProfile {
  std::string_view id;      // "hf"
  std::string_view what;    // for people
  std::string_view front;   // before all names but the head's, where the program writes one: "transformer."
  std::string_view layers;  // before a layer's number: "h."
  std::string_view token, position, ln_1, ln_2, ln_f;
  std::string_view q, k, v;  // packed: q names all three
  std::string_view proj, fc, mlp_proj;
  std::string_view head;                    // of untied models; empty: there are none
  std::string_view norm_weight, norm_bias;  // of LayerNorm: "weight", "gamma"
  std::string_view causal, masked;          // constant buffers of a layer: (1, 1, T, T), a scalar; empty: none
  QkvPacking packing;
  LinearStorage qkv, linear;  // of q, k, v; of the other three
};

std::span<const NameProfile> name_profiles();

// Null for another id.
const NameProfile* find_profile(std::string_view id);
std::string profile_ids();  // "hf, nanogpt, …" for messages

// Where the numbers of one parameter are in a tensor, in elements: (k, h, d) of weights (K, N = heads × depth) is at
// offset + k * stride_k + h * stride_h + d * stride_d. Where stride_h = depth * stride_d they lie evenly along N.
struct ParameterView {
  size_t spec = 0;  // index in parameter_specs()
  int64_t offset = 0, stride_k = 0, stride_h = 0, stride_d = 0;
  int64_t heads = 1, depth = 0;
  bool even() const { return heads == 1 || stride_h == depth * stride_d; }
  bool operator==(const ParameterView&) const = default;
};

struct ProfileTensor {
  std::string name;  // without the front part; the head's is whole
  std::vector<int64_t> shape;
  std::vector<ParameterView> parts;
};

int64_t elements_of(const ProfileTensor& tensor);

// The tensors of a model in the profile's order, the first is the table of tokens. `config.tie_word_embeddings` without
// a head. Throws Error(unsupported) where an untied model has no name for its head.
std::vector<ProfileTensor> profile_tensors(const NameProfile& profile, const ModelConfig& config);

// As it stands in a file that the program writes: "transformer.h.0.ln_1.weight", "lm_head.weight".
std::string file_name(const NameProfile& profile, const ProfileTensor& tensor);

}  // namespace lamina
