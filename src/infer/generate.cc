#include "infer/generate.h"

#include <algorithm>

#include "base/error.h"

namespace lamina {

namespace {

constexpr int64_t kUsualTokens = 128;

}  // namespace

void validate(const GenerateOptions& options) {
  if (options.max_tokens && *options.max_tokens < 1)
    throw_error(ErrorCode::usage, "bad option: max_tokens, expected a whole number from 1 on, got {}",
                *options.max_tokens);
  validate(options.sampling);
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::eos: return "eos";
    case FinishReason::length: return "length";
    case FinishReason::stop: return "stop";
  }
  return "unknown";
}

Generator::Generator(Session& session, const ModelConfig& config) : config_(config), decoder_(session) {}

void Generator::check_options(const GenerateOptions& options) const {
  validate(options);
  for (int32_t id : options.end_ids)
    if (id < 0 || id >= config_.vocab_size)
      throw_error(ErrorCode::invalid, "bad end id: expected an id below vocab_size {}, got {}", config_.vocab_size, id);
}

// Each row by itself, so that a long prompt beside it takes nothing from a short one.
int64_t Generator::most_new(const GenerateOptions& options, size_t prompt_length) const {
  const int64_t left = config_.n_positions - static_cast<int64_t>(prompt_length);
  return options.max_tokens.value_or(std::clamp<int64_t>(left, 1, kUsualTokens));
}

std::vector<Prompt> Generator::checked(std::span<const Prompt> prompts, const GenerateOptions& options,
                                       const GenerateHooks& hooks) const {
  std::vector<Prompt> out(prompts.begin(), prompts.end());
  for (size_t r = 0; r < out.size(); ++r) {
    std::vector<int32_t>& ids = out[r].ids;
    if (ids.empty()) {
      if (!config_.bos_token_id)
        throw_error(ErrorCode::invalid,
                    "empty prompt: row {}, expected an id or the config's bos_token_id, got neither", r);
      ids.push_back(static_cast<int32_t>(*config_.bos_token_id));
      hooks.say(fmt::format("row {}: empty prompt, starts from bos_token_id {}", r, *config_.bos_token_id));
    }
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= config_.vocab_size)
        throw_error(ErrorCode::invalid, "id outside the vocabulary: row {}, position {}, expected below {}, got {}", r,
                    i, config_.vocab_size, ids[i]);
    const auto length = static_cast<int64_t>(ids.size());
    const int64_t wanted = most_new(options, ids.size());
    if (wanted > config_.n_positions - length)
      throw_error(ErrorCode::invalid, "prompt and new ids exceed the context: row {}, expected at most {}, got {} + {}",
                  r, config_.n_positions, length, wanted);
  }
  return out;
}

std::vector<Generated> Generator::generate(std::span<const Prompt> prompts, const GenerateOptions& options,
                                           const GenerateHooks& hooks) {
  check_options(options);
  const std::vector<Prompt> rows = checked(prompts, options, hooks);
  std::vector<Generated> out(rows.size());
  const auto group = static_cast<size_t>(decoder_.rows());
  for (size_t first = 0; first < rows.size(); first += group) {
    const size_t count = std::min(group, rows.size() - first);
    run_group(std::span(rows).subspan(first, count), first, options, hooks, std::span(out).subspan(first, count));
  }
  return out;
}

void Generator::run_group(std::span<const Prompt> prompts, size_t first_row, const GenerateOptions& options,
                          const GenerateHooks& hooks, std::span<Generated> out) {
  Sampler sampler(options.sampling);
  const auto known =
      static_cast<size_t>(options.known_ids > 0 ? std::min(options.known_ids, config_.vocab_size) : config_.vocab_size);
  std::vector<std::span<const int32_t>> next;  // what each row appends; empty once it has ended
  for (int64_t row = 0; row < decoder_.rows(); ++row) decoder_.reset(row);
  for (size_t r = 0; r < prompts.size(); ++r) {
    out[r].ids.reserve(static_cast<size_t>(most_new(options, prompts[r].ids.size())));
    next.push_back(prompts[r].ids);
  }
  for (bool going = true; going;) {
    hooks.poll();
    decoder_.append(next, hooks.poll);
    going = false;
    for (size_t r = 0; r < prompts.size(); ++r) {
      if (next[r].empty()) continue;
      const std::span<const float> logits = decoder_.logits(static_cast<int64_t>(r)).first(known);
      Generated& row = out[r];
      const int32_t id = sampler.sample(logits, prompts[r].seed, prompts[r].ids.size() + row.ids.size());
      row.ids.push_back(id);
      if (options.log_probabilities) row.log_probabilities.push_back(log_probability(logits, id));
      const bool wanted = hooks.id(first_row + r, id);
      const bool ended = std::find(options.end_ids.begin(), options.end_ids.end(), id) != options.end_ids.end();
      const bool full = std::ssize(row.ids) == most_new(options, prompts[r].ids.size());
      row.reason = ended ? FinishReason::eos : wanted ? FinishReason::length : FinishReason::stop;
      next[r] = ended || full || !wanted ? std::span<const int32_t>() : std::span<const int32_t>(&row.ids.back(), 1);
      going = going || !next[r].empty();
    }
  }
}

}  // namespace lamina
