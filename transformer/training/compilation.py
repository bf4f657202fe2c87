"""Training with compiled layers."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from transformer.nn.layers import TransformerLayer


class CompiledLayers(Callback):
    """Compiles every layer with ``torch.compile`` for training; validation and searches run as they are.

    Layers are compiled one by one, so the compiler sees one small function for all that are alike, and the names of
    the weights stay. Outside of training the shapes change at every token, at which compiled code would not pay.
    """

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for module in pl_module.modules():
            if isinstance(module, TransformerLayer):
                module.compile()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        torch.compiler.set_stance("force_eager")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        torch.compiler.set_stance("default")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        torch.compiler.set_stance("default")
