// Each rule fires on a small example and not on its corrected form, and nothing is a rule without one.
#include "migrate/lint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace lamina {
namespace {

enum class Kind { script, config, generation, tensors };

struct Case {
  const char* rule;
  Kind kind;
  const char* wrong;  // tensors: lines "NAME DTYPE SIZE SIZE ...", and "ckpt" for that format
  const char* right;
};

constexpr const char* kMs = "import mindspore as ms\nfrom mindspore import nn, ops, mint\n";
constexpr const char* kPt = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n";

const Case kCases[] = {
#include "lint_cases.inc"
};

// A script's first word says which imports stand before it.
std::string script_of(std::string text) {
  if (text.starts_with("ms: ")) return kMs + text.substr(4) + "\n";
  if (text.starts_with("pt: ")) return kPt + text.substr(4) + "\n";
  return text + "\n";
}

TensorContent tensors_of(std::string_view text) {
  TensorContent content{"safetensors", {}, {}, {}, {}};
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line == "ckpt") {
      content.format = "mindspore-ckpt";
      continue;
    }
    std::vector<std::string> words;
    for (size_t at = 0; at <= line.size(); at = line.find(' ', at) + 1) {
      words.push_back(line.substr(at, line.find(' ', at) - at));
      if (line.find(' ', at) == std::string::npos) break;
    }
    StoredTensor tensor{words[0], words[1], {}, {}, {}, 4};
    for (size_t i = 2; i < words.size(); ++i) {
      tensor.shape.push_back(std::stoll(words[i]));
      tensor.bytes *= tensor.shape.back();
    }
    content.tensors.push_back(tensor);
  }
  return content;
}

ModelConfig config_of(std::string_view text) {
  ModelConfig config;
  config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0.0;
  config.tie_word_embeddings = false;
  if (text == "dropout") config.attn_pdrop = 0.1;
  if (text == "tied") config.tie_word_embeddings = true;
  if (text == "unscaled") config.scale_attn_weights = false;
  if (text == "by layer") config.scale_attn_by_inverse_layer_idx = true;
  if (text == "upcast") config.reorder_and_upcast_attn = true;
  return config;
}

std::vector<Finding> lint(Kind kind, const char* text) {
  switch (kind) {
    case Kind::script: return lint_script(script_of(text), "f.py");
    case Kind::config: return lint_config(config_of(text), "config.json");
    case Kind::generation: return lint_generation(text, "generation_config.json");
    default: return lint_tensors(tensors_of(text), std::nullopt, "f");
  }
}

int64_t count(const std::vector<Finding>& found, std::string_view rule) {
  return std::count_if(found.begin(), found.end(), [rule](const Finding& finding) { return finding.rule->id == rule; });
}

TEST(Lint, EachRuleFiresAndItsCorrectedFormDoesNot) {
  std::set<std::string_view> seen;
  for (const Case& one : kCases) {
    seen.insert(one.rule);
    EXPECT_GE(count(lint(one.kind, one.wrong), one.rule), 1) << one.rule << ": " << one.wrong;
    EXPECT_EQ(count(lint(one.kind, one.right), one.rule), 0) << one.rule << ": " << one.right;
  }
  for (const LintRule& rule : lint_rules()) EXPECT_TRUE(seen.contains(rule.id)) << "no case for " << rule.id;
}

TEST(Lint, RulesAreWhole) {
  std::set<std::string_view> ids;
  for (const LintRule& rule : lint_rules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id << " comes twice";
    for (const std::string_view text :
         {rule.pytorch, rule.mindspore, rule.consequence, rule.pytorch_setting, rule.mindspore_setting, rule.versions})
      EXPECT_FALSE(text.empty()) << rule.id;
    EXPECT_NE(lint_rules_markdown().find("| `" + std::string(rule.id) + "` ("), std::string::npos);
  }
}

const Finding& only(const std::vector<Finding>& found, std::string_view rule) {
  EXPECT_EQ(count(found, rule), 1) << rule;
  return *std::find_if(found.begin(), found.end(), [rule](const Finding& finding) { return finding.rule->id == rule; });
}

