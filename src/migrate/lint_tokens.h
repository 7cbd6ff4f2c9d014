// The tokens of a Python script: names, numbers, texts, operators and ends of lines; comments and what is inside texts
// are gone. An f-string is one text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "migrate/lint_python.h"

namespace lamina {

// Throws Error(invalid) as scan_python says.
std::vector<PyToken> python_tokens(std::string_view text, const std::string& where);

}  // namespace lamina
