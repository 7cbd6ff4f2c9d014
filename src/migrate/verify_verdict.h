// What decides besides numbers that lie apart: numbers that are not finite, rows of a table that no token reads, and an
// fp32 that is worse than its rounding.
#pragma once

#include <optional>
#include <string>

#include "migrate/verify.h"

namespace lamina {

// Nothing compares with NaN or infinity, not even the same ones: where a number is not finite, that is the verdict. All
// return whether everything is finite. `whose`: "A in fp32".
bool check_finite(VerifyReport& report, const VerifyModel& model, const std::string& whose);
bool check_finite(VerifyReport& report, const Numbers& numbers, const std::string& whose);
// Of what was compared with finite numbers: columns beyond those of a padded table may hold what they like.
bool check_finite(VerifyReport& report, const std::vector<TensorGap>& gaps, const std::string& whose);

// Of two models that compute the same: differences in rows of position or token tables that these tokens do not read
// are differences all the same. `tolerance`: of their error.
void check_untouched_rows(VerifyReport& report, const VerifyModel& a, const VerifyModel& b, const VerifyInputs& inputs,
                          double tolerance);

// Where the two agree and only the fast path does not with its own double result, that is no difference of the two.
void explain_fast(VerifyReport& report, bool same);

}  // namespace lamina
