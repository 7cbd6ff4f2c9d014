// Every mistake of the table is planted into Tiny, as a model and as a program's numbers, and is found and named;
// correct pairs in every format, under all names and with all settings are no difference.
#include "migrate/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "common/tiny.h"
#include "io/files.h"
#include "io/formats.h"
#include "io/hf_config.h"
#include "io/name_profile.h"
#include "migrate/verify_mistakes.h"
#include "verify_tiny.h"

namespace lamina {
namespace {

using test::inputs_of, test::TempDir, test::tiny, test::weight, test::witness_of;

struct Planted {
  const char* id;
  std::string named;  // has to be in the cause
  std::function<void(VerifyModel&)> plant;
};

void swap_weights(VerifyModel& model, const std::string& a, const std::string& b) {
  std::swap(weight(model, a), weight(model, b));
}

void exchange_layers(VerifyModel& model) {
  const std::vector<ParameterSpec> specs = parameter_specs(model.config);
  for (const ParameterSpec& spec : specs)
    if (spec.layer == 0) swap_weights(model, spec.name, "layer.1" + spec.name.substr(7));
}

void transpose(std::vector<float>& w, size_t n) {
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) std::swap(w[i * n + j], w[j * n + i]);
}

// The biases with any of these in their names.
void clear(VerifyModel& model, const std::vector<std::string>& parts) {
  for (const ParameterSpec& spec : parameter_specs(model.config))
    for (const std::string& part : parts)
      if (spec.name.ends_with(".bias") && spec.name.find(part) != std::string::npos)
        weight(model, spec.name).assign(static_cast<size_t>(spec.shape.elements()), 0.0F);
}

// The packed columns of each row, read as q, k and v of one head after another.
void take_by_head(VerifyModel& model, const std::string& part) {
  std::vector<float>* qkv[3];
  for (size_t i = 0; i < 3; ++i) qkv[i] = &weight(model, std::string("layer.0.attention.") + "qkv"[i] + part);
  const size_t C = 16, D = 8;
  for (size_t k = 0; k < qkv[0]->size() / C; ++k) {
    std::vector<float> row;
    for (const auto* w : qkv)
      row.insert(row.end(), w->begin() + static_cast<long>(k * C), w->begin() + static_cast<long>(k * C + C));
    for (size_t j = 0; j < row.size(); ++j) {
      const size_t head = j / (3 * D), which = j / D % 3;
      (*qkv[which])[k * C + head * D + j % D] = row[j];
    }
  }
}

// One mistake in several tensors at once.
const std::vector<Planted>& planted_groups() {
  static const std::vector<Planted> kPlanted{
      {"missing_bias", "layer.1.mlp.{fc,proj}.bias", [](VerifyModel& m) { clear(m, {"layer.1.mlp."}); }},
      {"missing_bias", "mlp.{fc,proj}.bias of all 2 layers",
       [](VerifyModel& m) {
         clear(m, {"layer.0.mlp.", "layer.1.mlp."});
       }},
      {"missing_bias", "layer.0.attention.{q,k,v,proj}.bias", [](VerifyModel& m) { clear(m, {"layer.0.attention."}); }},
      {"missing_bias", "{attention,mlp}.proj.bias of all 2 layers", [](VerifyModel& m) { clear(m, {".proj."}); }},
      {"missing_bias", "layer.1.{attention,mlp}.*.bias",
       [](VerifyModel& m) {
         clear(m, {"layer.1.attention.", "layer.1.mlp."});
       }},
      {"missing_bias", "{attention,mlp}.*.bias of all 2 layers",
       [](VerifyModel& m) {
         clear(m, {".attention.", ".mlp."});
       }},
      {"missing_bias", "layer.1.*.bias", [](VerifyModel& m) { clear(m, {"layer.1."}); }},
      {"missing_bias", "all LayerNorms of the model", [](VerifyModel& m) { clear(m, {"ln_"}); }},
      {"missing_bias", "all of the model", [](VerifyModel& m) { clear(m, {"."}); }},
      {"transposed_weight", "attention.{q,k,v,proj}.weight of all 2 layers",
       [](VerifyModel& m) {
         for (const ParameterSpec& spec : parameter_specs(m.config))
           if (spec.layer >= 0 && spec.shape.rank == 2 && spec.shape.rows() == spec.shape.last())
             transpose(weight(m, spec.name), 16);
       }},
  };
  return kPlanted;
}

const std::vector<Planted>& planted_alone() {
  static const std::vector<Planted> kPlanted{
      {"layer_norm_epsilon", "1e-07", [](VerifyModel& m) { m.config.layer_norm_epsilon = 1e-7; }},
      {"gelu", "exact", [](VerifyModel& m) { m.config.activation_function = "gelu"; }},
      {"attention_scale", "scale_attn_weights false", [](VerifyModel& m) { m.config.scale_attn_weights = false; }},
      {"inverse_layer_scale", "idx true", [](VerifyModel& m) { m.config.scale_attn_by_inverse_layer_idx = true; }},
      {"n_head", "4 in place of 2", [](VerifyModel& m) { m.config.n_head = 4; }},
      {"transposed_weight", "layer.0.attention.proj",
       [](VerifyModel& m) { transpose(weight(m, "layer.0.attention.proj.weight"), 16); }},
      {"transposed_weight", "layer.1.attention.proj",
       [](VerifyModel& m) { transpose(weight(m, "layer.1.attention.proj.weight"), 16); }},
      {"transposed_weight", "all 2 layers",
       [](VerifyModel& m) {
         for (const char* l : {"0", "1"})
           for (const char* w : {"q", "k", "v"})
             transpose(weight(m, fmt::format("layer.{}.attention.{}.weight", l, w)), 16);
       }},
      {"missing_bias", "layer.1.mlp.fc", [](VerifyModel& m) { weight(m, "layer.1.mlp.fc.bias").assign(64, 0.0F); }},
      {"missing_bias", "layer.0.attention.{q,k,v}",
       [](VerifyModel& m) {
         for (const char* w : {"q", "k", "v"}) weight(m, fmt::format("layer.0.attention.{}.bias", w)).assign(16, 0.0F);
       }},
      {"missing_bias", "ln_f.bias", [](VerifyModel& m) { weight(m, "ln_f.bias").assign(16, 0.0F); }},
      {"gamma_beta_swapped", "layer.0.ln_2",
       [](VerifyModel& m) { swap_weights(m, "layer.0.ln_2.weight", "layer.0.ln_2.bias"); }},
      {"norms_swapped", "layer.1.ln_1 and ln_2",
       [](VerifyModel& m) {
         for (const char* part : {".weight", ".bias"})
           swap_weights(m, std::string("layer.1.ln_1") + part, std::string("layer.1.ln_2") + part);
       }},
      {"layers_swapped", "layers 0 and 1", exchange_layers},
      {"layers_swapped", "ln_1.weight of layers 0 and 1",
       [](VerifyModel& m) { swap_weights(m, "layer.0.ln_1.weight", "layer.1.ln_1.weight"); }},
      {"qkv_order", "layer.0.attention.{q,k,v} taken from k, q, v",
       [](VerifyModel& m) {
         for (const char* part : {".weight", ".bias"})
           swap_weights(m, std::string("layer.0.attention.q") + part, std::string("layer.0.attention.k") + part);
       }},
      {"qkv_per_head", "packed in blocks and taken by head",
       [](VerifyModel& m) { take_by_head(m, ".weight"), take_by_head(m, ".bias"); }},
      {"position_offset", "shifted by 1",
       [](VerifyModel& m) {
         std::vector<float>& w = weight(m, "embedding.position");  // (C, T)
         for (size_t c = 0; c < 16; ++c)
           std::rotate(w.begin() + static_cast<long>(c * 16), w.begin() + static_cast<long>(c * 16 + 1),
                       w.begin() + static_cast<long>(c * 16 + 16));
       }},
      {"rounded_weights", "fp16",
       [](VerifyModel& m) {
         for (auto& values : m.weights)
           for (float& x : values) x = from_f16(to_f16(x));
       }},
      {"rounded_weights", "bf16",
       [](VerifyModel& m) {
         for (auto& values : m.weights)
           for (float& x : values) x = from_bf16(to_bf16(x));
       }},
  };
  return kPlanted;
}

std::vector<Planted> planted() {
  std::vector<Planted> out = planted_alone();
  out.insert(out.end(), planted_groups().begin(), planted_groups().end());
  return out;
}

void expect_cause(const VerifyReport& report, const char* id, const std::string& named) {
  EXPECT_FALSE(report.equal) << id;
  ASSERT_TRUE(report.first.has_value()) << id;
  EXPECT_GT(report.first->error, report.first->tolerance);
  EXPECT_EQ(report.cause_id, id) << report.first->tensor << ", tested " << report.causes_tested;
  EXPECT_NE(report.cause.find(named), std::string::npos) << report.cause;
}

TEST(Verify, NamesWhatIsWrongWithAModel) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  for (const Planted& mistake : planted()) {
    VerifyModel b = tiny();
    mistake.plant(b);
    expect_cause(verify_models(a, b, inputs, {}), mistake.id, mistake.named);
    expect_cause(verify_models(b, a, inputs, {}), mistake.id, "");  // the mistake is in A
  }
}

