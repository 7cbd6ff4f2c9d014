#include "io/name_profile.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace lamina {
namespace {

// Sources: the modules of transformers, nanoGPT, Megatron-LM (checkpoint_version 2 and above) and mindformers 1.x that
// hold these parameters. llm.c's files have no names; the reader gives them nanoGPT's, whose layout they have.
using enum QkvPacking;
using enum LinearStorage;

constexpr NameProfile kHf{.id = "hf",
                          .what = "HuggingFace",
                          .front = "transformer.",
                          .layers = "h.",
                          .token = "wte.weight",
                          .position = "wpe.weight",
                          .ln_1 = "ln_1",
                          .ln_2 = "ln_2",
                          .ln_f = "ln_f",
                          .q = "attn.c_attn",
                          .k = "",
                          .v = "",
                          .proj = "attn.c_proj",
                          .fc = "mlp.c_fc",
                          .mlp_proj = "mlp.c_proj",
                          .head = "lm_head.weight",
                          .norm_weight = "weight",
                          .norm_bias = "bias",
                          .causal = "attn.bias",
                          .masked = "attn.masked_bias",
                          .packing = blocks,
                          .qkv = in_out,
                          .linear = in_out};

constexpr NameProfile nanogpt() {
  NameProfile out = kHf;
  out.id = "nanogpt";
  out.what = "nanoGPT, llm.c: HuggingFace's names, matrices (out, in)";
  out.qkv = out.linear = out_in;
  return out;
}

constexpr NameProfile mindspore_nn() {
  NameProfile out = nanogpt();
  out.id = "mindspore-nn";
  out.what = "plain nn cells of MindSpore under HuggingFace's names";
  out.token = "wte.embedding_table";
  out.position = "wpe.embedding_table";
  out.norm_weight = "gamma";
  out.norm_bias = "beta";
  out.causal = out.masked = "";
  return out;
}

constexpr NameProfile kLamina{.id = "lamina",
                              .what = "lamina.mindspore",
                              .front = "",
                              .layers = "layer.",
                              .token = "embedding.token",
                              .position = "embedding.position",
                              .ln_1 = "ln_1",
                              .ln_2 = "ln_2",
                              .ln_f = "ln_f",
                              .q = "attention.q",
                              .k = "attention.k",
                              .v = "attention.v",
                              .proj = "attention.proj",
                              .fc = "mlp.fc",
                              .mlp_proj = "mlp.proj",
                              .head = "head.weight",
                              .norm_weight = "gamma",
                              .norm_bias = "beta",
                              .causal = "",
                              .masked = "",
                              .packing = apart,
                              .qkv = in_out,
                              .linear = in_out};

constexpr NameProfile kMindformers{.id = "mindformers-1.x",
                                   .what = "MindSpore Transformers up to 1.5",
                                   .front = "backbone.",
                                   .layers = "blocks.",
                                   .token = "embedding.word_embedding.embedding_table",
                                   .position = "embedding.position_embedding.embedding_table",
                                   .ln_1 = "layernorm1",
                                   .ln_2 = "layernorm2",
                                   .ln_f = "layernorm",
                                   .q = "attention.dense1",
                                   .k = "attention.dense2",
                                   .v = "attention.dense3",
                                   .proj = "attention.projection",
                                   .fc = "output.mapping",
                                   .mlp_proj = "output.projection",
                                   .head = "",
                                   .norm_weight = "gamma",
                                   .norm_bias = "beta",
                                   .causal = "attention.beta",
                                   .masked = "attention.masked_beta",
                                   .packing = apart,
                                   .qkv = out_in,
                                   .linear = in_out};

constexpr NameProfile kMegatron{.id = "megatron",
                                .what = "Megatron-LM, checkpoint_version 2 and above",
                                .front = "language_model.",
                                .layers = "encoder.layers.",
                                .token = "embedding.word_embeddings.weight",
                                .position = "embedding.position_embeddings.weight",
                                .ln_1 = "input_layernorm",
                                .ln_2 = "post_attention_layernorm",
                                .ln_f = "encoder.final_layernorm",
                                .q = "self_attention.query_key_value",
                                .k = "",
                                .v = "",
                                .proj = "self_attention.dense",
                                .fc = "mlp.dense_h_to_4h",
                                .mlp_proj = "mlp.dense_4h_to_h",
                                .head = "",
                                .norm_weight = "weight",
                                .norm_bias = "bias",
                                .causal = "",
                                .masked = "",
                                .packing = heads,
                                .qkv = out_in,
                                .linear = out_in};

constexpr NameProfile megatron_old() {
  NameProfile out = kMegatron;
  out.id = "megatron-old";
  out.what = "the same under its first names";
  out.layers = "transformer.layers.";
  out.ln_f = "transformer.final_layernorm";
  out.q = "attention.query_key_value";
  out.proj = "attention.dense";
  return out;
}

constexpr NameProfile kProfiles[] = {kHf, nanogpt(), kLamina, mindspore_nn(), kMindformers, kMegatron, megatron_old()};

// Builds the tensors of one model, finding each parameter by its neutral name.
class Builder {
 public:
  Builder(const NameProfile& profile, const ModelConfig& config)
      : profile_(profile), config_(config), specs_(parameter_specs(config)) {
    for (size_t i = 0; i < specs_.size(); ++i) places_.emplace(specs_[i].name, i);
  }

