// Which calls a rule of lint_rules.def finds in a script, as data.
#pragma once

#include <span>
#include <string_view>

namespace lamina {

enum class When {
  always,
  absent,         // none of the arguments is given, by name or by position
  given,          // one of them is
  positional,     // the first is given by its place
  value,          // the first is one of `values`
  value_dropped,  // the same, and nothing takes the call's result
  dropped,        // nothing takes the call's result
};

struct CallRule {
  std::string_view rule = {};
  std::string_view callee =
      {};  // as it is documented; ".name": a method of anything; "": a call of what no import names
  When when = When::always;
  std::string_view argument = {};  // names with | between them
  int position = -1;               // of the first of them; -1: by name only
  std::string_view what = {};      // what a finding says after the call
  std::string_view values = {};    // literals with blanks between them
  std::string_view imports = {};   // only in scripts that import one of these, with | between them
};

std::span<const CallRule> call_rules();

}  // namespace lamina