TEST(Lint, DropoutIsWrittenOutAsTheShareDroppedAndKept) {  // case M12
  const auto found = lint(Kind::config, "dropout");
  const Finding& dropout = only(found, "dropout-positional");
  EXPECT_EQ(dropout.place.name, "attn_pdrop");
  EXPECT_EQ(dropout.pytorch, "nn.Dropout(p=0.1)");
  EXPECT_EQ(dropout.mindspore, "nn.Dropout(p=0.1); keep_prob=0.9 for the primitive ops.Dropout");
  EXPECT_EQ(only(lint(Kind::script, "ms: nn.Dropout(0.9)"), "dropout-positional").mindspore,
            "p=0.1 keeps what it does now; p=0.9 if that share was to be dropped");
  EXPECT_EQ(only(lint(Kind::script, "ms: nn.Dropout(rate)"), "dropout-positional").pytorch,
            "p=1 - (rate) keeps what it does now; p=rate if that share was to be dropped");
  EXPECT_EQ(only(lint(Kind::script, "pt: nn.Dropout(0.1)"), "dropout-positional").mindspore, "p=0.1");
}

TEST(Lint, ConfigValuesAreInTheSettings) {
  ModelConfig config;
  config.layer_norm_epsilon = 3e-6;
  config.activation_function = "gelu";
  config.scale_attn_by_inverse_layer_idx = true;
  const auto found = lint_config(config, "c");
  EXPECT_EQ(only(found, "layernorm-epsilon").mindspore, "nn.LayerNorm(..., epsilon=3e-06)");
  EXPECT_EQ(only(found, "layernorm-epsilon").pytorch, "nn.LayerNorm(..., eps=3e-06)");
  EXPECT_EQ(only(found, "gelu-form").mindspore, "nn.GELU(approximate=False)");
  EXPECT_EQ(only(found, "gelu-form").pytorch, "nn.GELU(approximate='none')");
  EXPECT_EQ(only(found, "attention-scale").mindspore, "scores * 1/sqrt(64)/(layer + 1) written out");
  for (const Finding& finding : found) EXPECT_NE(finding.severity, Severity::error) << finding.rule->id;
}

TEST(Lint, TensorsAreCountedPerRule) {
  const auto found = lint(Kind::tensors, "h.0.attn.c_proj.weight F16 4 4\nh.1.attn.c_proj.weight F16 4 4\nx F16 3");
  EXPECT_EQ(only(found, "weight-layout").what, "square: its shape does not say which way it lies (2 tensors)");
  EXPECT_EQ(only(found, "sixteen-bit-weights").what, "F16 (3 tensors)");
  EXPECT_EQ(only(found, "weight-layout").place.name, "h.0.attn.c_proj.weight");
}

TEST(Lint, AVocabularyIsComparedWithTheConfig) {
  ModelConfig config;
  config.vocab_size = 97;
  const auto padded = lint_tensors(tensors_of("wte.weight F32 128 16"), config, "f");
  EXPECT_EQ(only(padded, "padded-vocabulary").what, "128 rows, and vocab_size is 97");
  EXPECT_TRUE(lint_tensors(tensors_of("wte.weight F32 97 16"), config, "f").empty());
}

// What a script says is found whatever it looks like; line numbers are those of the call.
TEST(Lint, ScriptsAreReadAsPythonDoes) {
  const auto epsilon = [](const std::string& text) {
    const auto found = lint_script(text, "f.py");
    return count(found, "layernorm-epsilon") > 0
               ? std::find_if(found.begin(), found.end(),
                              [](const auto& f) { return f.rule->id == "layernorm-epsilon"; })
                     ->place.line
               : 0;
  };
  EXPECT_EQ(epsilon("import mindspore.nn as mnn\nx = [mnn.LayerNorm((4,)) for _ in y]\n"), 2);
  EXPECT_EQ(epsilon("import mindspore\n\nmindspore.nn.LayerNorm((4,))"), 3);
  EXPECT_EQ(epsilon("import mindspore.nn\nmindspore.nn.LayerNorm((4,))"), 2);
  EXPECT_EQ(epsilon("from mindspore.nn import (Dense,\n  LayerNorm as Norm)\nNorm((4,))"), 3);
  EXPECT_EQ(epsilon("from mindspore.nn.layer.normalization import LayerNorm\r\nLayerNorm((4,))\r\n"), 2);
  EXPECT_EQ(epsilon("from mindspore import nn\nnorm = nn.LayerNorm\nnorm((4,))"), 3);
  EXPECT_EQ(epsilon("from mindspore import nn; a = f(g(nn.LayerNorm(\n(4,),\n)))"), 1);
  EXPECT_EQ(epsilon("from mindspore \\\n import nn\nnn \\\n .LayerNorm((4,))"), 3);
  EXPECT_EQ(epsilon("from mindspore import nn\nnn.LayerNorm((4,), -1, -1, 'ones', 'zeros', 1e-5)"), 0);
  EXPECT_EQ(epsilon("from mindspore import nn\nnn.LayerNorm(**settings)"), 0);  // who knows
  EXPECT_EQ(epsilon("from mindspore import nn\nnn.LayerNorm(f(epsilon=1e-5))"), 2);
  EXPECT_EQ(epsilon("from mindspore import nn\n# nn.LayerNorm(4)\n'nn.LayerNorm(4)'\n'''\nnn.LayerNorm(4)\n'''"), 0);
  EXPECT_EQ(epsilon("from mindspore import nn\nclass LayerNorm(nn.Cell):\n  pass\nLayerNorm(4)"), 0);
  EXPECT_EQ(epsilon("from mindspore.nn import LayerNorm\nclass LayerNorm(object):\n  pass\nLayerNorm(4)"), 0);
  EXPECT_EQ(epsilon("from .mindspore import nn\nnn.LayerNorm(4)"), 0);
  EXPECT_EQ(epsilon("from keras import layers as nn\nnn.LayerNorm(4)"), 0);
  EXPECT_EQ(epsilon("from mindspore import nn\nself.nn.LayerNorm(4)"), 0);
  EXPECT_EQ(epsilon("from mindspore import nn\nnn.LayerNorm(lambda a, b: a, -1, -1, 1, 1, 1e-5)"), 0);
  EXPECT_EQ(epsilon("\xEF\xBB\xBF"
                    "from mindspore import nn\nnn.LayerNorm(rb'\\'', x := 4, y == 4)"),
            2);
}

