#include "train/signature.h"

#include "base/hash.h"
#include "base/rng.h"
#include "compile.h"
#include "train/step.h"

namespace lamina {
namespace {

constexpr int64_t kSteps = 8;
constexpr int64_t kBatch = 2, kAccumulate = 2, kSeq = 16;

// Odd sizes, so that every tail runs; dropout at every site.
ModelConfig model() {
  ModelConfig config;
  config.vocab_size = 97;
  config.n_positions = 24;
  config.n_embd = 36;
  config.n_layer = 2;
  config.n_head = 3;
  config.bos_token_id = config.eos_token_id = std::nullopt;
  return config;
}

// Numbers without a mathematical library: uniform, exact in fp32.
void fill_parameters(Session& session, const std::vector<ParameterSpec>& specs) {
  std::vector<float> values;
  for (size_t i = 0; i < specs.size(); ++i) {
    Rng rng(1000 + i);
    values.resize(static_cast<size_t>(specs[i].shape.elements()));
    for (float& value : values)
      value = static_cast<float>(static_cast<double>(rng.next() >> 40) * 0x1p-24 - 0.5) * 0.25f +
              static_cast<float>(specs[i].init_mean);
    session.write(specs[i].name, {values.data(), specs[i].shape.last(), 1});
  }
}

CompileOptions request() {
  CompileOptions out;
  out.batch = kBatch;
  out.seq = kSeq;
  out.accumulate = kAccumulate;
  out.update = {.weight_decay = 0.1, .clip = 1.0};
  out.isa = Isa::portable;
  return out;
}

}  // namespace

std::string signature(int threads) {
  const ModelConfig config = model();
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  const CompileOptions options = request();
  Session session(compile(config, options).plan, threads);
  fill_parameters(session, specs);
  TrainStep train(session,
                  {.seed = 7, .accumulate = kAccumulate, .beta1 = options.update.beta1, .beta2 = options.update.beta2});
  constexpr int64_t kRows = kBatch * kAccumulate;
  std::vector<int32_t> ids(static_cast<size_t>(kRows * (kSeq + 1)));
  std::vector<Row> rows(static_cast<size_t>(kRows));
  Hash128 hash;
  Rng tokens(5);
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (int32_t& id : ids) id = static_cast<int32_t>(tokens.below(static_cast<uint64_t>(config.vocab_size)));
    for (int64_t r = 0; r < kRows; ++r) {
      // Rows of different lengths, some behind padding.
      const size_t count = static_cast<size_t>(kSeq - (r + step) % 5);
      const std::span<const int32_t> own = std::span(ids).subspan(static_cast<size_t>(r * (kSeq + 1)), count + 1);
      rows[static_cast<size_t>(r)] = {own.first(count), own.subspan(1), r % 2 == 0 ? 0 : (r + step) % 5};
    }
    const StepResult result = train.step(rows, step, 1e-3);
    const double numbers[] = {result.loss, result.grad_norm};
    hash.add(std::span<const double>(numbers));
  }
  std::vector<float> values;
  for (const ParameterSpec& spec : specs) {
    values.resize(static_cast<size_t>(spec.shape.elements()));
    session.read(spec.name, values.data(), spec.shape.last(), 1);
    hash.add(std::span<const float>(values));
  }
  return hash.text();
}

}  // namespace lamina