TEST(Verify, NamesWhatIsWrongWithAProgram) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  for (const Planted& mistake : planted()) {
    VerifyModel b = tiny();
    mistake.plant(b);
    expect_cause(verify_witness(a, witness_of(WhatIf(b), inputs), inputs, {}), mistake.id, mistake.named);
  }
}

// Of files it is known which tensors differ: a mistake in all of these is named, even where no group of the table is
// it.
TEST(Verify, NamesAMistakeInAllThatDiffers) {
  ModelConfig square = test::tiny_config();
  square.n_inner = 16;
  const VerifyModel a = tiny(square);
  const VerifyInputs inputs = inputs_of(square);
  VerifyModel b = tiny(square);
  clear(b, {"layer.0.mlp.fc", "layer.1.attention.q", "layer.1.attention.k", "ln_f"});
  const std::string named =
      "layer.0.mlp.fc.bias, layer.1.attention.q.bias, layer.1.attention.k.bias and 1 more, which are all that differ, "
      "in ";
  expect_cause(verify_models(a, b, inputs, {}), "missing_bias", named + "B");
  expect_cause(verify_models(b, a, inputs, {}), "missing_bias", named + "A");
  b = tiny(square);
  for (const char* name : {"layer.0.attention.k.weight", "layer.1.mlp.fc.weight"}) transpose(weight(b, name), 16);
  expect_cause(verify_models(a, b, inputs, {}), "transposed_weight",
               "layer.0.attention.k.weight, layer.1.mlp.fc.weight, which are all that differ");
  weight(b, "ln_f.bias")[0] += 1.0F;  // and something else
  EXPECT_EQ(verify_models(a, b, inputs, {}).cause, "");
}

