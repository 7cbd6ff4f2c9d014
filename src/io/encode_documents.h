// Many texts, or one large one, to ids on all threads of a team. The ids are those of one Encoder per text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_team.h"
#include "io/tokenizer.h"

namespace lamina {

struct Document {
  std::string_view text;
  std::string where = "text";  // for messages, as in EncodeOptions
  int64_t base = 0;
};

// The ids of each document; `options.where` and `.base` are those of the documents. `counts` are added to. Of several
// faulty documents the first is told.
std::vector<std::vector<int32_t>> encode_documents(const Tokenizer& tokenizer, std::span<const Document> documents,
                                                   ThreadTeam& team, const EncodeOptions& options,
                                                   EncodeCounts& counts);

}  // namespace lamina
