#include "migrate/verify_numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "autodiff/autodiff.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/rng.h"
#include "compile.h"
#include "kernels/ref/attention.h"
#include "model/programs.h"
#include "passes/pass.h"
#include "reference/interpreter.h"

namespace lamina {
namespace {

// Branches are folded and what is not needed goes; nothing is fused, so that every value has its own name.
void simplify(Graph& graph) {
  std::vector<PassRecord> records;
  PipelineOptions options;
  options.skip = {"merge_duplicates", "fuse_accumulate"};
  run_passes(graph, forward_passes(), {}, options, records);
}

struct Program {
  Graph graph;
  std::vector<std::pair<std::string, std::string>> wanted;  // our name, the value's
};

Program build(const ModelConfig& config, const VerifyInputs& inputs, const ReferenceOptions& options) {
  ModelConfig part = config;
  const bool whole = options.layers < 0;
  if (!whole) part.n_layer = options.layers;
  ForwardGraph forward = build_forward(
      "verify", part,
      {.batch = inputs.rows, .seq = inputs.seq, .training = false, .with_loss = whole, .residuals = true});
  Program out{std::move(forward.graph), {}};
  for (const std::string& name : residual_names(part))
    if (whole || name != "ln_f") out.wanted.emplace_back(name, name);
  if (whole) {
    out.graph.outputs.push_back(forward.logits);
    out.wanted.insert(out.wanted.end(), {{"logits", "logits"}, {"loss", "loss"}});
  } else {
    out.graph.outputs.resize(out.graph.outputs.size() - 2);  // without final norm and logits
  }
  simplify(out.graph);
  if (!whole || !options.gradients) return out;
  const std::vector<ValueId> gradients = differentiate(out.graph, forward.loss, forward.loss_scale, forward.parameters);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) {
    LAMINA_CHECK(gradients[i] != ValueId::none, "parameter {} has no gradient", specs[i].name);
    out.graph.outputs.push_back(gradients[i]);
    out.wanted.emplace_back("grad." + specs[i].name, out.graph[gradients[i]].name);
  }
  return out;
}

template <typename S>
ref::RefTensor<S> ints(const std::vector<int32_t>& values) {
  return {{}, {}, {values.begin(), values.end()}};
}

std::vector<int32_t> shifted(const VerifyInputs& inputs, int64_t by) {
  std::vector<int32_t> out(inputs.targets.size(), -1);
  for (int64_t r = 0; r < inputs.rows; ++r)
    for (int64_t t = 0; t < inputs.seq; ++t) {
      const auto to = static_cast<size_t>(r * inputs.seq + t);
      if (by < 0)
        out[to] = inputs.tokens[to];
      else if (t + by < inputs.seq)
        out[to] = inputs.targets[to + static_cast<size_t>(by)];
    }
  return out;
}

double valid(const std::vector<int32_t>& targets) {
  return static_cast<double>(std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; }));
}

