// --precision as a person writes it, and what it means: which parts of the model take 16-bit operands, in which
// arithmetic they are multiplied here, and why.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "kernels/kernel.h"
#include "model/precision.h"
#include "plan/plan.h"

namespace lamina {

struct Precision {
  std::string name = "fp32";  // as given
  PrecisionMap map;
  bool exact_products = false;  // mixed-bf16: products of bf16 numbers and nothing else
};

// fp32: nothing in 16 bits. mixed: bf16 wherever products are, embedding rows excepted; mixed-bf16: the same, with bf16
// products only; mixed-fp16: fp16 in their place. Another word is the path of a JSON object from patterns
// (model/precision.h) to fp32, bf16 or fp16. Throws Error(usage) for a word that is neither, Error(io or invalid) for a
// file that cannot be read or says something else.
Precision parse_precision(const std::string& word);

// Whether some part is fp16: its gradients need a loss scale.
bool needs_loss_scale(const std::vector<PartPrecision>& parts);

// The parts as a map of as few patterns as say the same: "layer.0-11.attention.q": "bf16".
nlohmann::json precision_map_json(const std::vector<PartPrecision>& parts);
// The same on one line: "bf16: layer.0-11.mlp.fc, …; fp32: embedding".
std::string precision_map_text(const std::vector<PartPrecision>& parts);

// What multiplies operands of each type here; all fp32 where nothing is in 16 bits.
Arithmetics choose_arithmetics(Isa isa, const Precision& precision);

// What multiplies operands of each 16-bit type that the parts take: "bf16store", "bf16dot", "f16chunk", "f16store".
std::string arithmetic_label(Dtype dtype, Arithmetic arithmetic);
nlohmann::json arithmetics_json(const std::vector<PartPrecision>& parts, const Arithmetics& arithmetics);
// Those of a run that goes on, as arithmetics_json wrote them, where this machine has them and they are what
// `precision` allows; else those chosen now.
Arithmetics kept_arithmetics(Isa isa, const nlohmann::json& stored, const Precision& precision);

// What the products of a step could reach at the peaks of the arithmetics that they are computed in, over the fp32
// peak.
struct ProductPeaks {
  double all = 1.0;     // of all of them, each in its own
  double narrow = 1.0;  // of those that are not in fp32
};
// Measured for about `seconds` where some are not in fp32.
ProductPeaks product_peaks(const Plan& plan, ThreadTeam& team, double seconds);

// One line for each 16-bit type of the parts whose products are no faster than fp32's here, with what they cost,
// measured.
std::vector<std::string> emulation_warnings(Isa isa, const std::vector<PartPrecision>& parts,
                                            const Arithmetics& arithmetics);
std::string emulation_warning(Isa isa, Dtype dtype);

}  // namespace lamina
