#include "train/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace lamina {
namespace {

constexpr int64_t kBlock = 4096;  // elements of one stream of random numbers, even

uint64_t name_key(uint64_t seed, const std::string& name) {
  uint64_t key = mix64(seed);
  for (char c : name) key = hash_combine(key, static_cast<unsigned char>(c));
  return key;
}

struct NormalJob {
  uint64_t key;
  double mean, deviation;
  std::vector<float>* values;
};

// Box and Muller, both values of each pair.
void normal_block(void* context, int64_t block, int) noexcept {
  const NormalJob& job = *static_cast<const NormalJob*>(context);
  Rng rng(hash_combine(job.key, static_cast<uint64_t>(block)));
  const int64_t begin = block * kBlock;
  const int64_t end = std::min(begin + kBlock, static_cast<int64_t>(job.values->size()));
  float* values = job.values->data();
  for (int64_t i = begin; i < end; i += 2) {
    const double radius = job.deviation * std::sqrt(-2.0 * std::log(1.0 - rng.uniform()));
    const double angle = 2.0 * std::numbers::pi * rng.uniform();
    values[i] = static_cast<float>(job.mean + radius * std::cos(angle));
    if (i + 1 < end) values[i + 1] = static_cast<float>(job.mean + radius * std::sin(angle));
  }
}

}  // namespace

void initialise(Session& session, const std::vector<ParameterSpec>& specs, uint64_t seed) {
  std::vector<float> values;
  for (const ParameterSpec& spec : specs) {
    if (spec.init_std == 0.0) {
      session.fill(spec.name, static_cast<float>(spec.init_mean));
      continue;
    }
    values.resize(static_cast<size_t>(spec.shape.elements()));
    NormalJob job{name_key(seed, spec.name), spec.init_mean, spec.init_std, &values};
    session.team().run((spec.shape.elements() + kBlock - 1) / kBlock, normal_block, &job);
    session.write(spec.name, {values.data(), spec.shape.last(), 1});
  }
}

}  // namespace lamina
