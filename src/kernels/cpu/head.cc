// head and head_loss: x W, its cross entropy and, for head, the gradients of x and W, kHeadRows rows at a time, so that
// no more logits than these ever exist. Each chunk of rows is three phases (two for head_loss), and each phase is the
// tasks of kernels that exist on their own (f16chunk adds fewer products up in fp16 here: the sums are long):
//
//   linear -> logits  |  loss, and dlogits in the place of the logits, by rows  |  linear_bwd_input and _weight
//
// dW takes the chunks in rising order. All results are those of the separate ops, bit by bit. With 16-bit operands the
// logits are still fp32; dlogits are rounded where they are packed.
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/narrow.h"

namespace lamina::LAMINA_ISA_NAMESPACE {

extern const Kernel LAMINA_PRODUCT(head_logits), LAMINA_PRODUCT(head_input), LAMINA_PRODUCT(head_weight);

namespace {

constexpr int64_t kLossRows = 4;              // of a task
static_assert(kHeadRows % kTokenChunk == 0);  // or dW would be another sum than that of all rows at once

// One kernel of a chunk with its arguments.
struct Part {
  TensorArg in[3];
  TensorArg out[1];
  Dtype precision;
  Args args(int32_t n_in) const { return {in, out, n_in, 1, nullptr, precision}; }
};

// Some rows of a tensor whose leading dimensions are rows.
LAMINA_INLINE TensorArg rows_of(const TensorArg& t, int64_t first, int64_t rows) {
  TensorArg part = t;
  const int64_t width = last_dim(t);
  part.data = t.data == nullptr ? nullptr : numbers(t).from(first * width).data;
  part.shape.rank = 2;
  reinterpret_cast<int64_t*>(&part.shape.dims)[0] = rows;
  reinterpret_cast<int64_t*>(&part.shape.dims)[1] = width;
  return part;
}

// A chunk of rows and how many tasks its phases have.
struct Chunk {
  int64_t first, rows;
  Part logits, input, weight;
  int64_t logits_tasks, loss_tasks, input_tasks, weight_tasks;
  LAMINA_MEMBER int64_t tasks() const { return logits_tasks + loss_tasks + input_tasks + weight_tasks; }
};

Chunk chunk_at(const Args& args, int64_t first) {
  const bool train = args.n_out == 4;
  Chunk c{};
  c.first = first;
  c.rows = smaller(kHeadRows, row_count(args.in[0]) - first);
  const TensorArg x = rows_of(args.in[0], first, c.rows);
  const TensorArg logits = rows_of(args.out[train ? 3 : 1], 0, c.rows);
  c.logits = {{x, args.in[1], {}}, {logits}, args.precision};
  c.logits_tasks = LAMINA_PRODUCT(head_logits).tasks(c.logits.args(2));
  c.loss_tasks = ceil_div(c.rows, kLossRows);
  if (!train) return c;
  const TensorArg none{};
  c.input = {{logits, args.in[1], args.n_in > 4 ? rows_of(args.in[4], first, c.rows) : none},
             {rows_of(args.out[1], first, c.rows)},
             args.precision};
  c.weight = {{x, logits, first > 0 ? args.out[2] : args.n_in > 5 ? args.in[5] : none}, {args.out[2]}, args.precision};
  c.input_tasks = LAMINA_PRODUCT(head_input).tasks(c.input.args(3));
  c.weight_tasks = LAMINA_PRODUCT(head_weight).tasks(c.weight.args(3));
  return c;
}

LAMINA_FLATTEN void loss_rows(const Args& args, const Chunk& c, int64_t task) {
  const int64_t V = last_dim(args.in[1]);
  for (int64_t i = task * kLossRows; i < smaller(c.rows, (task + 1) * kLossRows); ++i) {
    float* row = static_cast<float*>(c.logits.out[0].data) + i * V;
    const int32_t target = input_i32(args, 2)[c.first + i];
    const FloatPair got = row_loss(row, target, V);
    output(args, 0)[c.first + i] = got.a;
    if (args.n_out == 4) row_gradient(row, target, got.b, input(args, 3)[c.first + i], row, V);
  }
}

void run_in_chunk(const Args& args, const Chunk& c, int64_t task, std::byte* scratch) noexcept {
  if (task < c.logits_tasks) return LAMINA_PRODUCT(head_logits).run(c.logits.args(2), task, task + 1, scratch);
  task -= c.logits_tasks;
  if (task < c.loss_tasks) return loss_rows(args, c, task);
  task -= c.loss_tasks;
  if (task < c.input_tasks) return LAMINA_PRODUCT(head_input).run(c.input.args(3), task, task + 1, scratch);
  task -= c.input_tasks;
  LAMINA_PRODUCT(head_weight).run(c.weight.args(3), task, task + 1, scratch);
}

// All chunks but the last have the same number of tasks.
int64_t whole_chunk_tasks(const Args& args) { return larger(1, chunk_at(args, 0).tasks()); }
int64_t last_chunk(const Args& args) { return (row_count(args.in[0]) - 1) / kHeadRows; }

void run(const Args& args, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const int64_t per_chunk = whole_chunk_tasks(args);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t chunk = smaller(task / per_chunk, last_chunk(args));
    run_in_chunk(args, chunk_at(args, chunk * kHeadRows), task - chunk * per_chunk, scratch);
  }
}

int64_t tasks(const Args& args) noexcept {
  if (row_count(args.in[0]) == 0) return 0;
  const int64_t last = last_chunk(args);
  return last * whole_chunk_tasks(args) + chunk_at(args, last * kHeadRows).tasks();
}

int64_t phase_end(const Args& args, int64_t first) noexcept {
  const int64_t per_chunk = whole_chunk_tasks(args);
  const int64_t chunk = smaller(first / per_chunk, last_chunk(args));
  const Chunk c = chunk_at(args, chunk * kHeadRows);
  const int64_t ends[] = {c.logits_tasks, c.logits_tasks + c.loss_tasks, c.tasks()};
  for (int64_t end : ends)
    if (chunk * per_chunk + end > first) return chunk * per_chunk + end;
  return first;
}

int64_t scratch_bytes(const Args& args) noexcept {
  const Chunk c = chunk_at(args, 0);
  int64_t bytes = LAMINA_PRODUCT(head_logits).scratch(c.logits.args(2));
  if (args.n_out < 4) return bytes;
  bytes = larger(bytes, LAMINA_PRODUCT(head_input).scratch(c.input.args(3)));
  return larger(bytes, LAMINA_PRODUCT(head_weight).scratch(c.weight.args(3)));
}

}  // namespace

#define LAMINA_HEAD(op)                                                                                                \
  extern constinit const Kernel LAMINA_PRODUCT(op) = {                                                                 \
      Op::op,   LAMINA_PRODUCT_ID(op, "kc768.kc384.kc256.v2048" LAMINA_HALF_CHUNK("ch64")), run, tasks, scratch_bytes, \
      phase_end}
LAMINA_HEAD(head_loss);
LAMINA_HEAD(head);

}  // namespace lamina::LAMINA_ISA_NAMESPACE
