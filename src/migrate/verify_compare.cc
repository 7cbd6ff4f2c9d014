#include "migrate/verify_compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace lamina {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double rms(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double x : values) sum += x * x;
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(values.size(), 1)));
}

// What errors of a tensor are measured by: its size. Gradients of queries and keys are differences of what the softmax
// weighs, near 0 where it has decided and exactly 0 for the keys' bias: their terms are as large as the values'
// gradients.
double scale_of(const Numbers& all, const NamedNumbers& tensor) {
  const double own = rms(tensor.values);
  for (const char* part : {".attention.q.", ".attention.k."}) {
    const size_t at = tensor.name.find(part);
    if (at == std::string::npos || !is_gradient(tensor.name)) continue;
    std::string values = tensor.name;
    values[at + std::string_view(".attention.").size()] = 'v';
    const NamedNumbers* terms = find_numbers(all, values);
    return terms == nullptr ? own : std::max(own, rms(terms->values));
  }
  return own;
}

int64_t rows_of(const std::vector<int64_t>& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

int64_t last_of(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape.back(); }

}  // namespace

int64_t layer_of(std::string_view name) {
  constexpr std::string_view kLayer = "layer.";
  const size_t at = name.find(kLayer);
  int64_t out = -1;
  if (at != std::string_view::npos) std::from_chars(name.data() + at + kLayer.size(), name.data() + name.size(), out);
  return out;
}

bool is_gradient(std::string_view name) { return name.starts_with("grad."); }

std::vector<TensorGap> Tolerances::sample(const VerifyModel& model, const Numbers& truth, const VerifyInputs& inputs,
                                          int number, double softmax_error) {
  WhatIf moved(model);
  moved.softmax_error = softmax_error;
  moved.other_sum = true;
  const std::vector<ParameterSpec> specs = parameter_specs(model.config);
  for (size_t i = 0; number > 0 && i < specs.size(); ++i) {
    std::vector<float> values = model.weights[i];
    for (size_t j = 0; j < values.size(); ++j) {
      const uint64_t draw = mix64((static_cast<uint64_t>(number) << 56) + (static_cast<uint64_t>(i) << 40) + j);
      values[j] *= 1.0F + ((draw & 1) != 0 ? 0x1.0p-23F : -0x1.0p-24F);  // one unit in the last place
    }
    moved.set(specs[i].name, std::move(values));
  }
  const Numbers plain = reference_numbers<float>(moved, inputs);
  std::vector<TensorGap> out;
  for (size_t i = 0; i < truth.size(); ++i) out.push_back(*gap_of(truth, truth[i], plain[i]));
  return out;
}

Tolerances::Tolerances(const std::vector<std::vector<TensorGap>>& samples) {
  for (const std::vector<TensorGap>& gaps : samples)
    for (const TensorGap& gap : gaps) {
      if (!std::isfinite(gap.error)) continue;
      double& most = amplification_[gap.tensor];
      most = std::max(most, gap.error / kUnit32);
    }
  double count[2] = {0.0, 0.0};
  for (const auto& [name, error] : amplification_) {
    mean_[is_gradient(name)] += error;
    count[is_gradient(name)] += 1.0;
  }
  for (int kind : {0, 1}) mean_[kind] /= std::max(count[kind], 1.0);
}

double Tolerances::of(const std::string& name, double unit) const {
  const auto found = amplification_.find(name);
  const double own = found == amplification_.end() ? 0.0 : found->second;
  return unit * std::max(name == "loss" ? 16.0 : 4.0, 4.0 * std::max(own, mean_[is_gradient(name)]));
}

std::optional<TensorGap> gap_of(const Numbers& first, const NamedNumbers& a, const NamedNumbers& b) {
  const int64_t rows = rows_of(a.shape), wide = last_of(a.shape), other = last_of(b.shape);
  if (a.shape.size() != b.shape.size() || rows != rows_of(b.shape)) return {};
  double sum = 0.0, largest = 0.0;
  const int64_t common = std::min(wide, other);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < common; ++i) {
      const double gap =
          std::abs(a.values[static_cast<size_t>(r * wide + i)] - b.values[static_cast<size_t>(r * other + i)]);
      sum += gap * gap;
      largest = gap > largest || std::isnan(gap) ? gap : largest;
    }
  const double mean = std::sqrt(sum / static_cast<double>(std::max<int64_t>(rows * common, 1)));
  const double scale = scale_of(first, a);
  const bool finite = std::isfinite(mean) && std::isfinite(scale);
  const double error = !finite ? kInfinite : mean == 0.0 ? 0.0 : scale > 0.0 ? mean / scale : kInfinite;
  return TensorGap{a.name, error, 0.0, largest};
}

std::vector<TensorGap> compare_numbers(const Numbers& first, const Numbers& second, const Tolerances& tolerances,
                                       double units, std::optional<double> fixed) {
  std::vector<TensorGap> out;
  for (const NamedNumbers& tensor : first) {
    const NamedNumbers* other = find_numbers(second, tensor.name);
    if (other == nullptr) continue;
    if (std::optional<TensorGap> gap = gap_of(first, tensor, *other)) {
      gap->tolerance = fixed.value_or(tolerances.of(tensor.name, units));
      out.push_back(std::move(*gap));
    }
  }
  return out;
}

const TensorGap* first_gap(const std::vector<TensorGap>& gaps) {
  const auto found = std::find_if(gaps.begin(), gaps.end(), [](const TensorGap& gap) { return !gap.fits(); });
  return found == gaps.end() ? nullptr : &*found;
}

void fold_head(Numbers& numbers) {
  const auto at = [&](std::string_view name) {
    return std::find_if(numbers.begin(), numbers.end(), [&](const NamedNumbers& n) { return n.name == name; });
  };
  const auto head = at("grad.head.weight"), table = at("grad.embedding.token");
  if (head == numbers.end() || table == numbers.end()) return;
  for (size_t i = 0; i < table->values.size(); ++i) table->values[i] += head->values[i];
  numbers.erase(head);
}

Numbers first_tokens(const Numbers& numbers, const VerifyInputs& inputs, int64_t seq) {
  Numbers out;
  for (const NamedNumbers& tensor : numbers) {
    if (is_gradient(tensor.name) || tensor.shape.size() != 3 || tensor.shape[1] != inputs.seq) continue;
    NamedNumbers part{tensor.name, {tensor.shape[0], seq, tensor.shape[2]}, {}};
    const int64_t row = inputs.seq * tensor.shape[2], kept = seq * tensor.shape[2];
    for (int64_t r = 0; r < tensor.shape[0]; ++r)
      part.values.insert(part.values.end(), tensor.values.begin() + r * row, tensor.values.begin() + r * row + kept);
    out.push_back(std::move(part));
  }
  return out;
}

double loss_of_logits(const NamedNumbers& logits, const std::vector<int32_t>& targets) {
  const auto V = static_cast<size_t>(last_of(logits.shape));
  double total = 0.0, count = 0.0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    const double* row = logits.values.data() + i * V;
    const double most = *std::max_element(row, row + V);
    double sum = 0.0;
    for (size_t v = 0; v < V; ++v) sum += std::exp(row[v] - most);
    total += most + std::log(sum) - row[targets[i]];
    count += 1.0;
  }
  return total / std::max(count, 1.0);
}

}  // namespace lamina