TEST(Lint, ANotebookIsTheScriptOfItsCells) {
  const std::string text = R"json({"nbformat": 4, "cells": [
    {"cell_type": "markdown", "source": ["nn.LayerNorm(4)"]},
    {"cell_type": "code", "outputs": [],
     "source": ["%matplotlib inline\n", "!pip install mindspore\n", "from mindspore import nn"]},
    {"cell_type": "code", "source": "%%bash\nnn.LayerNorm(4)"},
    {"cell_type": "code", "source": "!pip install \\\n  'x\nfiles = !ls 'a\nprint('%d'\n      % (1,))"},
    {"cell_type": "code", "source": "%%time\nnorm = nn.LayerNorm((4,))\n"}]})json";
  const auto found = lint_notebook(text, "a.ipynb");
  const Finding& epsilon = only(found, "layernorm-epsilon");
  EXPECT_EQ(epsilon.place.file, "a.ipynb: cell 5");
  EXPECT_EQ(epsilon.place.line, 2);
  EXPECT_TRUE(lint_notebook(R"({"cells": []})", "b").empty());
  for (const char* wrong : {"[]", "{}", R"({"cells": 3})", R"({"cells": [1]})", R"({"cells": [{"cell_type": "code"}]})",
                            R"({"cells": [{"cell_type": "code", "source": [1]}]})"})
    EXPECT_THROW(lint_notebook(wrong, "b.ipynb"), Error) << wrong;
  try {
    lint_notebook(
        R"({"cells": [{"cell_type": "code", "source": "x = 1"}, {"cell_type": "code", "source": "\ny = (1"}]})", "c");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("c: cell 2: line 2"), std::string::npos) << error.what();
  }
}

TEST(Lint, WhatCannotBeFollowedIsRefused) {
  const auto refused = [](const std::string& text) -> std::string {
    try {
      lint_script(text, "f.py");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused("x = (1,\n"), "bad script: f.py: line 1: expected a bracket that is closed, got \"(\"");
  EXPECT_EQ(refused("\nx = (1]"), "bad script: f.py: line 2: expected brackets that match, got \"]\"");
  EXPECT_EQ(refused("x = 'a\n"), "bad script: f.py: line 1: expected a text that ends in its line, got \"'a\\x0a\"");
  EXPECT_NE(refused("'''a\\").find("a text that ends"), std::string::npos);
  EXPECT_NE(refused(std::string(201, '(')).find("at most 200 open brackets"), std::string::npos);
  EXPECT_NE(refused(std::string(200, '(')).find("a bracket that is closed"), std::string::npos);
  EXPECT_NE(refused(std::string("a\0b", 3)).find("byte 1: expected text, got a zero byte"), std::string::npos);
  EXPECT_NE(refused("a\xFF").find("byte 1"), std::string::npos);
  EXPECT_NE(refused(std::string((1 << 20) + 1, ' ')).find("expected at most 1048576 bytes"), std::string::npos);
  EXPECT_EQ(refused(std::string(1 << 20, '#')), "");
}

}  // namespace
}  // namespace lamina