// Matrices of the MLP may be square too.
TEST(Verify, NamesAllMatricesTransposedTogether) {
  ModelConfig square = test::tiny_config();
  square.n_inner = 16;
  const VerifyModel a = tiny(square);
  const VerifyInputs inputs = inputs_of(square);
  VerifyModel b = tiny(square);
  for (const ParameterSpec& spec : parameter_specs(square))
    if (spec.layer >= 0 && spec.shape.rank == 2) transpose(weight(b, spec.name), 16);
  const char* named = "{attention,mlp}.*.weight of all 2 layers";
  expect_cause(verify_models(a, b, inputs, {}), "transposed_weight", named);
  expect_cause(verify_witness(a, witness_of(WhatIf(b), inputs), inputs, {}), "transposed_weight", named);
}

// Only logits and loss are given: the layer is not known.
TEST(Verify, NamesItFromLogitsAlone) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  for (const Planted& mistake : planted()) {
    VerifyModel b = tiny();
    mistake.plant(b);
    Witness witness = witness_of(WhatIf(b), inputs);
    std::erase_if(witness.numbers, [](const NamedNumbers& n) { return n.name != "logits" && n.name != "loss"; });
    const VerifyReport report = verify_witness(a, witness, inputs, {});
    expect_cause(report, mistake.id, mistake.named);
    EXPECT_EQ(report.first->tensor, "logits");
  }
}