  std::vector<ProfileTensor> run() {
    table(profile_.token, "embedding.token");
    table(profile_.position, "embedding.position");
    for (int64_t l = 0; l < config_.n_layer; ++l)
      layer(fmt::format("{}{}.", profile_.layers, l), fmt::format("layer.{}.", l));
    norm(profile_.ln_f, "ln_f");
    if (!config_.tie_word_embeddings) head();
    return std::move(out_);
  }

 private:
  size_t place(const std::string& neutral) const { return places_.at(neutral); }

  // (rows, C) in every program; the parameter is (C, rows).
  void table(std::string_view name, const std::string& neutral) {
    const Shape& shape = specs_[place(neutral)].shape;
    const int64_t C = shape[0], rows = shape[1];
    out_.push_back({std::string(name), {rows, C}, {{place(neutral), 0, 1, rows * C, C, 1, rows}}});
  }

  void norm(std::string_view name, const std::string& neutral) {
    const int64_t C = config_.n_embd;
    for (const bool weight : {true, false})
      out_.push_back({fmt::format("{}.{}", name, weight ? profile_.norm_weight : profile_.norm_bias),
                      {C},
                      {{place(neutral + (weight ? ".weight" : ".bias")), 0, 0, C, 1, 1, C}}});
  }

  // One tensor of weights or biases, in which `neutral` lie one after the other.
  void packed(const std::string& name, const std::vector<std::string>& neutral, const std::string& kind,
              LinearStorage storage) {
    const bool vector = kind == ".bias", heads = profile_.packing == QkvPacking::heads && neutral.size() > 1;
    const Shape& shape = specs_[place(neutral[0] + kind)].shape;
    const int64_t K = vector ? 1 : shape[0], N = shape.last(), parts = std::ssize(neutral);
    const bool rows = vector || storage == LinearStorage::in_out;  // N is the fast dimension
    const int64_t step_n = rows ? 1 : K, step_k = vector ? 0 : rows ? parts * N : 1;
    ProfileTensor tensor{name + kind, {parts * N}, {}};
    if (!vector) tensor.shape = rows ? std::vector{K, parts * N} : std::vector{parts * N, K};
    for (int64_t j = 0; j < parts; ++j) {
      ParameterView view{.spec = place(neutral[static_cast<size_t>(j)] + kind), .stride_k = step_k, .stride_d = step_n};
      view.heads = heads ? config_.n_head : 1;
      view.depth = N / view.heads;
      view.offset = (heads ? view.depth : N) * j * step_n;
      view.stride_h = (heads ? parts : 1) * view.depth * step_n;
      tensor.parts.push_back(view);
    }
    out_.push_back(std::move(tensor));
  }

  void linear(const std::string& name, const std::vector<std::string>& neutral, LinearStorage storage) {
    packed(name, neutral, ".weight", storage);
    packed(name, neutral, ".bias", storage);
  }

  void layer(const std::string& front, const std::string& neutral) {
    const std::string q = neutral + "attention.q", k = neutral + "attention.k", v = neutral + "attention.v";
    const auto name = [&](std::string_view rest) { return front + std::string(rest); };
    norm(name(profile_.ln_1), neutral + "ln_1");
    if (profile_.packing == QkvPacking::apart) {
      linear(name(profile_.q), {q}, profile_.qkv);
      linear(name(profile_.k), {k}, profile_.qkv);
      linear(name(profile_.v), {v}, profile_.qkv);
    } else {
      linear(name(profile_.q), {q, k, v}, profile_.qkv);
    }
    linear(name(profile_.proj), {neutral + "attention.proj"}, profile_.linear);
    norm(name(profile_.ln_2), neutral + "ln_2");
    linear(name(profile_.fc), {neutral + "mlp.fc"}, profile_.linear);
    linear(name(profile_.mlp_proj), {neutral + "mlp.proj"}, profile_.linear);
  }

  void head() {
    if (profile_.head.empty())
      throw_error(ErrorCode::unsupported,
                  "names of {}: expected a tied model, got tie_word_embeddings false: there is no name for its head",
                  profile_.id);
    table(profile_.head, "head.weight");
  }

  const NameProfile& profile_;
  const ModelConfig& config_;
  const std::vector<ParameterSpec> specs_;
  std::map<std::string, size_t> places_;
  std::vector<ProfileTensor> out_;
};

}  // namespace

std::span<const NameProfile> name_profiles() { return kProfiles; }

const NameProfile* find_profile(std::string_view id) {
  const auto at =
      std::find_if(std::begin(kProfiles), std::end(kProfiles), [&](const NameProfile& p) { return p.id == id; });
  return at == std::end(kProfiles) ? nullptr : &*at;
}

std::string profile_ids() {
  std::string out;
  for (const NameProfile& profile : kProfiles) out += fmt::format("{}{}", out.empty() ? "" : ", ", profile.id);
  return out;
}

std::vector<ProfileTensor> profile_tensors(const NameProfile& profile, const ModelConfig& config) {
  return Builder(profile, config).run();
}

int64_t elements_of(const ProfileTensor& tensor) {
  int64_t out = 1;
  for (const int64_t size : tensor.shape) out *= size;
  return out;
}

std::string file_name(const NameProfile& profile, const ProfileTensor& tensor) {
  return tensor.name == profile.head ? tensor.name : std::string(profile.front) + tensor.name;
}

}  // namespace lamina
