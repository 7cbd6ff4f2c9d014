#include "plan_report.h"

#include "kernels/peak.h"
#include "train/flops.h"
#include "train/precision.h"

namespace lamina::cli {
namespace {

constexpr size_t kShownTensors = 8;
constexpr int64_t kMeasuredBytes = int64_t{256} << 20;  // more than the caches hold

int64_t arena_bytes(const Plan& plan) { return plan.region(Region::transient); }

int64_t max_live_bytes(const Plan& plan) {
  int64_t most = 0;
  for (const PlanProgram& program : plan.programs) most = std::max(most, program.max_live_bytes);
  return most;
}

std::string class_bar(int64_t bytes, int64_t total) {
  constexpr int64_t kWidth = 40;
  return std::string(static_cast<size_t>(total > 0 ? (bytes * kWidth + total / 2) / total : 0), '#');
}

std::string regions_text(const CompiledModel& model) {
  const Plan& plan = model.compiled.plan;
  std::string out = "regions\n";
  for (Region region : {Region::persistent, Region::transient, Region::io})
    out += fmt::format("  {:<12} {:>12}  {} bytes\n", region_name(region), bytes_text(plan.region(region)),
                       plan.region(region));
  const int64_t scratch = plan.scratch_bytes * model.threads;
  out += fmt::format("  {:<12} {:>12}  {} bytes: {} on each of {} threads\n", "scratch", bytes_text(scratch), scratch,
                     plan.scratch_bytes, model.threads);
  out += fmt::format("  {:<12} {:>12}  {} bytes\n", "all", bytes_text(plan.total_bytes(model.threads)),
                     plan.total_bytes(model.threads));
  return out;
}

std::string programs_text(const Plan& plan) {
  std::string out = "programs\n";
  for (const PlanProgram& program : plan.programs) {
    const double ratio = program.max_live_bytes > 0
                             ? static_cast<double>(program.arena_bytes) / static_cast<double>(program.max_live_bytes)
                             : 1.0;
    out += fmt::format("  {:<12} {:>5} steps, arena {} bytes, most alive {} bytes, ratio {:.4f}\n", program.name,
                       program.steps.size(), program.arena_bytes, program.max_live_bytes, ratio);
  }
  return out;
}

}  // namespace

CompiledModel compile_model(const ShapeOptions& shape, bool curve) {
  CompiledModel out;
  out.model = open_model(shape.model);
  for (const std::string& warning : out.model.warnings) say("warning: {}", warning);
  out.model.config = with_dropout(out.model.config, shape.dropout);
  out.options = compile_options(shape, out.model.config);
  out.options.eval = true;
  out.options.recompute.curve = curve;
  out.threads = thread_count(shape.threads);
  out.precision_name = shape.precision;
  out.precision = precision_of_parts(out.options.precision, out.model.config);
  out.compiled = compile(out.model.config, out.options);
  out.memory = memory_picture(out.compiled.plan, out.threads);
  return out;
}

void check_memory_limit(const ShapeOptions& shape, const CompiledModel& model) {
  if (shape.memory_limit.empty()) return;
  check_memory_limit(model.compiled.plan, model.threads, memory_limit_bytes(shape.memory_limit));
}

Prediction predict(const CompiledModel& model) {
  constexpr double kSeconds = 0.2;
  ThreadTeam team(model.threads);
  const Isa isa = model.options.isa;
  Prediction out;
  out.rates = {.flops_per_s = fma_sustained_gflops(isa, team, kSeconds) * 1e9,
               .narrow = product_peaks(model.compiled.plan, team, kSeconds).narrow,
               .bytes_per_s = MemoryProbe(isa, team, kMeasuredBytes).in_place_gb_s(kSeconds) * 1e9};
  const Plan& plan = model.compiled.plan;
  for (const PlanProgram& program : plan.programs) {
    const bool repeated = program.name == "micro_step";
    if (program.name != "step" && program.name != "update" && !repeated) continue;
    const double times = repeated ? static_cast<double>(model.options.accumulate) : 1.0;
    const Work work = work_of(plan, program);
    out.step_ms += times * 1e3 * program_seconds(plan, program, out.rates);
    out.operations += times * work.operations;
    out.bytes += times * work.bytes();
  }
  return out;
}

std::string prediction_text(const Prediction& prediction) {
  return fmt::format(
      "predicted: {:.0f} ms a step: {:.3f} Tflop and {:.2f} GB moved, at {:.1f} Gflop/s and {:.1f} GB/s measured now\n",
      prediction.step_ms, prediction.operations * 1e-12, prediction.bytes * 1e-9, prediction.rates.flops_per_s * 1e-9,
      prediction.rates.bytes_per_s * 1e-9);
}

std::string recompute_text(const CompiledModel& model) {
  const RecomputeReport& report = model.compiled.recompute;
  std::string out = fmt::format("recompute: {}, predicted to take {:.2f} % of a step\n", report.chosen.what,
                                100.0 * report.chosen.slowdown);
  if (!report.curve.empty()) out += "plans that could be had\n";
  for (const RecomputePoint& point : report.curve)
    out += fmt::format("  {:>12}  {:>12} bytes  {:>6.2f} % slower  {}\n", bytes_text(point.total_bytes),
                       point.total_bytes, 100.0 * point.slowdown, point.what);
  return out;
}

Json recompute_json(const CompiledModel& model) {
  const auto point = [](const RecomputePoint& p) -> Json {
    return {{"total_bytes", p.total_bytes}, {"predicted_slowdown", p.slowdown}, {"what", p.what}};
  };
  const RecomputeReport& report = model.compiled.recompute;
  Json curve = Json::array();
  for (const RecomputePoint& p : report.curve) curve.push_back(point(p));
  return {{"what", report.chosen.what}, {"predicted_slowdown", report.chosen.slowdown}, {"curve", curve}};
}

std::string precision_text(const CompiledModel& model) {
  std::string out = fmt::format("precision: {}\n", precision_map_text(model.precision));
  const Json arithmetics = arithmetics_json(model.precision, model.options.arithmetics);
  for (const auto& [type, arithmetic] : arithmetics.items())
    out += fmt::format("products of {}: {}\n", type, arithmetic.get<std::string>());
  return out;
}

std::string nodes_text(const CompiledModel& model) {
  std::string out = fmt::format("passes{:>44}\n", "nodes before   after");
  for (const PassRecord& record : model.compiled.passes)
    out += fmt::format("  {:<12} {:<28} {:>6}  {:>6}\n", record.graph, record.pass, record.nodes_before,
                       record.nodes_after);
  return out;
}

std::string memory_text(const CompiledModel& model) {
  const MemoryPicture& memory = model.memory;
  std::string out = regions_text(model) + programs_text(model.compiled.plan);
  int64_t total = 0;
  for (const MemoryClass& entry : memory.classes) total += entry.bytes;
  out += fmt::format("at the peak: program {}, step {}\n", memory.program, memory.step.empty() ? "none" : memory.step);
  for (const MemoryClass& entry : memory.classes)
    out += fmt::format("  {:<12} {:>12}  {}\n", entry.name, bytes_text(entry.bytes), class_bar(entry.bytes, total));
  out += "largest tensors of the arena at the peak\n";
  for (size_t i = 0; i < std::min(kShownTensors, memory.live.size()); ++i) {
    const MemoryTensor& tensor = memory.live[i];
    out +=
        fmt::format("  {:>12}  {} {} ({})\n", bytes_text(tensor.bytes), tensor.name, tensor.shape, tensor.tensor_class);
  }
  return out;
}

Json classes_json(const MemoryPicture& memory) {
  Json out = Json::object();
  for (const MemoryClass& entry : memory.classes) out[entry.name] = entry.bytes;
  return out;
}

Json plan_summary_json(const CompiledModel& model) {
  const Compiled& compiled = model.compiled;
  const CompileOptions& options = model.options;
  Json passes = Json::array();
  for (const PassRecord& record : compiled.passes)
    passes.push_back({{"program", record.graph},
                      {"pass", record.pass},
                      {"nodes_before", record.nodes_before},
                      {"nodes_after", record.nodes_after}});
  const double tokens = static_cast<double>(options.batch * options.seq * options.accumulate);
  return {{"model", model.model.name},
          {"parameters", parameter_count(model.model.config)},
          {"batch", options.batch},
          {"seq", options.seq},
          {"accumulate", options.accumulate},
          {"precision", model.precision_name},
          {"precision_map", precision_map_json(model.precision)},
          {"arithmetic", arithmetics_json(model.precision, options.arithmetics)},
          {"isa", isa_name(options.isa)},
          {"threads", model.threads},
          {"digest", compiled.plan.digest},
          {"compile_ms", compiled.compile_ms},
          {"nodes",
           {{"forward", compiled.forward_nodes},
            {"forward_before", compiled.forward_nodes_before},
            {"backward", compiled.backward_nodes},
            {"backward_before", compiled.backward_nodes_before},
            {"recomputed", compiled.recomputed_nodes}}},
          {"passes", passes},
          {"arena_bytes", arena_bytes(compiled.plan)},
          {"max_live_bytes", max_live_bytes(compiled.plan)},
          {"total_bytes", compiled.plan.total_bytes(model.threads)},
          {"classes", classes_json(model.memory)},
          {"peak_owner", model.memory.step},
          {"peak_program", model.memory.program},
          {"recompute", recompute_json(model)},
          {"model_flops", model_flops_per_token(model.model.config, options.seq) * tokens}};
}

}  // namespace lamina::cli
