// What a config.json says that a default of the other side would not, each value written out for both; and how its
// generation settings differ from greedy.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/json.h"
#include "io/quote.h"
#include "migrate/lint.h"

namespace lamina {
namespace {

// Shortest text within fifteen digits: 1 - 0.7 is 0.3.
std::string number(double value) { return fmt::format("{:.15g}", value); }

// A key that says something: what, and the settings of both sides.
struct Said {
  std::string_view rule;
  std::string_view key;
  std::string what;
  std::string pytorch;
  std::string mindspore;
};

void add(std::vector<Finding>& out, const std::string& file, Said said) {
  const LintRule& rule = lint_rule(said.rule);
  out.push_back({&rule,
                 std::min(rule.severity, Severity::warning),
                 {file, 0, "key", std::string(said.key)},
                 std::move(said.what),
                 std::move(said.pytorch),
                 std::move(said.mindspore)});
}

std::vector<Said> layer_findings(const ModelConfig& config) {
  std::vector<Said> out;
  const std::string epsilon = number(config.layer_norm_epsilon);
  out.push_back({"layernorm-epsilon", "layer_norm_epsilon",
                 fmt::format("{}, and the default of nn.LayerNorm is 1e-05 in PyTorch and 1e-07 in MindSpore", epsilon),
                 "nn.LayerNorm(..., eps=" + epsilon + ")", "nn.LayerNorm(..., epsilon=" + epsilon + ")"});
  const bool tanh = config.activation() == Activation::gelu_tanh;
  out.push_back(
      {"gelu-form", "activation_function",
       fmt::format("{} is the {}", config.activation_function,
                   tanh ? "tanh form, and PyTorch's nn.GELU and MindSpore's ops.gelu have the exact one by default"
                        : "exact form, and MindSpore's nn.GELU has the tanh form by default"),
       tanh ? "nn.GELU(approximate='tanh')" : "nn.GELU(approximate='none')",
       tanh ? "nn.GELU(approximate=True)" : "nn.GELU(approximate=False)"});
  const std::string range = number(config.initializer_range);
  const std::string residual = number(config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer)));
  for (const std::string_view rule : {"dense-init", "embedding-init"})
    out.push_back({rule, "initializer_range", fmt::format("{} is no default of either side", range),
                   fmt::format("init.normal_(weight, std={}), std={} for residual projections", range, residual),
                   rule == "dense-init"
                       ? fmt::format("weight_init=Normal({}), Normal({}) for residual projections, bias_init='zeros'",
                                     range, residual)
                       : fmt::format("embedding_table=Normal({})", range)});
  return out;
}

std::vector<Said> attention_findings(const ModelConfig& config) {
  std::vector<Said> out;
  const std::string depth = config.scale_attn_weights ? fmt::format("1/sqrt({})", config.head_dim()) : "1";
  const std::string factor = config.scale_attn_by_inverse_layer_idx ? depth + "/(layer + 1)" : depth;
  if (!config.scale_attn_weights)
    out.push_back({"attention-scale", "scale_attn_weights", "false: scores are not divided by sqrt(D)",
                   "scaled_dot_product_attention(..., scale=" + factor + ")", "scores * " + factor + " written out"});
  if (config.scale_attn_by_inverse_layer_idx)
    out.push_back({"attention-scale", "scale_attn_by_inverse_layer_idx",
                   "true: scores are divided by the layer's number too",
                   "scaled_dot_product_attention(..., scale=" + factor + ")", "scores * " + factor + " written out"});
  if (config.reorder_and_upcast_attn)
    out.push_back({"attention-scale", "reorder_and_upcast_attn",
                   "true: scores and softmax are fp32, whatever the rest is", "scores in torch.float32",
                   "scores in mindspore.float32"});
  return out;
}

// Both the share dropped and the share kept, by the names of the parameters.
std::vector<Said> dropout_findings(const ModelConfig& config) {
  std::vector<Said> out;
  const std::pair<std::string_view, double> kDropouts[] = {
      {"embd_pdrop", config.embd_pdrop}, {"attn_pdrop", config.attn_pdrop}, {"resid_pdrop", config.resid_pdrop}};
  for (const auto& [key, p] : kDropouts)
    if (p > 0.0)
      out.push_back(
          {"dropout-positional", key,
           fmt::format("{} is the share dropped; MindSpore's keep_prob is the share kept", number(p)),
           fmt::format("nn.Dropout(p={})", number(p)),
           fmt::format("nn.Dropout(p={}); keep_prob={} for the primitive ops.Dropout", number(p), number(1.0 - p))});
  if (!out.empty())
    out.push_back(
        {"train-mode", out.front().key, "dropout acts only after set_train()", "model.train()", "net.set_train()"});
  return out;
}

}  // namespace

std::vector<Finding> lint_config(const ModelConfig& config, const std::string& file) {
  std::vector<Finding> out;
  for (auto* part : {&layer_findings, &attention_findings, &dropout_findings})
    for (Said& said : part(config)) add(out, file, std::move(said));
  if (config.tie_word_embeddings)
    add(out, file,
        {"tied-head", "tie_word_embeddings", "true: the head is the table, one parameter",
         "lm_head.weight = wte.weight",
         "head.weight = wte.embedding_table, or ops.MatMul(transpose_b=True) with the table"});
  return out;
}

std::vector<Finding> lint_generation(std::string_view text, const std::string& file) {
  const nlohmann::json root = parse_json(text, file);
  const JsonReader values(root, "bad generation config: " + file);
  std::vector<Finding> out;
  const bool samples = values["do_sample"].present() && values["do_sample"].as<bool>();
  for (const char* key : {"do_sample", "top_k", "top_p", "temperature", "num_beams", "repetition_penalty"}) {
    const JsonReader value = values[key];
    if (!value.present() || value.is_null()) continue;
    const bool matters =
        samples || std::string_view(key) == "num_beams" || std::string_view(key) == "repetition_penalty";
    const double number = value.json().is_number() ? value.json().get<double>() : 0.0;
    if (!matters || number == 1.0) continue;
    const std::string setting = fmt::format("{}={}", key, json_text(value.json()));
    add(out, file,
        {"generation-settings", key, setting + " is no greedy decoding, and MindFormers' own default is another",
         setting + "; do_sample=False, num_beams=1 to compare", setting + "; do_sample=False, top_k=1 to compare"});
  }
  return out;
}

}  // namespace lamina
