"""What transformers' GPT2LMHeadModel computes, for `lamina verify --with torch`: in double, so that nothing hides behind
rounding. argv: JSON with the model, the inputs (a safetensors file) and where to put the numbers."""
import json
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file


def probe(model, kept):
    """The residual stream before each norm and behind the last one."""
    def keep(name, value):  # a hook that returns something would replace what flows on
        kept.setdefault(name, value.detach())

    body, before = model.transformer, {}
    for i, block in enumerate(body.h):
        before[block.ln_1] = "embedding" if i == 0 else f"layer.{i - 1}.mlp.residual"
        before[block.ln_2] = f"layer.{i}.attention.residual"
    before[body.ln_f] = f"layer.{len(body.h) - 1}.mlp.residual"
    for norm, name in before.items():
        norm.register_forward_pre_hook(lambda _, args, name=name: keep(name, args[0]))
    body.ln_f.register_forward_hook(lambda _, args, out: keep("ln_f", out))


def main():
    task = json.loads(sys.argv[1])
    with safe_open(task["inputs"], framework="pt") as file:
        tokens, targets = file.get_tensor("tokens"), file.get_tensor("targets")
        about = file.metadata()
    torch.set_num_threads(task["threads"])
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.GPT2LMHeadModel.from_pretrained(task["model"], dtype=torch.float32, attn_implementation="eager",
                                                         reorder_and_upcast_attn=False)  # in double it means the same, and fails
    model = model.double().eval()
    out = {}
    probe(model, out)
    logits, again = (model(input_ids=tokens.long(), use_cache=False).logits for _ in range(2))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.long().flatten(), ignore_index=-1)
    loss.backward()
    out.update({"logits": logits, "loss": loss.reshape(1)})
    if not torch.equal(logits, again):
        out["logits.again"] = again
    for name, parameter in model.named_parameters():
        out["grad." + name.removeprefix("transformer.")] = parameter.grad
    if not model.config.tie_word_embeddings:
        out["param.lm_head.weight"] = model.lm_head.weight
    out.update(tokens=tokens, targets=targets)
    about.update(engine=f"torch {torch.__version__}, transformers {transformers.__version__}", unit=str(2.0**-53))
    save_file({name: value.detach().contiguous() for name, value in out.items()}, task["out"], metadata=about)


if __name__ == "__main__":
    main()
