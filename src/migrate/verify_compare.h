// How far numbers lie apart, and how far they may: relative errors in the mean of squares, tensor by tensor, and
// tolerances that are computed from the model and its inputs.
#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "migrate/verify_numbers.h"

namespace lamina {

inline constexpr double kUnit32 = 0x1.0p-24, kUnit64 = 0x1.0p-53;  // unit roundoff of fp32 and of double

struct TensorGap {
  std::string tensor;
  double error = 0.0;      // RMS of the difference over RMS of the first one's; infinite for what is not finite
  double tolerance = 0.0;  // of that
  double largest = 0.0;    // difference of any element
  bool fits() const { return std::isfinite(error) && error <= tolerance; }
};

// The layer in a name, -1: none.
int64_t layer_of(std::string_view name);
bool is_gradient(std::string_view name);

// How one tensor differs; tensors of other sizes in the parts that both have. Nothing where these do not compare.
std::optional<TensorGap> gap_of(const Numbers& first, const NamedNumbers& a, const NamedNumbers& b);

// What rounding does to a model's numbers is measured: the plain loops of the reference run in fp32 too, on its weights
// and, since one sample of a small tensor's rounding may be tiny by chance, on its weights moved by one unit of
// roundoff up or down. Where the farthest of these is `a` units away from the double result, any arithmetic may be 4·a
// units of its own away. At least 4 units, 16 for the loss, and never less than the mean of all tensors of its kind
// (stream, gradients). A run that overflows fp32 measures nothing. Where the softmax of attention has decided, two sums
// of its gradient cancel; these runs add them up in different ways, since what is left of sums that are added up alike
// is 0 by chance.
class Tolerances {
 public:
  static constexpr int kSamples = 3;

  // The gaps of one sample, in fp32: 0 is the model as it is. `softmax_error`: as in WhatIf, of another program's.
  static std::vector<TensorGap> sample(const VerifyModel& model, const Numbers& truth, const VerifyInputs& inputs,
                                       int number, double softmax_error);
  explicit Tolerances(const std::vector<std::vector<TensorGap>>& samples);
  double of(const std::string& name, double unit) const;

 private:
  std::map<std::string, double, std::less<>> amplification_;  // units of roundoff
  double mean_[2] = {0.0, 0.0};                               // of the stream, of gradients
};

// Every tensor that both have, in the order of the first. `units`: the sum of both sides' unit roundoffs. A `fixed`
// tolerance takes the place of the computed one.
std::vector<TensorGap> compare_numbers(const Numbers& first, const Numbers& second, const Tolerances& tolerances,
                                       double units, std::optional<double> fixed = {});

const TensorGap* first_gap(const std::vector<TensorGap>& gaps);  // that does not fit; null: all do

// Of a model whose head is its own, as if it were the table: their gradients are added up.
void fold_head(Numbers& numbers);

// The stream and logits of the first tokens of each row.
Numbers first_tokens(const Numbers& numbers, const VerifyInputs& inputs, int64_t seq);

// The mean loss of logits (rows, seq, V) over the targets that count.
double loss_of_logits(const NamedNumbers& logits, const std::vector<int32_t>& targets);

}  // namespace lamina