TEST(Verify, NamesAForgottenMask) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  WhatIf b(a);
  b.causal = false;
  Witness witness = witness_of(b, inputs);
  std::erase_if(witness.numbers, [](const NamedNumbers& n) { return is_gradient(n.name); });
  expect_cause(verify_witness(a, witness, inputs, {}), "missing_mask", "follow");
}

TEST(Verify, NamesALayerTooFew) {
  ModelConfig three = test::tiny_config();
  three.n_layer = 3;
  const VerifyModel a = tiny(three), b = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  expect_cause(verify_models(a, b, inputs, {}), "n_layer", "2 in place of 3, in B");
  expect_cause(verify_models(b, a, inputs, {}), "n_layer", "2 in place of 3, in A");
  expect_cause(verify_witness(a, witness_of(WhatIf(b), inputs), inputs, {}), "n_layer", "2 in place of 3");
}

TEST(Verify, NamesAHeadOfItsOwn) {
  ModelConfig untied = test::tiny_config();
  untied.tie_word_embeddings = false;
  const VerifyModel a = tiny(), b = tiny(untied);
  const VerifyInputs inputs = inputs_of(a.config);
  expect_cause(verify_models(a, b, inputs, {}), "untied_head", "of its own");
  expect_cause(verify_models(b, a, inputs, {}), "untied_head", "the table in place");
  expect_cause(verify_witness(b, witness_of(WhatIf(a), inputs), inputs, {}), "untied_head", "the table in place");
  expect_cause(verify_witness(a, witness_of(WhatIf(b), inputs), inputs, {}), "untied_head", "linear map");
  Witness given = witness_of(WhatIf(b), first_tokens(inputs, 4));
  given.weights["head.weight"] = b.weights.back();
  expect_cause(verify_witness(a, given, first_tokens(inputs, 4), {}), "untied_head", "of its own");
}

TEST(Verify, NamesPaddedRows) {
  ModelConfig padded = test::tiny_config();
  padded.vocab_size = 104;
  const VerifyModel a = tiny();
  VerifyModel b = tiny(padded);
  for (size_t c = 0; c < 16; ++c)
    for (size_t v = 0; v < 104; ++v) b.weights[0][c * 104 + v] = v < 97 ? a.weights[0][c * 97 + v] : 0.125F;
  const VerifyInputs inputs = inputs_of(a.config);
  const VerifyReport report = verify_models(a, b, inputs, {});
  expect_cause(report, "padded_vocabulary", "104 columns in place of 97");
  EXPECT_EQ(report.first->tensor, "loss");
  expect_cause(verify_models(b, a, inputs, {}), "padded_vocabulary", "in A");
  expect_cause(verify_witness(a, witness_of(WhatIf(b), inputs), inputs, {}), "padded_vocabulary", "104");
}

TEST(Verify, NamesShiftedTargets) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  for (const int64_t by : {1, -1}) {
    WhatIf b(a);
    b.target_shift = by;
    const VerifyReport report = verify_witness(a, witness_of(b, inputs), inputs, {});
    expect_cause(report, "label_shift", by > 0 ? "after the next" : "themselves");
    EXPECT_EQ(report.first->tensor, "loss");
  }
}

TEST(Verify, NamesDropout) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  Witness dropped = witness_of(WhatIf(a), inputs);
  std::vector<double>& stream = dropped.numbers[0].values;
  for (size_t i = 0; i < stream.size(); ++i) stream[i] = i % 7 == 3 ? 0.0 : stream[i] / 0.9;
  expect_cause(verify_witness(a, dropped, inputs, {}), "dropout", "embeddings");
  Witness twice = witness_of(WhatIf(a), inputs);
  std::erase_if(twice.numbers, [](const NamedNumbers& n) { return n.name != "logits"; });
  twice.numbers.push_back(twice.numbers[0]);
  twice.numbers[1].name = "logits.again";
  twice.numbers[0].values[3] += 0.5;
  expect_cause(verify_witness(a, twice, inputs, {}), "dropout", "two passes");
}

