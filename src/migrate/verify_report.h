// What both ways of verifying share: reference runs side by side, and a report that grows comparison by comparison.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "migrate/verify.h"
#include "migrate/verify_mistakes.h"

namespace lamina {

// So many tasks at a time: the reference has no threads of its own, and each run of it takes memory.
void run_side_by_side(const std::vector<std::function<void()>>& tasks, int threads);

// The rounding of a model on these inputs, in a program whose softmax is off by so much besides.
Tolerances measure_rounding(const VerifyModel& model, const Numbers& truth, const VerifyInputs& inputs, int threads,
                            double softmax_error = 0.0);

// The first comparison with a gap that does not fit decides.
void add_comparison(VerifyReport& report, const char* id, const std::string& what, std::vector<TensorGap> gaps);

void add_cause(VerifyReport& report, const Cause& cause, const char* in);

}  // namespace lamina
