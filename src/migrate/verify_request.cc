#include "migrate/verify_request.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

void check_from(const char* name, double least, double got) {
  if (!(got >= least))
    throw_error(ErrorCode::usage, "bad value of --{}: expected a number from {} on, got {}", name, least, got);
}

void check(const VerifyRequest& request, const VerifyOptions& options, const WitnessProgram& program) {
  check_from("tokens", 1, static_cast<double>(request.tokens.value_or(1)));
  check_from("steps", 1, static_cast<double>(request.steps.value_or(1)));
  check_from("seed", 0, static_cast<double>(request.seed));
  check_from("lr", 0, request.lr.value_or(1e-3));
  check_from("tolerance", 0, options.tolerance.value_or(0));
  if (options.threads < 1 || options.threads > 1024)
    throw_error(ErrorCode::usage, "bad value of --threads: expected a number from 1 to 1024, got {}", options.threads);
  const auto both = [](const std::string& a, const std::string& b) { return !a.empty() && !b.empty(); };
  const auto refuse = [](const char* text) { throw_error(ErrorCode::usage, "{}", text); };
  if (both(request.witness, program.name)) refuse("--witness and --with: expected one of them, got both");
  if (both(request.witness, request.b)) refuse("--witness: expected no B beside it, got both");
  if (both(request.write_witness, request.b + program.name + request.witness))
    refuse("--write-witness: expected A alone, got something to compare it with");
  if ((request.b + program.name + request.witness + request.write_witness).empty())
    refuse("nothing to compare A with: expected B, --with, --witness or --write-witness, got none");
  if (request.steps && request.write_witness.empty()) refuse("--steps: expected --write-witness beside it, got none");
  if (request.lr && (request.witness + request.write_witness).empty())
    refuse("--lr: expected --witness or --write-witness beside it, got neither");
  const bool b_is_loaded = !request.b.empty() && program.name.empty();
  if (!(request.config_b + request.names_b).empty() && !b_is_loaded)
    refuse("--config-b, --names-b: expected a model B that this program reads, got none");
}

// Which may be a model as easily as an old witness: both are safetensors.
void check_target(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !is_witness(path))
    throw_error(ErrorCode::invalid,
                "exists already: --write-witness {}: expected a free name or a witness to replace, got another file",
                path);
}

VerifyInputs inputs_for(const VerifyRequest& request, const ModelConfig& config, int64_t vocab_size) {
  const int64_t tokens = request.tokens.value_or(0);
  if (request.ids) return inputs_of_ids(config, vocab_size, tokens, *request.ids, request.ids_from);
  return seeded_inputs(config, vocab_size, tokens, static_cast<uint64_t>(request.seed));
}

VerifyModel load(const std::string& path, const std::string& config, const std::string& names, const char* which,
                 const VerifyOptions& options) {
  VerifyModel model = load_verify_model(path, config, names);
  for (const std::string& warning : model.warnings) options.warn(fmt::format("{}: {}", which, warning));
  return model;
}

void compare_models(const VerifyRequest& request, const VerifyOptions& options, const VerifyModel& a, Verified& out) {
  const VerifyModel b = load(request.b, request.config_b, request.names_b, "B", options);
  out.inputs = inputs_for(request, a.config, std::min(a.config.vocab_size, b.config.vocab_size));
  out.report = verify_models(a, b, out.inputs, options);
  out.b = request.b;
}

void compare_witness(const VerifyRequest& request, const VerifyOptions& options, const WitnessProgram& program,
                     const VerifyModel& a, Verified& out) {
  const bool file = program.name.empty();
  if (!file) options.say(fmt::format("{} loads and computes", program.name));
  const Witness witness = file ? read_witness(request.witness, a.config)
                               : program.run(request.b.empty() ? request.a : request.b, a.config, out.inputs);
  const bool given = request.tokens || request.seed != 0 || request.ids;
  if (witness.inputs && !given) out.inputs = *witness.inputs;
  check_same_inputs(witness, out.inputs, request.lr);
  out.report = verify_witness(a, witness, out.inputs, options);
  out.b = file ? request.witness : fmt::format("{} in {}", request.b.empty() ? request.a : request.b, witness.engine);
}

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json gap_json(const TensorGap& gap) {
  const int64_t layer = layer_of(gap.tensor);
  return {{"layer", layer < 0 ? Json(nullptr) : Json(layer)},
          {"tensor", gap.tensor},
          {"error", number(gap.error)},
          {"tolerance", gap.tolerance},
          {"largest_gap", number(gap.largest)}};
}

}  // namespace

Verified verify(const VerifyRequest& request, const VerifyOptions& options, const WitnessProgram& program) {
  check(request, options, program);
  if (!request.write_witness.empty()) check_target(request.write_witness);
  const auto start = std::chrono::steady_clock::now();
  Verified out{.report = {}, .inputs = {}, .a = request.a, .b = {}};
  const VerifyModel a = load(request.a, request.config_a, request.names_a, "A", options);
  if (program.name.empty() && !request.b.empty()) {
    compare_models(request, options, a, out);
  } else {
    out.inputs = inputs_for(request, a.config, a.config.vocab_size);
    if (request.write_witness.empty())
      compare_witness(request, options, program, a, out);
    else
      write_witness(request.write_witness, a.config,
                    make_witness(a, out.inputs, request.steps.value_or(0), request.lr.value_or(1e-3)));
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::optional<double> logits_gap(const VerifyReport& report) {
  for (const VerifyComparison& made : report.comparisons)
    for (const TensorGap& gap : made.tensors)
      if (made.id == "models" && gap.tensor == "logits") return gap.largest;
  return {};
}

Json verified_json(const Verified& verified) {
  if (verified.b.empty())  // nothing was compared
    return {{"a", verified.a},
            {"rows", verified.inputs.rows},
            {"tokens", verified.inputs.seq},
            {"inputs_xxh3_128", verified.inputs.hash()},
            {"seconds", verified.seconds}};
  const VerifyReport& report = verified.report;
  const std::optional<double> gap = logits_gap(report);
  Json tensors = Json::array(), weights = Json::array();
  for (const VerifyComparison& made : report.comparisons)
    for (const TensorGap& tensor : made.tensors) {
      tensors.push_back(gap_json(tensor));
      tensors.back()["comparison"] = made.id;
    }
  for (const TensorGap& tensor : report.weights) weights.push_back(gap_json(tensor));
  return {{"a", verified.a},
          {"b", verified.b},
          {"equal", report.equal},
          {"first_difference", report.first ? gap_json(*report.first) : Json(nullptr)},
          {"cause", report.cause.empty() ? Json(nullptr) : Json(report.cause)},
          {"cause_id", report.cause_id.empty() ? Json(nullptr) : Json(report.cause_id)},
          {"causes_tested", report.causes_tested},
          {"tensors_compared", report.compared},
          {"tensors_of_a", report.tensors},
          {"largest_logits_gap", gap ? number(*gap) : Json(nullptr)},
          {"rows", verified.inputs.rows},
          {"tokens", verified.inputs.seq},
          {"inputs_xxh3_128", verified.inputs.hash()},
          {"greedy", {{"equal", report.greedy_a == report.greedy_b}, {"a", report.greedy_a}, {"b", report.greedy_b}}},
          {"weights", weights},
          {"notes", report.notes},
          {"tensors", tensors},
          {"seconds", verified.seconds}};
}

// Paths need not be UTF-8.
std::string verified_text(const Verified& verified) {
  return verified_json(verified).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lamina
