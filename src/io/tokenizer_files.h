// The files of a byte-level BPE: HuggingFace's tokenizer.json (merges as texts or as pairs), or vocab.json + merges.txt
// (also under OpenAI's names encoder.json + vocab.bpe). What a file asks for beyond GPT-2's tokenizer is refused by
// name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer.h"

namespace lamina {

struct LoadedTokenizer {
  Tokenizer tokenizer;
  std::vector<std::string> warnings;  // a line each, for people
};

// `path`: a folder, or one of the files named above. Throws Error that names the file, and the merge by number from 0.
LoadedTokenizer load_tokenizer(const std::string& path);

// Whether a folder holds files that load_tokenizer() would take.
bool has_tokenizer(const std::string& folder);

// The same from text.
LoadedTokenizer parse_tokenizer_json(std::string_view text, const std::string& where);
LoadedTokenizer parse_vocab_and_merges(std::string_view vocab, const std::string& vocab_where, std::string_view merges,
                                       const std::string& merges_where);

// Equal tokenizers give equal texts. HuggingFace's tokenizers library reads the first with equal ids, old versions too.
std::string tokenizer_json_text(const Tokenizer& tokenizer);
std::string tokenizer_config_text(const Tokenizer& tokenizer, int64_t max_length);

// Whether a tokenizer that is yet to be learned can be saved there: throws Error(invalid) where a model or a run lies
// there, whose tokenizer.json it would replace, and Error(io) where nothing can be written.
void check_tokenizer_folder(const std::string& folder);

// tokenizer.json and tokenizer_config.json. `max_length` is the model's context.
void save_tokenizer(const std::string& folder, const Tokenizer& tokenizer, int64_t max_length);

}  // namespace lamina
