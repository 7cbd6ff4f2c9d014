// Generation: prompts in, new ids out. Every row is as if it were alone: its ids depend on its prompt, its seed and the
// options. More prompts than the plan has rows are done in groups.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infer/decoder.h"
#include "infer/sampler.h"
#include "model/config.h"

namespace lamina {

struct GenerateOptions {
  // New ids of a row, the end id among them. None: 128, or what the context leaves to the row's own prompt.
  std::optional<int64_t> max_tokens = {};
  SamplingOptions sampling = {};
  std::vector<int32_t> end_ids = {};  // any of them ends its row
  int64_t known_ids = 0;  // only ids below this one are drawn: those that the tokenizer has; 0: all of the model's
  bool log_probabilities = false;
};

// Throws Error(usage) that names the option and its value.
void validate(const GenerateOptions& options);

struct Prompt {
  std::vector<int32_t> ids;  // empty: starts from the config's bos_token_id
  uint64_t seed = 0;         // rows with equal prompts and seeds give equal ids
};

enum class FinishReason {
  eos,     // one of the end ids, which is the row's last
  length,  // max_tokens, or the end of the context
  stop     // the caller: a stop text was met
};
std::string_view finish_reason_name(FinishReason reason);  // "eos", "length", "stop"

struct Generated {
  std::vector<int32_t> ids;  // new ones only, the end id included
  FinishReason reason = FinishReason::length;
  std::vector<double> log_probabilities;  // of each id, before temperature and filters; empty unless asked for
};

struct GenerateHooks {
  // After each new id, in order within a row. False ends the row.
  std::function<bool(size_t row, int32_t id)> id = [](size_t, int32_t) { return true; };
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for people
  std::function<void()> poll = [] {};  // between runs; may throw, and the next call of generate starts afresh
};

class Generator {
 public:
  // The session's plan was compiled for `config` with generate_batch > 0.
  Generator(Session& session, const ModelConfig& config);

  // Throws before the first id: Error(usage) for options, Error(invalid) that names the row for a prompt that with
  // max_tokens exceeds n_positions, for an id outside the vocabulary, for an empty prompt where there is no
  // bos_token_id.
  std::vector<Generated> generate(std::span<const Prompt> prompts, const GenerateOptions& options,
                                  const GenerateHooks& hooks = {});

 private:
  std::vector<Prompt> checked(std::span<const Prompt> prompts, const GenerateOptions& options,
                              const GenerateHooks& hooks) const;
  void check_options(const GenerateOptions& options) const;
  int64_t most_new(const GenerateOptions& options, size_t prompt_length) const;
  void run_group(std::span<const Prompt> prompts, size_t first_row, const GenerateOptions& options,
                 const GenerateHooks& hooks, std::span<Generated> out);

  ModelConfig config_;
  Decoder decoder_;
};

}  // namespace lamina
