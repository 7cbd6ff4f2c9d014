#include "train/step.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lamina {
namespace {

constexpr std::string_view kSquareSum = ".square_sum";

// base^exponent by multiplications only: the same bits with every mathematical library.
double power(double base, int64_t exponent) {
  double out = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if ((exponent & 1) != 0) out *= base;
  return out;
}

ProgramId required(const Session& session, const char* name) {
  const ProgramId program = session.program(name);
  if (program == ProgramId::none) throw_error(ErrorCode::invalid, "no such program in the plan: {}", name);
  return program;
}

template <typename T>
std::span<T> part(std::span<T> all, int64_t begin, int64_t count) {
  return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

}  // namespace

int64_t count_targets(std::span<const Row> rows) {
  int64_t count = 0;
  for (const Row& row : rows)
    for (int32_t target : row.targets) count += target >= 0 ? 1 : 0;
  return count;
}

BatchInputs::BatchInputs(Session& session) {
  const Shape shape = session.tensor("tokens").shape;
  rows_ = shape[0];
  seq_ = shape[1];
  vocab_ = session.tensor("embedding.token").shape[1];
  most_positions_ = session.tensor("embedding.position").shape[1];
  tokens_ = session.ints("tokens");
  positions_ = session.ints("positions");
  key_begin_ = session.ints("key_begin");
  targets_ = session.ints("targets");
  target_weight_ = session.floats("target_weight");
  loss_ = session.floats("loss");
  if (session.has_tensor("sample")) {
    sample_ = session.longs("sample");
  } else {
    own_longs_.resize(static_cast<size_t>(rows_));
    sample_ = own_longs_;
  }
}

void BatchInputs::check_ids(std::span<const int32_t> ids, int64_t row, const char* what, bool may_be_ignored) const {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= vocab_ || (ids[i] < 0 && !may_be_ignored))
      throw_error(ErrorCode::invalid, "id outside the vocabulary: {}, row {}, position {}, expected 0 to {}, got {}",
                  what, row, i, vocab_ - 1, ids[i]);
}

void BatchInputs::check(std::span<const Row> rows, int64_t most_rows) const {
  if (std::ssize(rows) > most_rows)
    throw_error(ErrorCode::invalid, "too many rows in a batch: expected at most {}, got {}", most_rows, rows.size());
  for (size_t r = 0; r < rows.size(); ++r) check_row(rows[r], static_cast<int64_t>(r));
}

void BatchInputs::check_row(const Row& row, int64_t r) const {
  const size_t count = row.tokens.size();
  if (count != row.targets.size())
    throw_error(ErrorCode::invalid, "row {} of a batch: {} tokens, but {} targets", r, count, row.targets.size());
  if (row.start < 0 || row.start > seq_ || std::ssize(row.tokens) > seq_ - row.start)
    throw_error(ErrorCode::invalid, "row {} of a batch does not fit: {} tokens from place {} on, the length is {}", r,
                count, row.start, seq_);
  for (size_t i = 0; i < row.borders.size(); ++i) {
    const int32_t least = i == 0 ? 0 : row.borders[i - 1];
    if (row.borders[i] <= least || row.borders[i] >= std::ssize(row.tokens))
      throw_error(ErrorCode::invalid, "row {} of a batch: border {} of documents: expected {} to {}, got {}", r, i,
                  least + 1, std::ssize(row.tokens) - 1, row.borders[i]);
  }
  check_ids(row.tokens, r, "tokens", false);
  check_ids(row.targets, r, "targets", true);
  const std::span<const int32_t> key_begin = row.key_begin, positions = row.positions;
  LAMINA_CHECK(key_begin.empty() || key_begin.size() == count, "{} of {} in row {}", key_begin.size(), count, r);
  LAMINA_CHECK(positions.empty() || positions.size() == count, "{} of {} in row {}", positions.size(), count, r);
  for (size_t i = 0; i < key_begin.size(); ++i)
    LAMINA_CHECK(key_begin[i] >= 0 && key_begin[i] <= std::ssize(row.tokens), "row {}: key {}", r, key_begin[i]);
  for (size_t i = 0; i < positions.size(); ++i) {
    const bool padding = !key_begin.empty() && key_begin[i] > static_cast<int32_t>(i);
    if (!padding && (positions[i] < 0 || positions[i] >= most_positions_))
      throw_error(ErrorCode::invalid, "position outside the context: row {}, place {}, expected 0 to {}, got {}", r, i,
                  most_positions_ - 1, positions[i]);
  }
}

