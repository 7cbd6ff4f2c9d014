// lamina inspect plan: every step, kernel and place of a compiled run.
#include <map>

#include "graph/text.h"
#include "inspect.h"
#include "plan_report.h"

namespace lamina::cli {
namespace {

struct Options : ShapeOptions {
  std::string format = "text";
  bool steps = false;
  bool json = false;
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"format", "FORMAT", "text or json"}, o.format);
  f(OptionRow{"steps", "", "list every step of every program"}, o.steps);
  for_each_shape_option(o, f);
}

Json tensor_json(const PlanTensor& tensor) {
  Json shape = Json::array();
  for (int i = 0; i < tensor.shape.rank; ++i) shape.push_back(tensor.shape[i]);
  return {{"name", tensor.name},
          {"shape", shape},
          {"dtype", dtype_name(tensor.dtype)},
          {"layout", tensor.layout.text()},
          {"region", region_name(tensor.region)},
          {"class", tensor.tensor_class},
          {"offset", tensor.offset},
          {"bytes", tensor.bytes}};
}

Json program_json(const PlanProgram& program) {
  Json steps = Json::array();
  for (const PlanStep& step : program.steps)
    steps.push_back({{"name", step.name},
                     {"op", op_name(step.op)},
                     {"kernel", step.kernel},
                     {"in", step.in},
                     {"out", step.out},
                     {"tasks", step.tasks}});
  return {{"name", program.name},
          {"arena_bytes", program.arena_bytes},
          {"max_live_bytes", program.max_live_bytes},
          {"peak_step", program.peak_step},
          {"steps", steps}};
}

Json plan_json(const CompiledModel& model) {
  const Plan& plan = model.compiled.plan;
  Json out = plan_summary_json(model);
  Json tensors = Json::array(), programs = Json::array(), regions = Json::object();
  for (const PlanTensor& tensor : plan.tensors) tensors.push_back(tensor_json(tensor));
  for (const PlanProgram& program : plan.programs) programs.push_back(program_json(program));
  for (Region region : {Region::persistent, Region::transient, Region::io})
    regions[std::string(region_name(region))] = plan.region(region);
  out["scratch_bytes_per_thread"] = plan.scratch_bytes;
  out["regions"] = regions;
  out["tensors"] = tensors;
  out["programs"] = programs;
  return out;
}

std::string kernels_text(const Plan& plan) {
  std::map<std::string, int64_t> counts;
  for (const PlanProgram& program : plan.programs)
    for (const PlanStep& step : program.steps) ++counts[step.kernel];
  std::string out = "kernels\n";
  for (const auto& [kernel, count] : counts) out += fmt::format("  {:>5} x {}\n", count, kernel);
  return out;
}

std::string tensor_text(const Plan& plan, int32_t index) {
  if (index < 0) return "-";
  const PlanTensor& tensor = plan.tensors[static_cast<size_t>(index)];
  return fmt::format("{}@{}+{}", tensor.name, region_name(tensor.region), tensor.offset);
}

std::string steps_text(const Plan& plan) {
  std::string out;
  for (const PlanProgram& program : plan.programs) {
    out += fmt::format("program {}\n", program.name);
    for (size_t s = 0; s < program.steps.size(); ++s) {
      const PlanStep& step = program.steps[s];
      out += fmt::format("  {:>4} {} = {} {}", s, step.name, step.kernel, attrs_text(step.attrs));
      for (int32_t index : step.in) out += " " + tensor_text(plan, index);
      out += " ->";
      for (int32_t index : step.out) out += " " + tensor_text(plan, index);
      out += fmt::format(" in {} tasks\n", step.tasks);
    }
  }
  return out;
}

int run(const Options& options) {
  if (options.format != "text" && options.format != "json") bad_value("format", "text or json", options.format);
  validate(options);
  const CompiledModel model = compile_model(options);
  const Plan& plan = model.compiled.plan;
  if (options.json || options.format == "json") {
    print_json(plan_json(model));
    return 0;
  }
  print(fmt::format("plan {} for {}\n", plan.digest, isa_name(plan.isa)));
  print(memory_text(model) + kernels_text(plan));
  if (options.steps) print(steps_text(plan));
  return 0;
}

}  // namespace

void add_inspect_plan(const Command& inspect) {
  const Command command = inspect.add("plan", "memory, kernels and steps of a training run");
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli
