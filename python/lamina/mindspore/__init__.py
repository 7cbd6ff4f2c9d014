"""GPT-2 for MindSpore: closed layer cells with Lamina's meaning of masks, precision and training step.

    from lamina.mindspore import GPT2LMHeadModel, TrainStep

    model = GPT2LMHeadModel.from_pretrained("run")      # a HuggingFace or Lamina folder
    logits = model(ids, attention_mask)                 # (B, T) ids in, (B, T, V) out
    step = TrainStep(model, lr=3e-4)
    print(step(ids, targets).loss)
    model.save_pretrained("out")                        # the same kind of folder

Pure MindSpore and numpy: nothing here loads Lamina's compiled extension, and `import lamina` does not import this.
"""
from .cells import GPT2Layer
from .config import GPT2Config
from .errors import Error
from .files import LoadReport
from .fused import FusedGPT2Layer
from .masks import AttentionMask
from .models import GPT2LMHeadModel, GPT2Model
from .precision import LayerPrecisionManager
from .step_graph import LanguageModelLoss
from .training import StepResult, TrainStep

__all__ = ["AttentionMask", "Error", "FusedGPT2Layer", "GPT2Config", "GPT2LMHeadModel", "GPT2Layer", "GPT2Model",
           "LanguageModelLoss", "LayerPrecisionManager", "LoadReport", "StepResult", "TrainStep"]