std::vector<int32_t> positions_of(const VerifyInputs& inputs) {
  std::vector<int32_t> out(inputs.tokens.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(static_cast<int64_t>(i) % inputs.seq);
  return out;
}

// Attention whose mask was forgotten: every query sees all keys of its row. Or whose softmax is less exact: each weight
// is off by so much in the mean of squares.
template <typename S>
void other_attention(const ref::RefCall<S>& call, const WhatIf& model) {
  const auto& a = *static_cast<const AttentionAttrs*>(call.attrs);
  const ref::AttentionSizes z = ref::attention_sizes(call.in[0]->shape, a.n_head);
  for (int64_t b = 0; b < z.B; ++b)
    for (int64_t h = 0; h < z.H; ++h)
      for (int64_t t = 0; t < z.T; ++t) {
        const int64_t query = (b * z.T + t) * z.C + h * z.D, keys = b * z.T * z.C + h * z.D;
        const auto scores = ref::attention_scores(call.in[0]->values.data() + query, call.in[1]->values.data() + keys,
                                                  model.causal ? t + 1 : z.T, z, a.scale);
        std::vector<double> factors;
        for (const S& score : scores) {  // uniform draws, other ones for other scores
          const auto bits = mix64(std::bit_cast<uint64_t>(static_cast<double>(score))) >> 11;
          factors.push_back(1.0 + model.softmax_error * std::sqrt(3.0) * (static_cast<double>(bits) * 0x1.0p-52 - 1.0));
        }
        call.out[1]->values[static_cast<size_t>((b * z.H + h) * z.T + t)] =
            ref::attend(scores, factors, call.in[2]->values.data() + keys, z, call.out[0]->values.data() + query);
      }
}

template <typename S>
void set_inputs(Interpreter<S>& run, const VerifyInputs& inputs, const std::vector<int32_t>& targets) {
  run.set("tokens", ints<S>(inputs.tokens));
  run.set("positions", ints<S>(positions_of(inputs)));
  run.set("key_begin", ints<S>(std::vector<int32_t>(inputs.tokens.size(), 0)));
  run.set("targets", ints<S>(targets));
  run.set("target_weight", {{}, {S(1.0 / std::max(1.0, valid(targets)))}, {}});
  run.set("loss_scale", {{}, {S(1.0)}, {}});
}

std::vector<int64_t> dims(const Shape& shape) { return {shape.dims.begin(), shape.dims.begin() + shape.rank}; }

}  // namespace

std::string VerifyInputs::hash() const {
  Hash128 hash;
  hash.add(std::span(tokens));
  hash.add(std::span(targets));
  return hash.text();
}

VerifyInputs first_tokens(const VerifyInputs& inputs, int64_t seq) {
  VerifyInputs out{inputs.rows, seq, {}, {}};
  for (int64_t r = 0; r < inputs.rows; ++r)
    for (int64_t t = 0; t < seq; ++t) {
      out.tokens.push_back(inputs.tokens[static_cast<size_t>(r * inputs.seq + t)]);
      out.targets.push_back(inputs.targets[static_cast<size_t>(r * inputs.seq + t)]);
    }
  return out;
}

const NamedNumbers* find_numbers(const Numbers& numbers, std::string_view name) {
  const auto found =
      std::find_if(numbers.begin(), numbers.end(), [&](const NamedNumbers& n) { return n.name == name; });
  return found == numbers.end() ? nullptr : &*found;
}

template <typename S>
Numbers reference_numbers(const WhatIf& model, const VerifyInputs& inputs, const ReferenceOptions& options) {
  const Program program = build(model.config, inputs, options);
  Interpreter<S> run;
  if (!model.causal || model.softmax_error > 0.0)
    run.replace(Op::attention, [&](const ref::RefCall<S>& call) { other_attention(call, model); });
  if (model.other_sum)
    run.replace(Op::attention_bwd, [](const ref::RefCall<S>& call) { ref::attention_bwd_summed(call, true); });
  const Uses uses(program.graph);
  for (size_t i = 0; i < program.graph.values.size(); ++i) {
    const Value& value = program.graph.values[i];
    if (value.kind != ValueKind::persistent || uses.readers[i].empty()) continue;
    const std::vector<float>& weights = model[value.name];
    run.set(value.name, {{}, {weights.begin(), weights.end()}, {}});
  }
  set_inputs(run, inputs, model.target_shift == 0 ? inputs.targets : shifted(inputs, model.target_shift));
  run.run(program.graph);
  Numbers out;
  for (const auto& [name, value] : program.wanted) {
    ref::RefTensor<S> tensor = run.take(value);  // gradients are as large as the model: no second copy
    if constexpr (std::is_same_v<S, double>)
      out.push_back({name, dims(tensor.shape), std::move(tensor.values)});
    else
      out.push_back({name, dims(tensor.shape), {tensor.values.begin(), tensor.values.end()}});
  }
  return out;
}

template Numbers reference_numbers<float>(const WhatIf&, const VerifyInputs&, const ReferenceOptions&);
template Numbers reference_numbers<double>(const WhatIf&, const VerifyInputs&, const ReferenceOptions&);