// A place without a token: sees no key, since its first visible one lies behind it.
void BatchInputs::empty(int64_t r, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const size_t at = static_cast<size_t>(r * seq_ + t);
    tokens_[at] = 0;
    positions_[at] = 0;
    key_begin_[at] = static_cast<int32_t>(t + 1);
    targets_[at] = kIgnored;
  }
}

void BatchInputs::see_from(int64_t r, int64_t begin, int64_t end) {
  const std::span<int32_t> document = part(key_begin_, r * seq_ + begin, end - begin);
  std::fill(document.begin(), document.end(), static_cast<int32_t>(begin));
}

void BatchInputs::set_positions(int64_t r, const Row& row) {
  auto begin = static_cast<int32_t>(row.start);  // of the text
  for (size_t i = 0; i < row.tokens.size(); ++i) {
    const auto place = static_cast<int32_t>(row.start) + static_cast<int32_t>(i);
    const size_t at = static_cast<size_t>(r * seq_ + place);
    if (key_begin_[at] == place) begin = place;
    const bool padding = key_begin_[at] > place;
    positions_[at] = padding ? 0 : row.positions.empty() ? place - begin : row.positions[i];
  }
}

void BatchInputs::fill_row(int64_t r, const Row& row) {
  const int64_t count = std::ssize(row.tokens);
  const int64_t first = r * seq_ + row.start;
  empty(r, 0, row.start);
  std::copy(row.tokens.begin(), row.tokens.end(), part(tokens_, first, count).begin());
  std::copy(row.targets.begin(), row.targets.end(), part(targets_, first, count).begin());
  int64_t begin = row.start;
  for (const int32_t border : row.borders) {
    see_from(r, begin, row.start + border);
    begin = row.start + border;
  }
  see_from(r, begin, row.start + count);
  for (size_t i = 0; i < row.key_begin.size(); ++i) {
    int32_t& own = key_begin_[static_cast<size_t>(first) + i];
    own = std::max(own, static_cast<int32_t>(row.start) + row.key_begin[i]);
  }
  set_positions(r, row);
  empty(r, row.start + count, seq_);
}

void BatchInputs::fill(std::span<const Row> rows, int64_t first_sample) {
  for (int64_t r = 0; r < rows_; ++r) {
    sample_[static_cast<size_t>(r)] = first_sample + r;
    if (r < std::ssize(rows))
      fill_row(r, rows[static_cast<size_t>(r)]);
    else
      empty(r, 0, seq_);
  }
}

TrainStep::TrainStep(Session& session, const TrainStepOptions& options)
    : session_(session), options_(options), inputs_(session) {
  gradient_program_ = session.program("step");
  if (gradient_program_ == ProgramId::none) {
    gradient_program_ = required(session, "micro_step");
    update_program_ = required(session, "update");
  } else if (options.accumulate != 1) {
    throw_error(ErrorCode::invalid, "the plan was compiled for 1 micro-batch a step, got {}", options.accumulate);
  }
  if (session.has_tensor("rng")) {
    rng_ = session.longs("rng");
  } else {
    own_rng_.resize(2);
    rng_ = own_rng_;
  }
  rng_[0] = static_cast<int64_t>(options.seed);
  loss_scale_ = session.floats("loss_scale");
  loss_scale_[0] = 1.0f;
  if (options.dynamic_loss_scale) scale_ = LossScale{};
  hyper_ = session.floats("hyper");
  grad_norm_ = session.floats("grad_norm");
  for (const PlanTensor& tensor : session.plan().tensors)
    if (tensor.region == Region::io && tensor.name.ends_with(kSquareSum))
      square_sums_.emplace_back(tensor.name.substr(0, tensor.name.size() - kSquareSum.size()),
                                session.floats(tensor.name));
}

