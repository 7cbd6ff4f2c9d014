// A Python script as far as the linter needs it: tokens, imports and their aliases, calls with their arguments. It
// reads text and runs nothing; it is no parser: blocks and scopes are not seen, and a name means what it was last bound
// to above, in the order of the text. Names bound by `from x import *`, getattr or a table of functions stay unknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

struct PyToken {
  enum Kind { name, number, text, op, newline };  // newline: the end of a statement's line, none inside brackets
  Kind kind;
  std::string_view word;  // of the script
  int64_t line;
};

struct PyArgument {
  std::string_view name;  // empty: by position
  bool star = false;      // *x or **x: what else is given cannot be known
  size_t begin = 0;       // tokens
  size_t end = 0;
};

struct PyCall {
  std::string callee;   // resolved: "mindspore.nn.LayerNorm"; ".step" for a method of what is unknown
  std::string written;  // "nn.LayerNorm"
  int64_t line = 0;
  bool imported = false;  // the callee begins with an import
  bool dropped = false;   // a whole statement: nothing takes its result
  std::vector<PyArgument> arguments;
  size_t end = 0;  // the token behind its bracket
};

struct PyName {  // an imported thing, or a part of one, anywhere
  std::string path;
  int64_t line = 0;
};

// TARGET = VALUE, both dotted names as written
struct PyAssignment {
  std::string target;
  std::string value;
  int64_t line = 0;
};

struct PyScript {
  std::vector<PyToken> tokens;
  std::vector<PyCall> calls;
  std::vector<PyName> imports;
  std::vector<PyName> uses;  // resolved dotted names that begin with an import
  std::vector<PyAssignment> assignments;
};

constexpr size_t kMaxScriptBytes = size_t{1} << 20;
constexpr size_t kMaxScriptDepth = 200;  // of brackets, as CPython has it

// `text` outlives the result. Throws Error(invalid) that names `where`, the line and what is wrong: too large, no
// UTF-8, a zero byte, a text that does not end, brackets that do not match.
PyScript scan_python(std::string_view text, const std::string& where);

// The words of the tokens with nothing between them.
std::string joined(const PyScript& script, size_t begin, size_t end);

}  // namespace lamina
