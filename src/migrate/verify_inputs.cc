// The tokens that both sides compute on.
#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "migrate/verify.h"

namespace lamina {

VerifyInputs inputs_of_ids(const ModelConfig& config, int64_t vocab_size, int64_t tokens,
                           const std::vector<int32_t>& ids, const std::string& where) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
  if (bad != ids.end())
    throw_error(ErrorCode::invalid, "bad id: {}: id {} of {}, expected 0 to {}, got {}", where, bad - ids.begin() + 1,
                ids.size(), vocab_size - 1, *bad);
  const int64_t have = std::ssize(ids);
  const int64_t seq = tokens > 0 ? tokens : std::min(have, config.n_positions);
  if (seq > config.n_positions || seq > have || have < 2)
    throw_error(ErrorCode::invalid,
                "tokens out of range: {}: expected at most {} (n_positions) of at least 2 ids, got {} of {}", where,
                config.n_positions, seq, have);
  VerifyInputs out{std::min<int64_t>(2, have / seq), seq, {}, {}};
  for (int64_t i = 0; i < out.rows * seq; ++i) {
    out.tokens.push_back(ids[static_cast<size_t>(i)]);
    out.targets.push_back(i + 1 < have ? ids[static_cast<size_t>(i + 1)] : -1);
  }
  return out;
}

VerifyInputs seeded_inputs(const ModelConfig& config, int64_t vocab_size, int64_t tokens, uint64_t seed) {
  constexpr double kOperations = 2.4e10;  // of a pass forward and back: half a minute on one core
  constexpr int64_t kRows = 2, kMost = 64;
  int64_t seq = tokens;
  if (seq > config.n_positions)
    throw_error(ErrorCode::invalid, "tokens out of range: --tokens: expected at most {} (n_positions), got {}",
                config.n_positions, seq);
  if (seq == 0) {
    const double fit = kOperations / 6.0 / static_cast<double>(kRows * parameter_count(config));
    seq = std::min(static_cast<int64_t>(std::clamp(fit, 4.0, static_cast<double>(kMost))), config.n_positions);
  }
  std::vector<int32_t> ids;
  for (int64_t i = 0; i <= kRows * seq; ++i) {
    const uint64_t draw = mix64(mix64(seed + 1) + static_cast<uint64_t>(i));
    ids.push_back(static_cast<int32_t>(draw % static_cast<uint64_t>(vocab_size)));
  }
  return inputs_of_ids(config, vocab_size, seq, ids, "--tokens");
}

}  // namespace lamina
