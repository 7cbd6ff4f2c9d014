#include "migrate/verify_verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"

namespace lamina {
namespace {

constexpr const char* kNotFinite = "not_finite";
constexpr double kInfinite = std::numeric_limits<double>::infinity();

template <typename T>
bool all_finite(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](T x) { return std::isfinite(x); });
}

// Over whatever has been found before: no other number means anything then.
bool decide(VerifyReport& report, const std::string& tensor, const std::string& whose) {
  if (report.cause_id == kNotFinite) return false;
  report.equal = false;
  report.first = TensorGap{tensor, kInfinite, 0.0, kInfinite};
  report.where = whose;
  report.cause_id = kNotFinite;
  report.cause = fmt::format("numbers that are not finite (NaN, infinity): {}, {}", tensor, whose);
  return false;
}

struct Table {
  const std::vector<float>* values = nullptr;  // (C, rows)
  int64_t rows = 0;
  float at(int64_t c, int64_t row) const { return (*values)[static_cast<size_t>(c * rows + row)]; }
};

Table table_of(const VerifyModel& model, const char* name) {
  const std::vector<ParameterSpec> specs = parameter_specs(model.config);
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const ParameterSpec& s) { return s.name == name; });
  LAMINA_CHECK(found != specs.end(), "no parameter {}", name);
  return {&model.weights[static_cast<size_t>(found - specs.begin())], found->shape.last()};
}

// "rows 64 to 127 of embedding.position differ"
std::string rows_text(const std::vector<int64_t>& rows, const char* name) {
  const int64_t span = rows.back() - rows.front() + 1, count = std::ssize(rows);
  if (count == 1) return fmt::format("row {} of {} differs", rows[0], name);
  const std::string which = fmt::format("{} to {}", rows.front(), rows.back());
  return span == count ? fmt::format("rows {} of {} differ", which, name)
                       : fmt::format("{} rows of {}, from {}, differ", count, name, which);
}

// The rows in `unread` of a table, whose first row nobody has to have read.
void check_rows(VerifyReport& report, const Table& a, const Table& b, int64_t columns, const char* name,
                const std::vector<int64_t>& unread, double tolerance) {
  NamedNumbers ours{name, {std::ssize(unread), columns}, {}}, theirs = ours;
  std::vector<int64_t> differ;
  for (const int64_t row : unread) {
    bool same = true;
    for (int64_t c = 0; c < columns; ++c) {
      ours.values.push_back(a.at(c, row));
      theirs.values.push_back(b.at(c, row));
      same = same && a.at(c, row) == b.at(c, row);
    }
    if (!same) differ.push_back(row);
  }
  if (differ.empty()) return;
  TensorGap gap = *gap_of({}, ours, theirs);
  gap.tolerance = tolerance;
  if (gap.fits()) return;
  report.equal = false;
  report.first = gap;
  report.where = "weights that no token of this comparison reads";
  report.cause_id = "untouched_rows";
  report.cause = fmt::format("{}; no token of this comparison reads {}", rows_text(differ, name),
                             differ.size() == 1 ? "it" : "them");
}

}  // namespace

bool check_finite(VerifyReport& report, const VerifyModel& model, const std::string& whose) {
  const std::vector<ParameterSpec> specs = parameter_specs(model.config);
  for (size_t i = 0; i < specs.size(); ++i)
    if (!all_finite(model.weights[i])) return decide(report, specs[i].name, fmt::format("the weights of {}", whose));
  return true;
}

bool check_finite(VerifyReport& report, const Numbers& numbers, const std::string& whose) {
  for (const NamedNumbers& tensor : numbers)
    if (!all_finite(tensor.values)) return decide(report, tensor.name, whose);
  return true;
}

bool check_finite(VerifyReport& report, const std::vector<TensorGap>& gaps, const std::string& whose) {
  for (const TensorGap& gap : gaps)
    if (!std::isfinite(gap.largest)) return decide(report, gap.tensor, whose);
  return true;
}

void check_untouched_rows(VerifyReport& report, const VerifyModel& a, const VerifyModel& b, const VerifyInputs& inputs,
                          double tolerance) {
  const std::set<int64_t> ids(inputs.tokens.begin(), inputs.tokens.end());
  const auto check = [&](const char* name, const auto& read) {
    const Table ours = table_of(a, name), theirs = table_of(b, name);
    std::vector<int64_t> unread;
    for (int64_t row = 0; row < std::min(ours.rows, theirs.rows); ++row)
      if (!read(row)) unread.push_back(row);
    if (report.equal && !unread.empty()) check_rows(report, ours, theirs, a.config.n_embd, name, unread, tolerance);
  };
  check("embedding.position", [&](int64_t row) { return row < inputs.seq; });
  const bool is_head = a.config.tie_word_embeddings && b.config.tie_word_embeddings;  // which reads every row
  if (!is_head) check("embedding.token", [&](int64_t row) { return ids.contains(row); });
}

void explain_fast(VerifyReport& report, bool same) {
  if (!same || report.equal || !report.cause_id.empty()) return;
  report.cause_id = "fp32";
  const std::string_view fast = std::string_view(report.where).substr(0, std::string_view("A in fp32").size());
  report.cause =
      fmt::format("the two agree in double; {} is further from its double result than its roundings explain", fast);
}

}  // namespace lamina
