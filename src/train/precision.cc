#include "train/precision.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/half.h"
#include "graph/schema.h"
#include "io/json.h"
#include "kernels/arithmetic.h"
#include "kernels/peak.h"
#include "kernels/product_cost.h"
#include "plan/cost.h"
#include "train/option_row.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

PrecisionMap all_but_embedding(Dtype dtype) { return {{"*", dtype}, {"embedding", Dtype::f32}}; }

PrecisionMap read_map(const std::string& path) {
  const Json json = read_json(path);
  const JsonReader reader(json, "bad precision map: " + path);
  PrecisionMap map;
  for (const auto& [pattern, value] : reader.object().items()) {
    const std::optional<Dtype> dtype = parse_precision_name(reader[pattern].as<std::string>());
    if (!dtype) reader[pattern].refuse("fp32, bf16 or fp16");
    map.push_back({pattern, *dtype});
  }
  return map;
}

// A run of layers in which one part has one type.
struct Range {
  std::string name;  // "attention.q"; for what is in no layer all of it
  Dtype dtype;
  int64_t first = -1, last = -1;  // −1: in no layer

  std::string pattern() const {
    if (first < 0) return name;
    if (first == last) return fmt::format("layer.{}.{}", first, name);
    return fmt::format("layer.{}-{}.{}", first, last, name);
  }
};

// "layer.12.attention.q" -> 12, "attention.q".
std::pair<int64_t, std::string> split_layer(const std::string& part) {
  constexpr std::string_view kLayer = "layer.";
  if (!part.starts_with(kLayer)) return {-1, part};
  const size_t dot = part.find('.', kLayer.size());
  return {std::stoll(part.substr(kLayer.size(), dot - kLayer.size())), part.substr(dot + 1)};
}

std::vector<Range> ranges_of(const std::vector<PartPrecision>& parts) {
  std::vector<Range> out;
  for (const PartPrecision& part : parts) {
    const auto [layer, name] = split_layer(part.part);
    const auto goes_on = [&, layer = layer, &name = name](const Range& range) {
      return layer >= 0 && range.name == name && range.dtype == part.dtype && range.last + 1 == layer;
    };
    const auto found = std::find_if(out.begin(), out.end(), goes_on);
    if (found == out.end())
      out.push_back({name, part.dtype, layer, layer});
    else
      found->last = layer;
  }
  return out;
}

}  // namespace

Precision parse_precision(const std::string& word) {
  if (word == "fp32") return {};
  if (word == "mixed") return {word, all_but_embedding(Dtype::bf16)};
  if (word == "mixed-bf16") return {word, all_but_embedding(Dtype::bf16), true};
  if (word == "mixed-fp16") return {word, all_but_embedding(Dtype::f16)};
  if (!word.ends_with(".json"))
    bad_value("precision", "fp32, mixed, mixed-bf16, mixed-fp16 or the path of a MAP.json", word);
  return {word, read_map(word)};
}

bool needs_loss_scale(const std::vector<PartPrecision>& parts) {
  return std::any_of(parts.begin(), parts.end(), [](const PartPrecision& part) { return part.dtype == Dtype::f16; });
}

Json precision_map_json(const std::vector<PartPrecision>& parts) {
  Json out = Json::object();
  for (const Range& range : ranges_of(parts)) out[range.pattern()] = precision_name(range.dtype);
  return out;
}

std::string precision_map_text(const std::vector<PartPrecision>& parts) {
  std::string out;
  for (Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
    std::string list;
    for (const Range& range : ranges_of(parts))
      if (range.dtype == dtype) list += (list.empty() ? "" : ", ") + range.pattern();
    if (!list.empty()) out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", precision_name(dtype), list);
  }
  return out;
}

Arithmetics choose_arithmetics(Isa isa, const Precision& precision) {
  if (precision.map.empty()) return {};
  return {.bf16 = choose_arithmetic(isa, Dtype::bf16, precision.exact_products).arithmetic};
}

std::string arithmetic_label(Dtype dtype, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::f32) return std::string(dtype_name(dtype)) + "store";
  return std::string(arithmetic_name(arithmetic));
}

Json arithmetics_json(const std::vector<PartPrecision>& parts, const Arithmetics& arithmetics) {
  Json out = Json::object();
  for (const PartPrecision& part : parts) {
    if (!is_16_bit(part.dtype)) continue;
    const Arithmetic arithmetic = part.dtype == Dtype::bf16 ? arithmetics.bf16 : Arithmetic::f32;
    out[std::string(precision_name(part.dtype))] = arithmetic_label(part.dtype, arithmetic);
  }
  return out;
}

Arithmetics kept_arithmetics(Isa isa, const Json& stored, const Precision& precision) {
  const Arithmetics chosen = choose_arithmetics(isa, precision);
  if (!stored.is_object() || precision.map.empty()) return chosen;
  const Json label = stored.value(std::string(precision_name(Dtype::bf16)), Json());
  for (Arithmetic arithmetic : possible_arithmetics(isa, Dtype::bf16, precision.exact_products))
    if (label == arithmetic_label(Dtype::bf16, arithmetic)) return {arithmetic};
  return chosen;
}

ProductPeaks product_peaks(const Plan& plan, ThreadTeam& team, double seconds) {
  std::map<Arithmetic, double> operations;
  for (const PlanProgram& program : plan.programs) {
    if (program.name != "step" && program.name != "micro_step") continue;
    for (const PlanStep& step : program.steps) {
      const WorkKind kind = schema(step.op).work.kind;
      if (kind == WorkKind::gemm || kind == WorkKind::attention)
        operations[table_of(*find_kernel_by_id(step.kernel)).arithmetic] += work_of(plan, step).operations;
    }
  }
  ProductPeaks out;
  operations.try_emplace(Arithmetic::f32, 0.0);
  if (operations.size() == 1) return out;
  const double fp32 = fma_peak_gflops(plan.isa, team, seconds);
  double all = 0.0, all_time = 0.0, narrow = 0.0, narrow_time = 0.0;
  for (const auto& [arithmetic, count] : operations) {
    const double peak = product_peak_gflops(plan.isa, arithmetic, team, seconds).value_or(fp32);
    all += count;
    all_time += count / peak;
    if (arithmetic == Arithmetic::f32) continue;
    narrow += count;
    narrow_time += count / peak;
  }
  return {.all = all / all_time / fp32, .narrow = narrow / narrow_time / fp32};
}

std::string emulation_warning(Isa isa, Dtype dtype) {
  return fmt::format(
      "products of {} run in fp32 on this CPU ({}), at {:.2f} times the time of fp32's measured now: 16 bits save "
      "memory "
      "here, not time",
      precision_name(dtype), arithmetic_label(dtype, Arithmetic::f32), product_cost(isa, Arithmetic::f32, dtype));
}

std::vector<std::string> emulation_warnings(Isa isa, const std::vector<PartPrecision>& parts,
                                            const Arithmetics& arithmetics) {
  std::vector<std::string> out;
  for (Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Arithmetic arithmetic = dtype == Dtype::bf16 ? arithmetics.bf16 : Arithmetic::f32;
    const bool used = std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.dtype == dtype; });
    if (used && arithmetic == Arithmetic::f32) out.push_back(emulation_warning(isa, dtype));
  }
  return out;
}

}  // namespace lamina
