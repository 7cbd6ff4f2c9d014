// Steps of a whole plan on more threads than processors: the same bits as on one. ThreadSanitizer watches it.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/isas.h"
#include "compile.h"
#include "runtime/session.h"

namespace lamina {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.vocab_size = 53;
  config.n_positions = 16;
  config.n_embd = 24;
  config.n_layer = 2;
  config.n_head = 3;
  config.bos_token_id = config.eos_token_id = 52;
  return config;
}

// Loss and norm of some steps, and the table after them.
std::vector<float> train(const CompileOptions& options, int threads) {
  const ModelConfig config = small_config();
  Session session(compile(config, options).plan, threads);
  for (const ParameterSpec& spec : parameter_specs(config)) {
    std::vector<float> start(static_cast<size_t>(spec.shape.elements()));
    for (size_t i = 0; i < start.size(); ++i) start[i] = 0.01f * static_cast<float>(i % 17) - 0.08f;
    session.write(spec.name, {start.data(), spec.shape.last(), 1});
  }
  for (const char* name : {"tokens", "targets"})
    for (size_t i = 0; i < session.ints(name).size(); ++i) session.ints(name)[i] = static_cast<int32_t>(i * 7 % 53);
  for (size_t i = 0; i < session.ints("positions").size(); ++i)
    session.ints("positions")[i] = static_cast<int32_t>(static_cast<int64_t>(i) % options.seq);
  session.floats("target_weight")[0] = 1.0f / static_cast<float>(session.ints("targets").size());
  session.floats("loss_scale")[0] = 1.0f;
  const float hyper[] = {1e-2f, 1e-1f, 0.1f};
  std::copy_n(hyper, 3, session.floats("hyper").begin());
  std::vector<float> out(24 * 53);
  for (int step = 0; step < 3; ++step) {
    session.longs("rng")[1] = step;
    session.run(session.program("step"));
    out.push_back(session.floats("loss")[0]);
    out.push_back(session.floats("grad_norm")[0]);
  }
  session.read("embedding.token", out.data(), 53, 1);
  return out;
}

TEST(Threads, StepsOnMoreThreadsThanProcessorsGiveTheSameBits) {
  const CompileOptions options{.batch = 2, .seq = 16, .isa = test::tested_isas().back()};
  const std::vector<float> one = train(options, 1);
  EXPECT_NE(one[one.size() - 1], 0.0f);
  for (int threads : {2, 5}) EXPECT_EQ(train(options, threads), one) << threads;
}

}  // namespace
}  // namespace lamina