TEST(Verify, SaysWhereNothingExplainsIt) {
  const VerifyModel a = tiny();
  VerifyModel b = tiny();
  for (float& x : weight(b, "layer.1.mlp.proj.weight")) x *= 1.001F;
  const VerifyReport report = verify_models(a, b, inputs_of(a.config), {});
  EXPECT_FALSE(report.equal);
  EXPECT_EQ(report.first->tensor, "layer.1.mlp.residual");
  EXPECT_EQ(report.cause, "");
  EXPECT_EQ(report.weights.size(), 1u);
  EXPECT_TRUE(verify_models(a, b, inputs_of(a.config), {.tolerance = 1e-2}).equal);
}

TEST(Verify, TellsOtherSizesBeforeAnythingIsComputed) {
  ModelConfig longer = test::tiny_config();
  longer.n_positions = 32;
  VerifyModel b{.path = "b", .config = longer};
  for (const ParameterSpec& spec : parameter_specs(longer))
    b.weights.emplace_back(static_cast<size_t>(spec.shape.elements()));
  const VerifyReport report = verify_models(tiny(), b, inputs_of(longer), {});
  EXPECT_FALSE(report.equal);
  EXPECT_EQ(report.cause, "n_positions: 16 in A, 32 in B");
}

// Every row of the table was planted above, so none is there for nothing.
TEST(Verify, PlantsEveryMistake) {
  std::vector<std::string> tried{"missing_mask",      "n_layer",     "untied_head",
                                 "padded_vocabulary", "label_shift", "dropout"};
  for (const Planted& mistake : planted()) tried.emplace_back(mistake.id);
  EXPECT_EQ(mistakes().size(), 20u);
  for (const Mistake& mistake : mistakes())
    EXPECT_NE(std::find(tried.begin(), tried.end(), mistake.id), tried.end()) << mistake.id;
}

// ---- no false alarm

std::vector<ModelConfig> sound_configs() {
  std::vector<ModelConfig> out;
  for (int i = 0; i < 8; ++i) {
    ModelConfig c = test::tiny_config();
    c.tie_word_embeddings = i % 2 == 0;
    c.activation_function = i % 4 < 2 ? "gelu_new" : "gelu";
    c.scale_attn_weights = i != 3;
    c.scale_attn_by_inverse_layer_idx = i >= 4;
    c.n_head = i == 5 ? 4 : i == 6 ? 1 : 2;
    c.layer_norm_epsilon = i == 7 ? 1e-6 : 1e-5;
    out.push_back(c);
  }
  return out;
}

TEST(Verify, RaisesNoFalseAlarm) {
  for (const ModelConfig& config : sound_configs())
    for (const int64_t tokens : {1, 5, 16}) {
      const VerifyModel a = tiny(config);
      const VerifyReport report = verify_models(a, a, inputs_of(config, tokens), {});
      EXPECT_TRUE(report.equal) << tokens << " " << report.where << " " << (report.first ? report.first->tensor : "");
      EXPECT_EQ(report.comparisons.size(), 3u);
      EXPECT_EQ(report.greedy_a, report.greedy_b);
    }
}

TEST(Verify, ATiedModelIsEqualToOneWhoseHeadIsACopy) {
  VerifyModel a = tiny(), b = tiny();
  b.config.tie_word_embeddings = false;
  b.weights.push_back(b.weights.front());
  for (const VerifyReport& report :
       {verify_models(a, b, inputs_of(a.config), {}), verify_models(b, a, inputs_of(a.config), {})}) {
    EXPECT_TRUE(report.equal) << report.where << " " << (report.first ? report.first->tensor : "");
    EXPECT_FALSE(report.notes.empty());
  }
}

