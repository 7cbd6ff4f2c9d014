// The documents of a text corpus, in the order of its files: each text file is one, and so is each line of a file whose
// name ends with .jsonl (an object with the text in one of its fields; blank lines are passed over). Some megabytes at
// a time, so that memory does not grow with the corpus. Splits no text into words.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/encode_documents.h"
#include "io/text_files.h"

namespace lamina {

struct DocumentOptions {
  InvalidUtf8 invalid = InvalidUtf8::refuse;
  std::string text_field = "text";  // of the lines of .jsonl files
};

class DocumentReader {
 public:
  // `say` takes a line for people: a byte-order mark that was dropped, bytes that were replaced.
  DocumentReader(std::vector<std::string> files, DocumentOptions options,
                 std::function<void(const std::string&)> say = {});

  // The next documents, empty behind the last. They live until the next call. Throws Error that names the file, and the
  // line (from 1) of a .jsonl file.
  std::span<const Document> next();

 private:
  void open(const std::string& path);
  void read_lines();

  std::vector<std::string> files_;
  DocumentOptions options_;
  std::function<void(const std::string&)> say_;
  size_t next_file_ = 0;
  std::deque<TextFile> open_;      // whose text the documents look at
  std::optional<TextFile> lines_;  // a .jsonl file in the middle
  size_t at_ = 0;                  // place in it
  int64_t line_ = 0;
  std::deque<std::string> texts_;  // out of its lines
  std::vector<Document> documents_;
  size_t bytes_ = 0;  // of the documents
};

// The text of one line. `where` names the file and the line for messages.
std::string text_of_json_line(std::string_view line, const std::string& field, const std::string& where);

}  // namespace lamina