std::string_view TrainStep::bad_gradient() const {
  const auto bad = std::find_if(square_sums_.rbegin(), square_sums_.rend(), [](const auto& entry) {
    return std::any_of(entry.second.begin(), entry.second.end(), [](float sum) { return !std::isfinite(sum); });
  });
  return bad == square_sums_.rend() ? std::string_view() : std::string_view(bad->first);
}

void TrainStep::set_hyper(double lr) {
  const int64_t t = updates_ + 1;
  hyper_[0] = static_cast<float>(lr);
  hyper_[1] = static_cast<float>(lr / (1.0 - power(options_.beta1, t)));
  hyper_[2] = static_cast<float>(std::sqrt(1.0 - power(options_.beta2, t)));
}

StepResult TrainStep::backward(std::span<const Row> rows, int64_t step) {
  inputs_.check(rows, capacity());
  StepResult result{.tokens = count_targets(rows), .loss_scale = scale_ ? scale_->scale : 1.0};
  loss_scale_[0] = static_cast<float>(result.loss_scale);
  if (result.tokens == 0) return result;
  inputs_.set_target_weight(static_cast<float>(1.0 / static_cast<double>(result.tokens)));
  rng_[1] = step;
  const int64_t first_sample = (step - 1) * capacity();
  const int64_t count = std::ssize(rows);
  for (int64_t first = 0; first < count; first += inputs_.rows()) {
    inputs_.fill(part(rows, first, std::min(inputs_.rows(), count - first)), first_sample + first);
    session_.run(gradient_program_);
    result.loss += inputs_.loss();
  }
  return result;
}

void TrainStep::update(double lr, StepResult& result) {
  set_hyper(lr);
  inputs_.set_loss(static_cast<float>(result.loss));
  session_.run(update_program_);
  finish(result);
}

void TrainStep::finish(StepResult& result) {
  result.grad_norm = static_cast<double>(grad_norm_[0]) / result.loss_scale;
  const bool finite_loss = std::isfinite(inputs_.loss());
  result.finite = finite_loss && std::isfinite(grad_norm_[0]);  // what clip_factor saw
  result.overflow = finite_loss && !result.finite;
  if (result.finite) ++updates_;
  if (scale_ && finite_loss) scale_ = next_loss_scale(*scale_, result.overflow);  // the loss itself is not scaled
}

StepResult TrainStep::step(std::span<const Row> rows, int64_t step, double lr) {
  const bool updates_apart = update_program_ != ProgramId::none;
  if (!updates_apart) set_hyper(lr);
  StepResult result = backward(rows, step);
  if (result.tokens == 0) return result;
  if (updates_apart)
    update(lr, result);
  else
    finish(result);
  return result;
}

void check_skips(int64_t in_a_row, int64_t most, int64_t step) {
  if (in_a_row < most) return;
  throw Error(ErrorCode::invalid,
              fmt::format("training came apart: {} steps in a row were not finite, the last one {} (--max-skips {})",
                          in_a_row, step, most),
              "a smaller --lr, a --warmup or --clip 1 may help");
}

void refuse_applied_step(const AppliedStep& step) {
  throw Error(
      ErrorCode::invalid,
      fmt::format("step {} is not finite, and --update-in-backward has applied it: {} (loss {}, gradient norm "
                  "{}), expected finite numbers; {}",
                  step.step, step.what, step.loss, step.grad_norm, step.go_on),
      "--allow-changes without --update-in-backward skips such a step; a smaller --lr or a --warmup may avoid it");
}

EvalStep::EvalStep(Session& session) : session_(session), inputs_(session), program_(required(session, "eval")) {}

void EvalStep::add(std::span<const Row> rows, EvalResult& total) {
  inputs_.check(rows, std::ssize(rows));
  const int64_t count = std::ssize(rows);
  for (int64_t first = 0; first < count; first += inputs_.rows()) {
    const std::span<const Row> batch = part(rows, first, std::min(inputs_.rows(), count - first));
    const int64_t tokens = count_targets(batch);
    if (tokens == 0) continue;
    inputs_.set_target_weight(static_cast<float>(1.0 / static_cast<double>(tokens)));
    inputs_.fill(batch, 0);
    session_.run(program_);
    total.loss_sum += static_cast<double>(inputs_.loss()) * static_cast<double>(tokens);
    total.tokens += tokens;
  }
}

}  // namespace lamina