// A file as the program of a profile writes it.
void write_as(const TempDir& dir, const NameProfile& profile, WeightFormat format, const VerifyModel& model) {
  std::vector<TensorEntry> entries;
  std::vector<std::vector<float>> data;
  for (const ProfileTensor& tensor : profile_tensors(profile, model.config)) {
    entries.push_back({file_name(profile, tensor), "F32", tensor.shape});
    std::vector<float>& to = data.emplace_back(static_cast<size_t>(elements_of(tensor)));
    for (const ParameterView& view : tensor.parts) {
      const std::vector<float>& from = model.weights[view.spec];
      const int64_t N = view.heads * view.depth, K = std::ssize(from) / N;
      for (int64_t k = 0; k < K; ++k)
        for (int64_t n = 0; n < N; ++n)
          to[static_cast<size_t>(view.offset + k * view.stride_k + n / view.depth * view.stride_h +
                                 n % view.depth * view.stride_d)] = from[static_cast<size_t>(k * N + n)];
    }
  }
  AtomicFile file(dir.path() + "/weights");
  TensorWriter writer(format, file, entries);
  for (const std::vector<float>& values : data) writer.write(std::as_bytes(std::span(values)));
  writer.finish();
  file.commit();
  dir.write("config.json", hf_config_text(model.config));
}

TEST(Verify, FormatsAndNamesAreNoDifference) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config, 6);
  int pairs = 0;
  for (const NameProfile& profile : name_profiles()) {
    if (profile.packing == QkvPacking::heads) continue;  // without a version's number no such file is read
    for (const WeightFormat format : {WeightFormat::safetensors, WeightFormat::mindspore_safetensors,
                                      WeightFormat::torch, WeightFormat::mindspore_ckpt}) {
      const TempDir dir;
      write_as(dir, profile, format, a);
      const VerifyModel b = load_verify_model(dir.path() + "/weights", "");
      const VerifyReport report = verify_models(a, b, inputs, {.threads = 2});
      EXPECT_TRUE(report.equal) << profile.id << " " << (report.first ? report.first->tensor : "");
      EXPECT_TRUE(report.weights.empty());
      ++pairs;
    }
  }
  EXPECT_GE(pairs, 20);
}

TEST(Verify, AWitnessGoesThroughAFile) {
  const TempDir dir;
  const std::string path = dir.path() + "/numbers.safetensors";
  for (const ModelConfig& config : sound_configs()) {
    const VerifyModel a = tiny(config);
    const VerifyInputs inputs = inputs_of(config);
    write_witness(path, config, make_witness(a, inputs, 3, 1e-2));
    const Witness witness = read_witness(path, config);
    EXPECT_EQ(witness.inputs->hash(), inputs.hash());
    EXPECT_EQ(witness.losses.size(), 3u);
    EXPECT_NO_THROW(check_same_inputs(witness, inputs, 1e-2));
    const VerifyReport report = verify_witness(a, witness, inputs, {});
    EXPECT_TRUE(report.equal) << report.where << " " << (report.first ? report.first->tensor : "");
    EXPECT_EQ(report.comparisons[0].tensors.size(), report.comparisons[1].tensors.size() + 1);  // and the losses
  }
}

TEST(Verify, OtherInputsAreToldBeforeAnythingIsCompared) {
  const VerifyModel a = tiny();
  const VerifyInputs inputs = inputs_of(a.config);
  Witness witness = witness_of(WhatIf(a), inputs);
  witness.hash = inputs.hash();
  witness.lr = 1e-3;
  VerifyInputs others = inputs;
  others.tokens[5] ^= 1;
  const auto said = [&](const VerifyInputs& given, std::optional<double> lr) -> std::string {
    try {
      check_same_inputs(witness, given, lr);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(said(inputs, {}), "");
  EXPECT_NE(said(others, {}).find("hash of the tokens"), std::string::npos);
  for (const std::string& hash : {inputs.hash(), others.hash()})
    EXPECT_NE(said(others, {}).find(hash), std::string::npos);
  EXPECT_NE(said(inputs, 2e-3).find("lr, expected 0.001, got 0.002"), std::string::npos);
}

}  // namespace
}  // namespace lamina
