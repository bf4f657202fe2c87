"""Which devices compute in bfloat16."""

import torch


def computes_bf16(device: torch.device) -> bool:
    """Whether the device multiplies matrices in bf16 natively; where it does not, bf16 is slower than float32."""
    match device.type:
        case "cuda":
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        case "cpu":
            # x86: the AVX-512 or AMX instructions; Arm: the bf16 extension.
            capabilities = torch.cpu.get_capabilities()
            return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
        case _:
            return False
