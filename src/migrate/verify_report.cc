#include "migrate/verify_report.h"

#include <algorithm>
#include <atomic>
#include <future>

#include "base/error.h"

namespace lamina {

void run_side_by_side(const std::vector<std::function<void()>>& tasks, int threads) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++) tasks[i]();
  };
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < std::min(tasks.size(), static_cast<size_t>(threads)); ++i)
    others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
}

Tolerances measure_rounding(const VerifyModel& model, const Numbers& truth, const VerifyInputs& inputs, int threads,
                            double softmax_error) {
  std::vector<std::vector<TensorGap>> samples(Tolerances::kSamples);
  std::vector<std::function<void()>> tasks;
  for (size_t i = 0; i < samples.size(); ++i)
    tasks.emplace_back(
        [&, i] { samples[i] = Tolerances::sample(model, truth, inputs, static_cast<int>(i), softmax_error); });
  run_side_by_side(tasks, threads);
  return Tolerances(samples);
}

void add_comparison(VerifyReport& report, const char* id, const std::string& what, std::vector<TensorGap> gaps) {
  if (const TensorGap* gap = first_gap(gaps); gap != nullptr && report.equal) {
    report.equal = false;
    report.first = *gap;
    report.where = what;
  }
  report.comparisons.push_back({id, what, std::move(gaps)});
}

void add_cause(VerifyReport& report, const Cause& cause, const char* in) {
  report.causes_tested += cause.tested;
  report.cause_id = cause.id;
  if (!cause.id.empty()) report.cause = fmt::format("{}, {}", cause.what, in);
}

}  // namespace lamina
