#include "kernel_cases.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/peak.h"

namespace lamina::cli {
namespace {

constexpr double kWindow = 0.003;  // seconds in which the peak is looked at
constexpr int64_t kTokens = 1024, kWidth = 768, kHeads = 12, kVocab = 50257, kLayers = 12;
constexpr int64_t kInner = 4 * kWidth;
constexpr int32_t kIdRange = 50257;

double number(int64_t value) { return static_cast<double>(value); }

std::string size_text(const Shape& shape) { return shape.text(); }

void add_gemms(std::vector<KernelCase>& cases, int64_t K, int64_t N, int64_t per_step) {
  const Operand x{{kTokens, K}}, dy{{kTokens, N}}, weight{{K, N}, true}, bias{{N}},
      none{{1}, false, false, Fill::zero, true};
  const std::string shape = fmt::format("{}x{}x{}", kTokens, K, N);
  const double flops = 2.0 * number(kTokens) * number(K) * number(N);
  cases.push_back(
      {Op::linear, shape, {x, weight, N == kVocab ? none : bias, none}, {dy}, NoAttrs{}, flops, 0.0, per_step});
  cases.push_back({Op::linear_bwd_input, shape, {dy, weight, none}, {x}, NoAttrs{}, flops, 0.0, per_step});
  cases.push_back({Op::linear_bwd_weight, shape, {x, dy, none}, {weight}, NoAttrs{}, flops, 0.0, per_step});
}

double operand_bytes(const KernelCase& c) {
  double bytes = 0.0;
  for (const std::vector<Operand>* list : {&c.in, &c.out})
    for (const Operand& operand : *list)
      if (!operand.absent) bytes += 4.0 * number(operand.shape.elements());
  return bytes;
}

std::vector<KernelCase> attention_cases() {
  const Shape x{1, kTokens, kWidth};
  const AttentionAttrs attrs{.n_head = kHeads, .scale = 0.125, .stride = kTokens};
  const Operand any{x}, lse{{1, kHeads, kTokens}, false, false, Fill::large};
  const Operand begin{{1, kTokens}, false, true, Fill::zero}, none{{1}, false, false, Fill::zero, true};
  // Two products over the visible half of the scores forward; five backward.
  const double product = 2.0 * number(kTokens) * number(kTokens + 1) / 2.0 * number(kWidth);
  const std::string shape = fmt::format("1x{}x{} {} heads", kTokens, kWidth, kHeads);
  return {{Op::attention, shape, {any, any, any, begin, none, none}, {any, lse}, attrs, 2.0 * product, 0.0, 0},
          {Op::attention_bwd,
           shape,
           {any, any, any, any, any, lse, begin, none, none},
           {any, any, any},
           attrs,
           5.0 * product,
           0.0,
           0}};
}

std::vector<KernelCase> memory_cases() {
  const Operand x{{kTokens, kWidth}}, wide{{kTokens, kInner}}, logits{{kTokens, kVocab}};
  const Operand row{{kTokens}}, ones{{kTokens}, false, false, Fill::one}, large{{kTokens}, false, false, Fill::large};
  const Operand ids{{kTokens}, false, true, Fill::ids}, channel{{kWidth}}, none{{1}, false, false, Fill::zero, true};
  const Operand weight{{kWidth, kInner}, true}, moment{{kWidth, kInner}, true, false, Fill::one};
  const Operand hyper{{3}, false, false, Fill::one}, one{{1}, false, false, Fill::one};
  const Shape sums{(kWidth * kInner + kSquareSumBlock - 1) / kSquareSumBlock};
  return {{Op::layernorm, size_text(x.shape), {x, channel, channel}, {x, row, row}, LayerNormAttrs{}, 0, 0, 0},
          {Op::layernorm_bwd_input, size_text(x.shape), {x, x, channel, row, ones, none}, {x}, NoAttrs{}, 0, 0, 0},
          {Op::layernorm_bwd_params,
           size_text(x.shape),
           {x, x, row, ones, none, none},
           {channel, channel},
           NoAttrs{},
           0,
           0,
           0},
          {Op::gelu, size_text(wide.shape), {wide}, {wide}, GeluAttrs{}, 0, 0, 0},
          {Op::gelu_bwd, size_text(wide.shape), {wide, wide}, {wide}, GeluAttrs{}, 0, 0, 0},
          {Op::add, size_text(x.shape), {x, x}, {x}, NoAttrs{}, 0, 0, 0},
          {Op::linear_bwd_bias, size_text(wide.shape), {wide, none}, {Operand{{kInner}}}, NoAttrs{}, 0, 0, 0},
          {Op::cross_entropy, size_text(logits.shape), {logits, ids}, {row, row}, NoAttrs{}, 0, 0, 0},
          {Op::cross_entropy_bwd, size_text(logits.shape), {logits, ids, large, row}, {logits}, NoAttrs{}, 0, 0, 0},
          {Op::square_sum, size_text(weight.shape), {weight}, {Operand{sums}}, NoAttrs{}, 0, 0, 0},
          {Op::adamw,
           size_text(weight.shape),
           {weight, moment, moment, weight, hyper, one},
           {weight, moment, moment},
           AdamWAttrs{},
           0,
           0,
           0}};
}

void fill(void* data, int64_t elements, const Operand& operand) {
  Rng rng(static_cast<uint64_t>(elements));
  auto* floats = static_cast<float*>(data);
  auto* ints = static_cast<int32_t*>(data);
  for (int64_t i = 0; i < elements; ++i) {
    if (operand.ints)
      ints[i] = operand.fill == Fill::ids ? static_cast<int32_t>(rng.below(kIdRange)) : 0;
    else if (operand.fill == Fill::random)
      floats[i] = static_cast<float>(rng.uniform() - 0.5);
    else
      floats[i] = operand.fill == Fill::one ? 1.0f : operand.fill == Fill::large ? 12.0f : 0.0f;
  }
}

}  // namespace

std::vector<KernelCase> gemm_cases() {
  std::vector<KernelCase> cases;
  add_gemms(cases, kWidth, kWidth, 4 * kLayers);
  add_gemms(cases, kWidth, kInner, kLayers);
  add_gemms(cases, kInner, kWidth, kLayers);
  add_gemms(cases, kWidth, kVocab, 1);
  return cases;
}

std::vector<KernelCase> other_cases() {
  std::vector<KernelCase> cases = attention_cases();
  for (KernelCase& c : memory_cases()) {
    c.bytes = operand_bytes(c);
    cases.push_back(std::move(c));
  }
  return cases;
}

BoundCase::BoundCase(const KernelCase& wanted, Isa isa, int threads)
    : kernel_(find_kernel(kernel_table(isa), wanted.op)), isa_(isa), flops_(wanted.flops), attrs_(wanted.attrs) {
  LAMINA_CHECK(kernel_ != nullptr, "no kernel for {} on {}", op_name(wanted.op), isa_name(isa));
  bind(wanted.in, isa, in_);
  bind(wanted.out, isa, out_);
  args_.in = in_.data();
  args_.out = out_.data();
  args_.n_in = static_cast<int32_t>(in_.size());
  args_.n_out = static_cast<int32_t>(out_.size());
  args_.attrs = std::visit([](const auto& own) -> const void* { return &own; }, attrs_);
  tasks_ = kernel_->tasks(args_);
  scratch_stride_ = (kernel_->scratch(args_) + 4095) / 4096 * 4096;
  memory_.emplace_back(scratch_stride_ * threads);
}

void BoundCase::bind(const std::vector<Operand>& operands, Isa isa, std::vector<TensorArg>& args) {
  for (const Operand& operand : operands) {
    if (operand.absent) {
      args.push_back({});
      continue;
    }
    const Layout layout = operand.panel ? Layout::panel(kernel_table(isa).nr) : Layout::row_major();
    const int64_t elements = storage_elements(operand.shape, layout);
    memory_.emplace_back(elements * 4);
    fill(memory_.back().data(), elements, operand);
    args.push_back({memory_.back().data(), operand.shape, layout});
  }
}

double BoundCase::run_once(ThreadTeam& team) {
  struct Phase {
    BoundCase* bound;
    int64_t first;
  };
  const auto start = std::chrono::steady_clock::now();
  for_each_phase(*kernel_, args_, tasks_, [&](int64_t first, int64_t end) {
    Phase phase{this, first};
    team.run(
        end - first,
        [](void* pointer, int64_t task, int thread) noexcept {
          const auto [c, begin] = *static_cast<const Phase*>(pointer);
          c->kernel_->run(c->args_, begin + task, begin + task + 1,
                          c->memory_.back().data() + thread * c->scratch_stride_);
        },
        &phase);
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Timing BoundCase::time(ThreadTeam& team, double budget) {
  const FlushDenormals flush;
  run_once(team);
  Timing best{.seconds = 1e9};
  const auto look_at_peak = [&] {
    if (flops_ > 0.0) best.peak_gflops = std::max(best.peak_gflops, fma_peak_gflops(isa_, team, kWindow));
  };
  look_at_peak();
  double total = 0.0;
  for (int runs = 0; runs < 3 || total < budget; ++runs) {
    const double seconds = run_once(team);
    look_at_peak();
    best.seconds = std::min(best.seconds, seconds);
    total += seconds;
  }
  return best;
}

}  // namespace lamina::cli