std::vector<double> reference_losses(const VerifyModel& model, const VerifyInputs& inputs, int64_t steps, double lr) {
  const CompileOptions wanted{.batch = inputs.rows, .seq = inputs.seq, .keep_gradients = true};
  const std::vector<Graph> graphs = compile(model.config, wanted).graphs;  // micro_step, update
  const std::vector<ParameterSpec> specs = parameter_specs(model.config);
  Interpreter<double> run;
  for (size_t i = 0; i < specs.size(); ++i)
    run.set(specs[i].name, {{}, {model.weights[i].begin(), model.weights[i].end()}, {}});
  set_inputs(run, inputs, inputs.targets);
  std::vector<double> out;
  for (int64_t s = 1; s <= steps; ++s) {
    const auto t = static_cast<double>(s);
    const double c1 = 1.0 - std::pow(wanted.update.beta1, t), c2 = 1.0 - std::pow(wanted.update.beta2, t);
    run.set("hyper", {{}, {lr, lr / c1, std::sqrt(c2)}, {}});
    run.run(graphs[0]);
    out.push_back(run.get("loss").values[0]);
    run.run(graphs[1]);
  }
  return out;
}

FastModel::FastModel(const VerifyModel& model, const VerifyInputs& inputs, int threads)
    : config_(model.config), inputs_(inputs) {
  const CompileOptions wanted{.batch = inputs.rows,
                              .seq = inputs.seq,
                              .keep_gradients = true,
                              .forward = true,
                              .residuals = true,
                              .isa = select_isa()};
  session_ = std::make_unique<Session>(compile(config_, wanted).plan, threads);
  const std::vector<ParameterSpec> specs = parameter_specs(config_);
  for (size_t i = 0; i < specs.size(); ++i)
    session_->write(specs[i].name, {model.weights[i].data(), specs[i].shape.last(), 1});
}

void FastModel::fill(const std::vector<int32_t>& tokens) {
  const auto put = [&](const char* name, const std::vector<int32_t>& values) {
    std::copy(values.begin(), values.end(), session_->ints(name).begin());
  };
  put("tokens", tokens);
  put("targets", inputs_.targets);
  put("positions", positions_of(inputs_));
  put("key_begin", std::vector<int32_t>(tokens.size(), 0));
  session_->floats("target_weight")[0] = static_cast<float>(1.0 / std::max(1.0, valid(inputs_.targets)));
  session_->floats("loss_scale")[0] = 1.0F;
}

std::vector<double> FastModel::read(const std::string& name) {
  const std::span<const float> values = session_->floats(name);
  return {values.begin(), values.end()};
}

Numbers FastModel::numbers() {
  fill(inputs_.tokens);
  session_->run(session_->program("forward"));
  Numbers out;
  for (const std::string& name : residual_names(config_))
    out.push_back({name, {inputs_.rows, inputs_.seq, config_.n_embd}, read(name)});
  out.push_back({"logits", {inputs_.rows, inputs_.seq, config_.vocab_size}, read("logits")});
  session_->run(session_->program("micro_step"));
  out.push_back({"loss", {1}, read("loss")});
  for (const ParameterSpec& spec : parameter_specs(config_)) {
    std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
    session_->read("grad." + spec.name, values.data(), spec.shape.last(), 1);
    out.push_back({"grad." + spec.name, dims(spec.shape), {values.begin(), values.end()}});
  }
  return out;
}

std::vector<std::vector<int32_t>> FastModel::greedy() {
  std::vector<int32_t> tokens = inputs_.tokens;
  std::vector<std::vector<int32_t>> out(static_cast<size_t>(inputs_.rows));
  const auto V = static_cast<size_t>(config_.vocab_size);
  for (int64_t t = std::max<int64_t>(1, inputs_.seq / 2); t < inputs_.seq; ++t) {
    fill(tokens);
    session_->run(session_->program("forward"));
    const std::span<const float> logits = session_->floats("logits");
    for (int64_t r = 0; r < inputs_.rows; ++r) {
      const auto row = logits.subspan(static_cast<size_t>(r * inputs_.seq + t - 1) * V, V);
      const auto best = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      tokens[static_cast<size_t>(r * inputs_.seq + t)] = best;
      out[static_cast<size_t>(r)].push_back(best);
    }
  }
  return out;
}

}  // namespace lamina
