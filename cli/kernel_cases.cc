#include "kernel_cases.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"
#include "graph/schema.h"
#include "kernels/arithmetic.h"

namespace lamina::cli {
namespace {

constexpr double kWindow = 0.003;              // seconds in which the peak is looked at
constexpr int64_t kCold = int64_t{256} << 20;  // bytes between two uses of the same operands
constexpr int64_t kTokens = 1024, kWidth = 768, kHeads = 12, kVocab = 50257, kLayers = 12;
constexpr int64_t kInner = 4 * kWidth;

const Operand kNone{.shape = {1}, .absent = true};

std::string product_shape(int64_t K, int64_t N) { return fmt::format("{}x{}x{}", kTokens, K, N); }

std::vector<KernelCase> joined(std::initializer_list<std::vector<KernelCase>> lists) {
  std::vector<KernelCase> out;
  for (const std::vector<KernelCase>& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

void add_gemms(std::vector<KernelCase>& cases, int64_t K, int64_t N, int64_t per_step) {
  const Operand x{{kTokens, K}}, dy{{kTokens, N}}, weight{{K, N}, true}, bias{{N}};
  const std::string shape = product_shape(K, N);
  cases.push_back({Op::linear, shape, {x, weight, N == kVocab ? kNone : bias, kNone}, {dy}, NoAttrs{}, per_step});
  cases.push_back({Op::linear_bwd_input, shape, {dy, weight, kNone}, {x}, NoAttrs{}, per_step});
  cases.push_back({Op::linear_bwd_weight, shape, {x, dy, kNone}, {weight}, NoAttrs{}, per_step});
}

std::vector<KernelCase> attention_cases() {
  const AttentionAttrs attrs{.n_head = kHeads, .scale = 0.125, .stride = kTokens};
  const Operand any{{1, kTokens, kWidth}}, lse{{1, kHeads, kTokens}, false, Dtype::f32, Fill::large};
  const Operand begin{{1, kTokens}, false, Dtype::i32, Fill::zero};
  const Operand token{{1, 1, kWidth}}, past{{1}, false, Dtype::i32, Fill::last};
  const Operand count{{1}, false, Dtype::i32, Fill::one}, first{{1}, false, Dtype::i32, Fill::zero};
  const std::string shape = fmt::format("1x{}x{} {} heads", kTokens, kWidth, kHeads);
  return {{Op::attention, shape, {any, any, any, begin, kNone, kNone}, {any, lse}, attrs},
          {Op::attention_bwd, shape, {any, any, any, any, any, lse, begin, kNone, kNone}, {any, any, any}, attrs},
          {.op = Op::attention_cached,
           .shape = fmt::format("1 after {}", kTokens - 1),
           .in = {token, token, token, any, any, past, count, first},
           .out = {token, any, any},
           .attrs = attrs,
           .in_place = {{1, 3}, {2, 4}}}};
}

// Products with what the passes put into them, and the head, whose logits are never whole.
std::vector<KernelCase> cell_cases() {
  const Operand x{{1, kTokens, kWidth}}, inner{{1, kTokens, kInner}}, row{{1, kTokens}}, channel{{kWidth}};
  const Operand square{{kWidth, kWidth}, true}, fc{{kWidth, kInner}, true}, proj{{kInner, kWidth}, true};
  const Operand wide{{kInner}}, table{{kWidth, kVocab}, true};
  const Operand ids{{1, kTokens}, false, Dtype::i32, Fill::ids}, rng{{2}, false, Dtype::i64, Fill::one};
  const Operand sample{{1}, false, Dtype::i64, Fill::one};
  const Operand logits{{std::min(kTokens, kHeadRows), kVocab}};
  const std::string qkv = fmt::format("{}x{}x3*{}", kTokens, kWidth, kWidth);
  return {{Op::linear_qkv,
           qkv,
           {x, channel, channel, square, channel, square, channel, square, channel},
           {x, x, x, row, row},
           LayerNormAttrs{}},
          {Op::linear_gelu,
           product_shape(kWidth, kInner),
           {x, channel, channel, fc, wide},
           {inner, inner, row, row},
           LinearGeluAttrs{}},
          {.op = Op::linear_dropout,
           .shape = product_shape(kInner, kWidth),
           .in = {inner, proj, channel, x, rng, sample},
           .out = {x},
           .attrs = DropoutAttrs{0.1, 0, true},
           .in_place = {{0, 3}}},
          {Op::linear_bwd_gelu, product_shape(kInner, kWidth), {x, proj, inner}, {inner}, GeluAttrs{}},
          {Op::linear_bwd_params, product_shape(kWidth, kInner), {x, inner, kNone, kNone}, {fc, wide}},
          {Op::qkv_bwd_input, qkv, {x, x, x, square, square, square, kNone}, {x}},
          {Op::qkv_bwd_params,
           qkv,
           {x, x, x, x, kNone, kNone, kNone, kNone, kNone, kNone},
           {square, channel, square, channel, square, channel}},
          {Op::head_loss, product_shape(kWidth, kVocab), {x, table, ids}, {row, logits}},
          {Op::head, product_shape(kWidth, kVocab), {x, table, ids, row, kNone, kNone}, {row, x, table, logits}}};
}

std::vector<KernelCase> row_cases() {
  const Operand x{{kTokens, kWidth}}, row{{kTokens}}, channel{{kWidth}};
  const Operand ones{{kTokens}, false, Dtype::f32, Fill::one}, large{{kTokens}, false, Dtype::f32, Fill::large};
  const Operand ids{{kTokens}, false, Dtype::i32, Fill::ids}, logits{{kTokens, kVocab}};
  const Operand table{{kWidth, kVocab}, true}, rows{{1, kTokens, kWidth}},
      row_ids{{1, kTokens}, false, Dtype::i32, Fill::ids};
  const std::string narrow = x.shape.text(), wide = logits.shape.text();
  return {{Op::layernorm, narrow, {x, channel, channel}, {x, row, row}, LayerNormAttrs{}},
          {Op::layernorm_bwd_input, narrow, {x, x, channel, row, ones, kNone}, {x}},
          {Op::layernorm_bwd_params, narrow, {x, x, row, ones, kNone, kNone}, {channel, channel}},
          {Op::layernorm_bwd,
           narrow,
           {x, x, channel, row, ones, kNone, kNone, kNone},
           {x, channel, channel, Operand{{kTokens / kNormRows, 2 * kWidth}}}},
          {Op::cross_entropy, wide, {logits, ids}, {row, row}},
          {.op = Op::cross_entropy_bwd,
           .shape = wide,
           .in = {logits, ids, large, row},
           .out = {logits},
           .in_place = {{0, 0}}},
          {Op::embedding, narrow, {table, row_ids}, {rows}},
          {Op::embedding_sum, narrow, {table, row_ids, table, row_ids, kNone, kNone}, {rows}, DropoutAttrs{}},
          {.op = Op::embedding_bwd,
           .shape = narrow,
           .in = {rows, row_ids, table},
           .out = {table},
           .attrs = EmbeddingBwdAttrs{kVocab},
           .in_place = {{0, 2}}}};
}

std::vector<KernelCase> element_cases() {
  const Operand x{{1, kTokens, kWidth}}, wide{{kTokens, kInner}}, weight{{kWidth, kInner}, true};
  const Operand moment{{kWidth, kInner}, true, Dtype::f32, Fill::one}, hyper{{3}, false, Dtype::f32, Fill::one};
  const Operand one{{1}, false, Dtype::f32, Fill::one};
  const Operand rng{{2}, false, Dtype::i64, Fill::one}, sample{{1}, false, Dtype::i64, Fill::one};
  const Shape sums{(kWidth * kInner + kSquareSumBlock - 1) / kSquareSumBlock};
  const std::string narrow = Shape{kTokens, kWidth}.text(), inner = wide.shape.text(), matrix = weight.shape.text();
  const std::vector<std::pair<size_t, size_t>> first{{0, 0}};
  return {{Op::gelu, inner, {wide}, {wide}, GeluAttrs{}},
          {Op::gelu_bwd, inner, {wide, wide}, {wide}, GeluAttrs{}, 0, first},
          {Op::add, narrow, {x, x}, {x}, NoAttrs{}, 0, first},
          {Op::scale, narrow, {x}, {x}, ScaleAttrs{1.0}, 0, first},
          {Op::dropout, narrow, {x, rng, sample}, {x}, DropoutAttrs{0.1, 0, true}},
          {Op::linear_bwd_bias, inner, {wide, kNone}, {Operand{{kInner}}}},
          {Op::zero, matrix, {weight}, {weight}, NoAttrs{}, 0, first},
          {Op::square_sum, matrix, {weight}, {Operand{sums}}},
          {Op::adamw,
           matrix,
           {weight, moment, moment, weight, hyper, one},
           {weight, moment, moment},
           AdamWAttrs{},
           0,
           {{0, 0}, {1, 1}, {2, 2}}}};
}

// What is put into an operand that is not random.
int64_t whole_value(Fill fill, Rng& rng) {
  switch (fill) {
    case Fill::one: return 1;
    case Fill::large: return 12;
    case Fill::last: return kTokens - 1;
    case Fill::ids: return static_cast<int64_t>(rng.below(kVocab));
    case Fill::zero:
    case Fill::random: break;
  }
  return 0;
}

void put_real(std::byte* data, int64_t i, Dtype dtype, float value) {
  if (dtype == Dtype::f32)
    reinterpret_cast<float*>(data)[i] = value;
  else
    reinterpret_cast<uint16_t*>(data)[i] = to_16_bits(value, dtype);
}

void fill(std::byte* data, int64_t elements, const Operand& operand) {
  Rng rng(static_cast<uint64_t>(elements));
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t value = whole_value(operand.fill, rng);
    if (operand.dtype == Dtype::i32)
      reinterpret_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
    else if (operand.dtype == Dtype::i64)
      reinterpret_cast<int64_t*>(data)[i] = value;
    else
      put_real(data, i, operand.dtype,
               operand.fill == Fill::random ? static_cast<float>(rng.uniform() - 0.5) : static_cast<float>(value));
  }
}

Layout layout_of(const Operand& operand, Isa isa) {
  return operand.panel ? Layout::panel(kernel_table(isa).nr) : Layout::row_major();
}

int64_t bytes_of(const Operand& operand, Isa isa) {
  if (operand.absent) return 0;
  return storage_elements(operand.shape, layout_of(operand, isa)) * dtype_bytes(operand.dtype);
}

Work work_of(const KernelCase& wanted, Isa isa) {
  const auto operands = [&](const std::vector<Operand>& list) {
    std::vector<WorkOperand> out;
    for (const Operand& operand : list) {
      out.emplace_back();
      if (!operand.absent) out.back().type = {operand.shape, operand.dtype, layout_of(operand, isa)};
    }
    return out;
  };
  std::vector<WorkOperand> in = operands(wanted.in), out = operands(wanted.out);
  for (const auto& [o, i] : wanted.in_place) in[i].storage = out[o].storage = static_cast<int32_t>(o);
  Work work = lamina::work_of(wanted.op, wanted.attrs, in, out);
  const WorkKind kind = schema(wanted.op).work.kind;  // counts of elementwise work are fitted to time, not operations
  if (kind != WorkKind::gemm && kind != WorkKind::attention) work.operations = 0.0;
  return work;
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
  return joined({attention_cases(), cell_cases(), row_cases(), element_cases()});
}

std::vector<KernelCase> narrow_cases(Isa isa, Dtype precision) {
  const Arithmetic arithmetic = choose_arithmetic(isa, precision, false).arithmetic;
  std::vector<KernelCase> cases = joined({gemm_cases(), attention_cases(), cell_cases()});
  for (KernelCase& wanted : cases) {
    wanted.precision = precision;
    wanted.arithmetic = arithmetic;
    const OpSchema& rule = schema(wanted.op);
    for (size_t i = 0; i < wanted.in.size(); ++i)  // weights stay fp32
      if (((rule.operands >> i) & 1u) != 0 && !wanted.in[i].panel) wanted.in[i].dtype = precision;
  }
  return cases;
}

void Roof::raise(const Roof& other) {
  gflops = std::max(gflops, other.gflops);
  read_gb_s = std::max(read_gb_s, other.read_gb_s);
  in_place_gb_s = std::max(in_place_gb_s, other.in_place_gb_s);
}

double Roof::memory_seconds(const Work& work) const {
  const double paired = std::min(work.read, work.written);
  return ((work.written + paired) / in_place_gb_s + (work.read - paired) / read_gb_s) * 1e-9;
}

BoundCase::BoundCase(const KernelCase& wanted, Isa isa, int threads, const Roof& roof)
    : kernel_(find_kernel(isa, wanted.arithmetic, wanted.op)),
      isa_(isa),
      attrs_(wanted.attrs),
      precision_(wanted.precision),
      work_(work_of(wanted, isa)) {
  LAMINA_CHECK(kernel_ != nullptr, "no kernel for {} on {}", op_name(wanted.op), isa_name(isa));
  memory_bound_ = roof.memory_bound(work_);
  int64_t bytes = 0;
  for (const std::vector<Operand>* list : {&wanted.in, &wanted.out})
    for (const Operand& operand : *list) bytes += bytes_of(operand, isa);
  copies_.resize(memory_bound_ ? static_cast<size_t>((kCold + bytes - 1) / bytes) : 1);
  bind(wanted);
  tasks_ = kernel_->tasks(copies_[0].args);
  scratch_stride_ = (kernel_->scratch(copies_[0].args) + 4095) / 4096 * 4096;
  scratch_ = Memory(scratch_stride_ * threads);
}

void BoundCase::bind(const KernelCase& wanted) {
  const auto tensor = [&](const Operand& operand, const TensorArg* same) {
    if (operand.absent) return TensorArg{};
    const int64_t bytes = bytes_of(operand, isa_);
    memory_.emplace_back(bytes);
    std::byte* data = memory_.back().data();
    if (same != nullptr)
      std::memcpy(data, same->data, static_cast<size_t>(bytes));
    else
      fill(data, bytes / dtype_bytes(operand.dtype), operand);
    return TensorArg{data, operand.shape, layout_of(operand, isa_), operand.dtype};
  };
  const Copy& first = copies_[0];
  for (Copy& copy : copies_) {
    const bool again = &copy != &first;
    for (size_t i = 0; i < wanted.in.size(); ++i)
      copy.in.push_back(tensor(wanted.in[i], again ? &first.in[i] : nullptr));
    for (size_t o = 0; o < wanted.out.size(); ++o) {
      const auto on = std::find_if(wanted.in_place.begin(), wanted.in_place.end(),
                                   [o](const auto& pair) { return pair.first == o; });
      copy.out.push_back(on != wanted.in_place.end() ? copy.in[on->second]
                                                     : tensor(wanted.out[o], again ? &first.out[o] : nullptr));
    }
    copy.args = {copy.in.data(),
                 copy.out.data(),
                 static_cast<int32_t>(copy.in.size()),
                 static_cast<int32_t>(copy.out.size()),
                 std::visit([](const auto& own) -> const void* { return &own; }, attrs_),
                 precision_};
  }
}

double BoundCase::run_once(ThreadTeam& team) {
  struct Phase {
    const BoundCase* bound;
    const Args* args;
    int64_t first;
  };
  const Args& args = copies_[next_].args;
  next_ = (next_ + 1) % copies_.size();
  const auto start = std::chrono::steady_clock::now();
  for_each_phase(*kernel_, args, tasks_, [&](int64_t first, int64_t end) {
    Phase phase{this, &args, first};
    team.run(
        end - first,
        [](void* pointer, int64_t task, int thread) noexcept {
          const Phase& own = *static_cast<const Phase*>(pointer);
          own.bound->kernel_->run(*own.args, own.first + task, own.first + task + 1,
                                  own.bound->scratch_.data() + thread * own.bound->scratch_stride_);
        },
        &phase);
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void BoundCase::look(ThreadTeam& team, MemoryProbe& probe, Roof& roof) const {
  if (!memory_bound_) {
    roof.raise({.gflops = fma_peak_gflops(isa_, team, kWindow)});
    return;
  }
  roof.raise({.in_place_gb_s = probe.in_place_gb_s(0.0)});
  if (work_.read > work_.written) roof.raise({.read_gb_s = probe.read_gb_s(0.0)});
}

Timing BoundCase::time(ThreadTeam& team, MemoryProbe& probe, double budget) {
  const FlushDenormals flush;
  for (size_t i = 0; i < copies_.size(); ++i) run_once(team);
  Timing best{.seconds = 1e9, .roof = {}};
  look(team, probe, best.roof);
  double total = 0.0;
  for (int runs = 0; runs < 3 || total < budget; ++runs) {
    const double seconds = run_once(team);
    look(team, probe, best.roof);
    best.seconds = std::min(best.seconds, seconds);
    total += seconds;
  }
  return best;
}

}  // namespace lamina::cli
