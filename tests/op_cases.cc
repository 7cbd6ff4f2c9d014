// The table itself. Sizes go around the widths of vectors (8 and 16 lanes) and of panels (16 and 48 columns): N-1, N,
// N+1 and 2N+3, besides 1, odd ones and one or two that span several tasks.
#include "op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <complex>
#include <iterator>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "graph/schema.h"
#include "kernels/ref/math.h"

namespace lamina::testing {
namespace {

using Kind = Operand::Kind;

Operand real(Shape shape, double low = -1.0, double high = 1.0) { return {Kind::real, shape, low, high, false}; }
Operand ints(Shape shape, int64_t low, int64_t high) {
  return {Kind::i32, shape, static_cast<double>(low), static_cast<double>(high), false};
}
Operand keys(Shape shape) { return {Kind::i64, shape, 0.0, 1e15, false}; }
Operand panel(Operand matrix, bool yes = true) {
  matrix.panel = yes;
  return matrix;
}
Operand absent() { return {}; }
Operand maybe(bool present, Operand operand) { return present ? operand : absent(); }

// The same operand in 16 bits.
Operand stored(Operand operand, Dtype dtype) {
  operand.dtype = dtype;
  return operand;
}

constexpr int64_t kLengths[] = {1, 7, 8, 9, 15, 16, 17, 19, 35, 67, 2 * 32768 + 3};
constexpr int64_t kWidths[] = {1, 5, 7, 8, 9, 15, 16, 17, 19, 35, 67, 131, 771};

void add_elementwise(std::vector<OpCase>& cases) {
  for (int64_t n : kLengths) {
    const Operand x = real({n}, -3.0, 3.0);
    const std::vector<std::pair<int, int>> on_either{{0, 0}, {0, 1}};
    cases.push_back({Op::add, fmt::format("{}", n), NoAttrs{}, {x, x}, {x}, 1, 0, on_either});
    cases.push_back({Op::mul, fmt::format("{}", n), NoAttrs{}, {x, x}, {x}, 1, 0, on_either});
    cases.push_back({Op::scale, fmt::format("{}", n), ScaleAttrs{0.3}, {x}, {x}, 1, 1, {{0, 0}}});
    cases.push_back({Op::zero, fmt::format("{}", n), NoAttrs{}, {x}, {x}, 1, 0, {{0, 0}}});
    cases.push_back({Op::expand, fmt::format("{}", n), ExpandAttrs{{n}}, {real({1}), real({1})}, {x}});
    for (bool tanh : {false, true}) {
      const std::string form = fmt::format("{} {}", tanh ? "tanh" : "exact", n);
      for (double range : {1.0, 6.0, 40.0}) {
        const Operand wide = real({n}, -range, range);
        const std::string name = fmt::format("{} in ±{}", form, range);
        cases.push_back({Op::gelu, name, GeluAttrs{tanh}, {wide}, {wide}, 1, 2, {{0, 0}}});
        cases.push_back({Op::gelu_bwd, name, GeluAttrs{tanh}, {x, wide}, {x}, 1, 4, on_either});
      }
    }
  }
  const Operand w = panel(real({5, 97}));
  for (Dtype dtype : {Dtype::bf16, Dtype::f16})
    for (int64_t n : kLengths)
      for (double range : {1e-6, 2.0, 7e4}) {
        const Operand x = real({n}, -range, range);
        cases.push_back({Op::cast,
                         fmt::format("{} in ±{} to {}", n, range, dtype_name(dtype)),
                         NoAttrs{},
                         {x},
                         {stored(x, dtype)},
                         0,
                         0,
                         {},
                         false,
                         nullptr,
                         dtype});
      }
  cases.push_back({Op::add, "panel", NoAttrs{}, {w, w}, {w}, 1, 0, {{0, 0}, {0, 1}}});
  cases.push_back({Op::zero, "panel", NoAttrs{}, {w}, {w}, 1, 0, {{0, 0}}});
}

void add_dropout(std::vector<OpCase>& cases) {
  const Shape shapes[] = {{1, 1, 1}, {2, 13, 5}, {3, 7, 33}, {1, 1, 17}, {3, 13, 1705}};
  const DropoutAttrs settings[] = {{0.1, 3, true}, {0.5, 0, true}, {0.0, 1, true}, {1.0, 1, true}, {0.9, 2, false}};
  for (const Shape& shape : shapes)
    for (const DropoutAttrs& a : settings) {
      const std::string name = fmt::format("{} p {}{}", shape.text(), a.p, a.training ? "" : " off");
      cases.push_back(
          {Op::dropout, name, a, {real(shape), keys({2}), keys({shape[0]})}, {real(shape)}, 1, 1, {{0, 0}}});
    }
}

void complete_layernorm(const Inputs& in, size_t x, Inputs& out, size_t mean, size_t rstd) {
  const Shape row{in[x].shape.last()};
  ref::RefTensor<double> ones{row, std::vector<double>(static_cast<size_t>(row[0]), 1.0), {}};
  ref::RefTensor<double> y = in[x];
  const LayerNormAttrs attrs;
  ref::run(Op::layernorm, ref::RefCall<double>{{&in[x], &ones, &ones}, {&y, &out[mean], &out[rstd]}, &attrs});
}

void complete_bwd_input(Inputs& in, const Attrs&) { complete_layernorm(in, 1, in, 3, 4); }
void complete_bwd_params(Inputs& in, const Attrs&) { complete_layernorm(in, 1, in, 2, 3); }

void add_layernorm(std::vector<OpCase>& cases) {
  for (int64_t C : kWidths)
    for (int64_t rows : {int64_t{1}, int64_t{13}, int64_t{131}}) {
      const double K = static_cast<double>(C);
      const std::string name = fmt::format("{} rows of {}", rows, C);
      const Shape shape{rows, C};
      const Operand x = real(shape, -2.0, 3.0);
      const Operand dy = real(shape);
      const Operand row = real({rows}, 0.5, 1.0);
      const Operand channel = real({C});
      cases.push_back({Op::layernorm, name, LayerNormAttrs{}, {x, channel, channel}, {x, row, row}, K, 4, {{0, 0}}});
      for (bool acc : {false, true}) {
        const std::string with = acc ? name + " acc" : name;
        std::vector<std::pair<int, int>> on_acc{{0, 0}, {0, 1}};
        if (acc) on_acc.push_back({0, 5});
        cases.push_back({Op::layernorm_bwd_input,
                         with,
                         NoAttrs{},
                         {dy, x, channel, row, row, maybe(acc, dy)},
                         {dy},
                         K,
                         4,
                         on_acc,
                         false,
                         complete_bwd_input});
        on_acc = acc ? std::vector<std::pair<int, int>>{{0, 4}, {1, 5}} : std::vector<std::pair<int, int>>{};
        cases.push_back({Op::layernorm_bwd_params,
                         with,
                         NoAttrs{},
                         {dy, x, row, row, maybe(acc, channel), maybe(acc, channel)},
                         {channel, channel},
                         static_cast<double>(rows),
                         4,
                         on_acc,
                         false,
                         complete_bwd_params});
        Operand sums = real({(rows + kNormRows - 1) / kNormRows, 2 * C});
        sums.workspace = true;
        on_acc = acc ? std::vector<std::pair<int, int>>{{0, 5}, {1, 6}, {2, 7}} : std::vector<std::pair<int, int>>{};
        cases.push_back({Op::layernorm_bwd,
                         with,
                         NoAttrs{},
                         {dy, x, channel, row, row, maybe(acc, dy), maybe(acc, channel), maybe(acc, channel)},
                         {dy, channel, channel, sums},
                         std::max(K, static_cast<double>(rows)),
                         4,
                         on_acc,
                         false,
                         complete_bwd_input});
      }
    }
}

void add_embedding(std::vector<OpCase>& cases) {
  const int64_t V = 97;
  for (bool in_panels : {false, true})
    for (int64_t C : {1, 5, 15, 16, 17, 35, 67}) {
      const Operand table = panel(real({C, V}), in_panels);
      const Operand dy = real({3, 13, C});
      const Operand ids = ints({3, 13}, 0, V - 1);
      const std::string name = fmt::format("{} channels{}", C, in_panels ? " panel" : "");
      cases.push_back({Op::embedding, name, NoAttrs{}, {table, ids}, {dy}});
      for (bool acc : {false, true})
        cases.push_back({Op::embedding_bwd,
                         acc ? name + " acc" : name,
                         EmbeddingBwdAttrs{V},
                         {dy, ids, maybe(acc, table)},
                         {table},
                         39,
                         0,
                         acc ? std::vector<std::pair<int, int>>{{0, 2}} : std::vector<std::pair<int, int>>{}});
    }
  // One id only: all tokens add to one column.
  cases.push_back({Op::embedding_bwd,
                   "one id",
                   EmbeddingBwdAttrs{3},
                   {real({2, 13, 9}), ints({2, 13}, 2, 2), absent()},
                   {real({9, 3})},
                   26});
  for (int64_t C : kWidths)
    cases.push_back({Op::select_rows,
                     fmt::format("{} channels", C),
                     NoAttrs{},
                     {real({3, 13, C}), ints({3}, 0, 12)},
                     {real({3, C})}});
}

// The inputs that are rounded to the precision of the case.
uint32_t operands_of_case(const OpCase& c) {
  Node node{{}, c.op, {}, {}, {}, c.attrs, c.precision};
  for (const Operand& operand : c.in) node.inputs.push_back(operand.kind == Kind::absent ? ValueId::none : ValueId{});
  return operands_of(node);
}

struct Product {
  int64_t M, K, N;
};

void add_linear(std::vector<OpCase>& cases, const Product& p) {
  const Operand x = real({p.M, p.K});
  const Operand dy = real({p.M, p.N});
  const Operand weight = panel(real({p.K, p.N}));
  const Operand bias = real({p.N});
  const std::string name = fmt::format("{}x{}x{}", p.M, p.K, p.N);
  for (bool more : {false, true}) {
    const std::string with = more ? name + " acc" : name;
    const auto on = [&](int i) {
      return more ? std::vector<std::pair<int, int>>{{0, i}} : std::vector<std::pair<int, int>>{};
    };
    cases.push_back({Op::linear,
                     with,
                     NoAttrs{},
                     {x, weight, maybe(more, bias), maybe(more, dy)},
                     {dy},
                     static_cast<double>(p.K + 2 * more),
                     0,
                     on(3)});
    cases.push_back({Op::linear_bwd_input,
                     with,
                     NoAttrs{},
                     {dy, weight, maybe(more, x)},
                     {x},
                     static_cast<double>(p.N + more),
                     0,
                     on(2)});
    cases.push_back({Op::linear_bwd_weight,
                     with,
                     NoAttrs{},
                     {x, dy, maybe(more, weight)},
                     {weight},
                     static_cast<double>(p.M + more),
                     0,
                     on(2)});
    cases.push_back({Op::linear_bwd_bias,
                     with,
                     NoAttrs{},
                     {dy, maybe(more, bias)},
                     {bias},
                     static_cast<double>(p.M + more),
                     0,
                     on(1)});
  }
  cases.push_back(
      {Op::linear, name + " bias only", NoAttrs{}, {x, weight, bias, absent()}, {dy}, static_cast<double>(p.K + 1)});
}

void add_products(std::vector<OpCase>& cases) {
  for (int64_t N : {1, 5, 15, 16, 17, 31, 33, 47, 48, 49, 97, 99}) add_linear(cases, {13, 17, N});
  for (int64_t M : {1, 2, 5, 6, 7, 8, 9, 11, 12, 19, 67}) add_linear(cases, {M, 35, 50});
  for (int64_t K : {1, 3, 4, 5, 15, 16, 67, 767, 768, 769, 1539}) add_linear(cases, {7, K, 33});
  for (int64_t K : {768, 1537}) add_linear(cases, {K, 9, 17});  // long sums of the gradients
  add_linear(cases, {3, 17, 771});
  add_linear(cases, {150, 131, 260});
}

// The gradients of one product and of three, and AdamW on them. Squares carry the error of their factor twice.
void add_updates(std::vector<OpCase>& cases, const Product& p) {
  const double terms = 2.0 * (4.0 * static_cast<double>(2 * p.M) + static_cast<double>(std::min(p.N, kSquareColumns)));
  const Operand x = real({2, p.M, p.K}), dy = real({2, p.M, p.N}), bias = real({p.N}), hyper = real({3}, 0.1, 0.9);
  const Operand weight = panel(real({p.K, p.N})), m = panel(real({p.K, p.N}, -0.1, 0.1)),
                v = panel(real({p.K, p.N}, 1e-3, 1e-2));
  const Operand squares = real({p.K, (p.N + kSquareColumns - 1) / kSquareColumns});
  const AdamWAttrs a{.weight_decay = 0.1};
  const std::string name = fmt::format("2x{}x{}x{}", p.M, p.K, p.N);
  cases.push_back({Op::linear_bwd_update,
                   name,
                   a,
                   {x, dy, hyper, weight, m, v},
                   {weight, m, v, squares, bias},
                   terms,
                   10,
                   {{0, 3}, {1, 4}, {2, 5}}});
  cases.push_back({Op::qkv_bwd_update,
                   name,
                   a,
                   {x, dy, dy, dy, hyper, weight, m, v, weight, m, v, weight, m, v},
                   {weight, m, v, squares, bias, weight, m, v, squares, bias, weight, m, v, squares, bias},
                   terms,
                   10,
                   {{0, 5}, {1, 6}, {2, 7}, {5, 8}, {6, 9}, {7, 10}, {10, 11}, {11, 12}, {12, 13}}});
}

// The parts of layer cells at one size: M tokens in two samples, K channels in, N out.
void add_cells(std::vector<OpCase>& cases, const Product& p) {
  const double K = static_cast<double>(p.K), N = static_cast<double>(p.N), M = static_cast<double>(2 * p.M);
  const Operand x = real({2, p.M, p.K}, -2.0, 3.0), y = real({2, p.M, p.N}), dx = real({2, p.M, p.K});
  const Operand channel = real({p.K}), bias = real({p.N}), weight = panel(real({p.K, p.N}));
  const Operand row = real({2, p.M}), rng = keys({2}), sample = keys({2});
  const std::string name = fmt::format("2x{}x{}x{}", p.M, p.K, p.N);
  const Operand none = absent(), empty = real({0});
  for (bool norm : {false, true}) {
    const Operand own = maybe(norm, channel), statistic = norm ? row : empty;
    cases.push_back({Op::linear_qkv,
                     norm ? name + " norm" : name,
                     LayerNormAttrs{},
                     {x, own, own, weight, bias, weight, bias, weight, bias},
                     {y, y, y, statistic, statistic},
                     norm ? 2 * K : K + 1,
                     norm ? 6.0 : 0.0});
  }
  cases.push_back({Op::linear_gelu,
                   name + " no norm",
                   LinearGeluAttrs{},
                   {x, none, none, weight, bias},
                   {y, y, empty, empty},
                   K + 1,
                   8});
  for (const LinearGeluAttrs& a :
       {LinearGeluAttrs{}, LinearGeluAttrs{1e-5, false, true}, LinearGeluAttrs{1e-5, true, false}})
    cases.push_back({Op::linear_gelu,
                     fmt::format("{} {}{}", name, a.tanh ? "tanh" : "exact", a.keep ? "" : ", nothing kept"),
                     a,
                     {x, channel, channel, weight, bias},
                     {y, a.keep ? y : empty, row, row},
                     2 * K,
                     8});
  for (double drop : {0.1, 1.0})
    cases.push_back({Op::linear_dropout,
                     fmt::format("{} p {}", name, drop),
                     DropoutAttrs{drop, 3, true},
                     {dx, weight, bias, y, rng, sample},
                     {y},
                     K + 2,
                     2,
                     {{0, 3}}});
  for (bool tanh : {false, true})
    cases.push_back({Op::linear_bwd_gelu,
                     fmt::format("{} {}", name, tanh ? "tanh" : "exact"),
                     GeluAttrs{tanh},
                     {y, weight, x},
                     {dx},
                     N,
                     6});
  for (bool acc : {false, true}) {
    const std::string with = acc ? name + " acc" : name;
    const auto on = [&](std::vector<std::pair<int, int>> pairs) {
      return acc ? pairs : std::vector<std::pair<int, int>>{};
    };
    const Operand more = maybe(acc, weight), more_bias = maybe(acc, bias);
    cases.push_back({Op::linear_bwd_params,
                     with,
                     NoAttrs{},
                     {dx, y, more, more_bias},
                     {weight, bias},
                     M + 1,
                     0,
                     on({{0, 2}, {1, 3}})});
    cases.push_back({Op::qkv_bwd_params,
                     with,
                     NoAttrs{},
                     {dx, y, y, y, more, more_bias, more, more_bias, more, more_bias},
                     {weight, bias, weight, bias, weight, bias},
                     M + 1,
                     0,
                     on({{0, 4}, {1, 5}, {2, 6}, {3, 7}, {4, 8}, {5, 9}})});
    cases.push_back({Op::qkv_bwd_input,
                     with,
                     NoAttrs{},
                     {y, y, y, weight, weight, weight, maybe(acc, dx)},
                     {dx},
                     3 * N + 1,
                     0,
                     on({{0, 6}})});
  }
  add_updates(cases, p);
}

// M rows of C channels, V logits. `terms`: a sum of products, each of which carries the error of a logit.
void add_heads(std::vector<OpCase>& cases, int64_t M, int64_t C, int64_t V) {
  const Operand x = real({M, C}), weight = panel(real({C, V})), row = real({M});
  const Operand targets = ints({M}, -1, V - 1);
  Operand logits = real({std::min(M, kHeadRows), V});
  logits.workspace = true;
  const std::string name = fmt::format("{}x{}x{}", M, C, V);
  const double terms = static_cast<double>(C + V);
  cases.push_back({Op::head_loss, name, NoAttrs{}, {x, weight, targets}, {row, logits}, terms, 4});
  for (bool acc : {false, true})
    cases.push_back({Op::head,
                     acc ? name + " acc" : name,
                     NoAttrs{},
                     {x, weight, targets, row, maybe(acc, x), maybe(acc, weight)},
                     {row, x, weight, logits},
                     terms + static_cast<double>(M),
                     8,
                     acc ? std::vector<std::pair<int, int>>{{1, 4}, {2, 5}} : std::vector<std::pair<int, int>>{}});
}

void add_all_cells(std::vector<OpCase>& cases) {
  for (const Product& p : {Product{1, 1, 1},
                           {5, 7, 9},
                           {13, 16, 17},
                           {12, 48, 35},
                           {67, 35, 131},
                           {9, 771, 97},
                           {150, 33, 20},
                           {3, 1539, 19}})
    add_cells(cases, p);
  for (int64_t C : {1, 5, 16, 67})
    for (double drop : {0.0, 0.3, 1.0})
      cases.push_back({Op::embedding_sum,
                       fmt::format("{} channels p {}", C, drop),
                       DropoutAttrs{drop, 2, drop > 0.0},
                       {panel(real({C, 97})), ints({3, 13}, 0, 96), real({C, 20}), ints({3, 13}, 0, 19),
                        maybe(drop > 0.0, keys({2})), maybe(drop > 0.0, keys({3}))},
                       {real({3, 13, C})},
                       2,
                       1});
  add_heads(cases, 1, 1, 2);
  add_heads(cases, 13, 17, 33);
  add_heads(cases, 131, 16, 97);
  add_heads(cases, kHeadRows, 9, 19);
  add_heads(cases, 2 * kHeadRows + 3, 5, 35);
}

// The case with its operands rounded to 16 bits; `halves`: what may be stored in 16 bits is. Weights never are.
OpCase in_precision(const OpCase& c, Dtype precision, bool halves) {
  OpCase narrow = c;
  narrow.precision = precision;
  narrow.name += fmt::format(" {}{}", dtype_name(precision), halves ? " stored" : "");
  if (!halves) return narrow;
  const uint32_t operands = operands_of_case(c);
  for (size_t i = 0; i < c.in.size(); ++i)
    if ((operands >> i & 1u) != 0 && c.in[i].kind == Kind::real && !c.in[i].panel) narrow.in[i].dtype = precision;
  for (size_t o = 0; o < c.out.size(); ++o)
    if ((schema(c.op).narrow >> o & 1u) != 0 && c.out[o].shape.elements() > 0) narrow.out[o].dtype = precision;
  std::erase_if(narrow.in_place, [&](const auto& alias) {
    return narrow.out[static_cast<size_t>(alias.first)].dtype != narrow.in[static_cast<size_t>(alias.second)].dtype;
  });
  return narrow;
}

// Sizes with odd sums, and sums of several chunks.
void add_narrow_products(std::vector<OpCase>& cases) {
  std::vector<OpCase> wide;
  for (const Product& p : {Product{13, 17, 1},
                           {13, 17, 49},
                           {1, 35, 50},
                           {67, 35, 97},
                           {7, 1539, 33},
                           {3, 17, 771},
                           {1537, 9, 17},
                           {60, 131, 200}})
    add_linear(wide, p);
  for (const Product& p : {Product{5, 7, 9}, {12, 48, 35}, {33, 35, 131}, {9, 771, 97}, {3, 1539, 19}})
    add_cells(wide, p);
  add_heads(wide, 13, 17, 33);
  add_heads(wide, kHeadRows + 3, 9, 97);
  for (const OpCase& c : wide) {
    if (c.op == Op::linear_bwd_bias) continue;  // no product
    for (Dtype precision : {Dtype::bf16, Dtype::f16})
      for (bool in_16_bits : {false, true}) cases.push_back(in_precision(c, precision, in_16_bits));
  }
}

void complete_attention_bwd(Inputs& in, const Attrs& attrs) {
  const auto optional = [&](size_t i) { return in[i].shape.rank == 0 ? nullptr : &in[i]; };
  for (double& o : in[4].values) o = 0.0;
  ref::run(Op::attention, ref::RefCall<double>{{&in[1], &in[2], &in[3], &in[6], optional(7), optional(8)},
                                               {&in[4], &in[5]},
                                               &std::get<AttentionAttrs>(attrs)});
}

struct Heads {
  int64_t B, T, H, D;
};

void add_attention(std::vector<OpCase>& cases, const Heads& z, int64_t last_begin, double p) {
  const AttentionAttrs a{.n_head = z.H, .scale = 0.4, .dropout = p, .site = 5, .stride = 1024};
  const Operand x = real({z.B, z.T, z.H * z.D}, -2.0, 2.0);
  const Operand lse = real({z.B, z.H, z.T});
  const Operand begin = ints({z.B, z.T}, 0, last_begin);
  const Operand rng = maybe(p > 0.0, keys({2}));
  const Operand sample = maybe(p > 0.0, keys({z.B}));
  const std::string name = fmt::format("{}x{} {} heads of {}, begin to {}, p {}", z.B, z.T, z.H, z.D, last_begin, p);
  const double K = static_cast<double>(z.T + z.D);
  cases.push_back({Op::attention, name, a, {x, x, x, begin, rng, sample}, {x, lse}, K, 4});
  cases.push_back({Op::attention_bwd,
                   name,
                   a,
                   {x, x, x, x, x, lse, begin, rng, sample},
                   {x, x, x},
                   K,
                   4,
                   {},
                   false,
                   complete_attention_bwd});
}

void add_attention_cached(std::vector<OpCase>& cases, const Heads& z, int64_t rows, int64_t past, int64_t last_begin) {
  const AttentionAttrs a{.n_head = z.H, .scale = 0.4, .stride = 1024};
  const Operand x = real({z.B, z.T, z.H * z.D}, -2.0, 2.0);
  const Operand cache = real({z.B, rows, z.H * z.D}, -2.0, 2.0);
  cases.push_back({Op::attention_cached,
                   fmt::format("{}x{} {} heads of {}, {} rows, past {}", z.B, z.T, z.H, z.D, rows, past),
                   a,
                   {x, x, x, cache, cache, ints({z.B}, 0, past), ints({z.B}, 0, z.T), ints({z.B}, 0, last_begin)},
                   {x, cache, cache},
                   static_cast<double>(past + z.T + z.D),
                   4,
                   {{1, 3}, {2, 4}}});
}

void add_attentions(std::vector<OpCase>& cases) {
  for (const Heads& z : {Heads{1, 1, 1, 1},
                         {2, 13, 2, 5},
                         {1, 17, 1, 8},
                         {1, 16, 3, 16},
                         {2, 15, 1, 17},
                         {1, 67, 2, 19},
                         {1, 131, 1, 64},
                         {2, 200, 1, 33}})
    for (int64_t last_begin : {int64_t{0}, z.T}) add_attention(cases, z, last_begin, 0.0);
  for (const Heads& z : {Heads{2, 13, 2, 5}, {1, 67, 2, 16}, {2, 131, 1, 64}})
    for (double p : {0.1, 0.5, 1.0}) add_attention(cases, z, z.T / 2, p);
  for (const Heads& z : {Heads{1, 1, 1, 1}, {3, 1, 2, 5}, {4, 3, 2, 16}, {2, 9, 3, 17}, {2, 13, 1, 64}})
    for (int64_t past : {0, 1, 19, 140}) add_attention_cached(cases, z, past + z.T + 2, past, past + 1);
}

void complete_cross_entropy_bwd(Inputs& in, const Attrs&) {
  ref::RefTensor<double> loss = in[2];
  ref::run(Op::cross_entropy, ref::RefCall<double>{{&in[0], &in[1]}, {&loss, &in[2]}, nullptr});
}

void add_cross_entropy(std::vector<OpCase>& cases) {
  for (int64_t V : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{8}, int64_t{9}, int64_t{15}, int64_t{16}, int64_t{17},
                    int64_t{97}, int64_t{2047}, int64_t{2049}, int64_t{5003}})
    for (double range : {2.0, 60.0}) {
      const int64_t rows = V < 100 ? 13 : 17;
      const Operand logits = real({rows, V}, -range, range);
      const Operand row = real({rows}, -1.0, 1.0);
      const Operand targets = ints({rows}, -1, V - 1);
      const std::string name = fmt::format("{} in ±{}", V, range);
      const double K = static_cast<double>(V);
      cases.push_back({Op::cross_entropy, name, NoAttrs{}, {logits, targets}, {row, row}, K, 2});
      cases.push_back({Op::cross_entropy_bwd,
                       name,
                       NoAttrs{},
                       {logits, targets, row, row},
                       {logits},
                       1,
                       4,
                       {{0, 0}},
                       false,
                       complete_cross_entropy_bwd});
    }
}

void add_reductions(std::vector<OpCase>& cases) {
  for (int64_t n : kLengths) {
    const double K = static_cast<double>(n);
    const Operand one = real({1});
    const Operand blocks = real({(n + kSquareSumBlock - 1) / kSquareSumBlock});
    cases.push_back({Op::weighted_sum, fmt::format("{}", n), NoAttrs{}, {real({n}), one}, {one}, K, 1});
    cases.push_back({Op::square_sum, fmt::format("{}", n), NoAttrs{}, {real({n})}, {blocks}, K, 1, {}, true});
  }
  for (const Shape& shape : {Shape{5, 97}, Shape{771, 99}}) {
    const Operand w = panel(real(shape));
    const int64_t blocks = shape[0] * 144 / kSquareSumBlock + 1;  // for nr 16 and 48
    cases.push_back({Op::square_sum, "panel " + shape.text(), NoAttrs{}, {w}, {real({blocks})}, 97.0, 1, {}, true});
  }
  cases.push_back({Op::norm, "one", NoAttrs{}, {real({1}, 0, 1)}, {real({1})}, 1, 1});
  cases.push_back(
      {Op::norm, "three", NoAttrs{}, {real({1}, 0, 1), real({35}, 0, 9), real({2}, 0, 1e-3)}, {real({1})}, 38, 1});
  for (double max_norm : {0.0, 0.5, 1.0, 100.0})
    for (double scale : {0.0, 1.0, 1024.0}) {  // 0: none is given
      const double most = scale > 0.0 ? scale : 1.0;
      cases.push_back({Op::clip_factor,
                       fmt::format("max {}{}", max_norm, scale > 0.0 ? fmt::format(" scale {}", scale) : ""),
                       ClipAttrs{max_norm},
                       {real({1}, 0.5 * most, 3.0 * most), real({1}), maybe(scale > 0.0, real({1}, most, most))},
                       {real({1})},
                       1,
                       4});
    }
}

void add_adamw(std::vector<OpCase>& cases) {
  const AdamWAttrs settings[] = {{.weight_decay = 0.1}, {.beta1 = 0.0, .beta2 = 0.95, .eps = 1e-3}};
  const auto push = [&](const std::string& name, const AdamWAttrs& a, Operand like) {
    Operand m = like;
    Operand v = like;
    Operand grad = like;
    m.low = -0.1, m.high = 0.1;
    v.low = 0.0, v.high = 0.01;
    grad.low = -1.0, grad.high = 1.0;
    cases.push_back({Op::adamw,
                     name,
                     a,
                     {like, m, v, grad, real({3}, 0.1, 0.9), real({1}, 0.2, 1.0)},
                     {like, m, v},
                     1,
                     10,
                     {{0, 0}, {1, 1}, {2, 2}}});
  };
  for (const AdamWAttrs& a : settings) {
    for (int64_t n : kLengths) push(fmt::format("{} decay {}", n, a.weight_decay), a, real({n}));
    cases.push_back(cases.back());
    cases.back().name += " no factor";
    cases.back().in[5] = absent();
    push(fmt::format("panel decay {}", a.weight_decay), a, panel(real({5, 97})));
  }
}

// Ops beside the matrix products that know 16-bit numbers: every other case of an op stored in one of the types and
// fp32 in memory in the other.
void add_narrow(std::vector<OpCase>& cases) {
  constexpr Op kOps[] = {Op::attention, Op::attention_bwd,   Op::attention_cached, Op::gelu,         Op::gelu_bwd,
                         Op::layernorm, Op::linear_bwd_bias, Op::embedding,        Op::embedding_sum};
  std::vector<OpCase> more;
  std::map<Op, int> seen;
  for (const OpCase& c : cases) {
    if (std::find(std::begin(kOps), std::end(kOps), c.op) == std::end(kOps)) continue;
    const bool table = c.op == Op::embedding || c.op == Op::embedding_sum;
    const bool even = seen[c.op]++ % 2 == 0;
    more.push_back(in_precision(c, Dtype::bf16, even && !table));
    more.push_back(in_precision(c, Dtype::f16, !even && !table));
  }
  cases.insert(cases.end(), more.begin(), more.end());
}

std::vector<OpCase> make_cases() {
  std::vector<OpCase> cases;
  add_elementwise(cases);
  add_dropout(cases);
  add_layernorm(cases);
  add_embedding(cases);
  add_products(cases);
  add_all_cells(cases);
  add_narrow_products(cases);
  add_attentions(cases);
  add_cross_entropy(cases);
  add_reductions(cases);
  add_adamw(cases);
  add_narrow(cases);
  for (OpCase& c : cases) c.name = fmt::format("{} {}", op_name(c.op), c.name);
  return cases;
}

ref::RefTensor<double> make_input(const Operand& operand, Rng& rng) {
  ref::RefTensor<double> t{operand.shape, {}, {}};
  if (operand.kind == Kind::absent) return t;
  for (int64_t i = 0; i < operand.shape.elements(); ++i) {
    if (operand.kind == Kind::real) {
      t.values.push_back(static_cast<float>(operand.low + (operand.high - operand.low) * rng.uniform()));
      continue;
    }
    const int64_t low = static_cast<int64_t>(operand.low);
    const int64_t high = static_cast<int64_t>(operand.high);
    const int64_t drawn = low + static_cast<int64_t>(rng.below(static_cast<uint64_t>(high - low + 1)));
    t.ints.push_back(i == 0 ? high : i == 1 ? low : drawn);
  }
  return t;
}

template <typename S>
ref::RefTensor<S> cast(const ref::RefTensor<double>& from) {
  ref::RefTensor<S> to{from.shape, {}, from.ints};
  for (double x : from.values) to.values.push_back(S(x));
  return to;
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = make_cases();
  return cases;
}

Inputs make_inputs(const OpCase& c) {
  uint64_t key = 1;
  for (char letter : c.name) key = hash_combine(key, static_cast<uint64_t>(letter));
  Rng rng(key);
  Inputs in;
  for (const Operand& operand : c.in) in.push_back(make_input(operand, rng));
  if (c.complete != nullptr) c.complete(in, c.attrs);
  return in;
}

void round_to_float(Inputs& in) {
  for (ref::RefTensor<double>& t : in)
    for (double& x : t.values) x = static_cast<float>(x);
}

void round_operands(const OpCase& c, Inputs& in) {
  const uint32_t operands = operands_of_case(c);
  for (size_t i = 0; i < in.size(); ++i)
    if ((operands >> i) & 1u) ref::round_values(in[i], c.precision);
}

template <typename S>
std::vector<ref::RefTensor<S>> run_reference(const OpCase& c, const Inputs& in) {
  std::vector<ref::RefTensor<S>> cast_in;
  for (const ref::RefTensor<double>& t : in) cast_in.push_back(cast<S>(t));
  std::vector<ref::RefTensor<S>> out;
  for (const Operand& o : c.out)
    out.push_back({o.shape, std::vector<S>(static_cast<size_t>(o.shape.elements()), S(0.0)), {}});
  ref::RefCall<S> call;
  for (size_t i = 0; i < in.size(); ++i) call.in.push_back(c.in[i].kind == Kind::absent ? nullptr : &cast_in[i]);
  for (ref::RefTensor<S>& t : out) call.out.push_back(&t);
  call.attrs = std::visit([](const auto& a) { return static_cast<const void*>(&a); }, c.attrs);
  call.precision = c.precision;
  ref::run(c.op, call);
  return out;
}

template std::vector<ref::RefTensor<float>> run_reference<float>(const OpCase&, const Inputs&);
template std::vector<ref::RefTensor<double>> run_reference<double>(const OpCase&, const Inputs&);
template std::vector<ref::RefTensor<std::complex<double>>> run_reference<std::complex<double>>(const OpCase&,
                                                                                               const Inputs&);
template std::vector<ref::RefTensor<ref::Mag>> run_reference<ref::Mag>(const OpCase&, const Inputs&);

}  // namespace lamina::testing
