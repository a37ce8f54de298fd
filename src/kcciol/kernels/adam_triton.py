"""`meta.adam.update_` in one pass over memory."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _kernel(Theta, gradient, m, v, scale, gamma, clamp, n, beta1, beta2, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    w = tl.load(Theta + at, mask=inside)
    g = tl.load(gradient + at, mask=inside)
    g += gamma * ((w > 0).to(tl.float32) - (w < 0).to(tl.float32))
    g = tl.maximum(g, -clamp, propagate_nan=tl.PropagateNan.ALL)  # a clamp must not hide that something went wrong
    g = tl.minimum(g, clamp, propagate_nan=tl.PropagateNan.ALL)
    m_new = tl.load(m + at, mask=inside)
    m_new += (1 - beta1) * (g - m_new)
    v_new = beta2 * tl.load(v + at, mask=inside) + (1 - beta2) * g * g
    w -= tl.load(scale) * m_new / (tl.sqrt(v_new) * tl.load(scale + 1) + eps)
    tl.store(m + at, m_new, mask=inside)
    tl.store(v + at, v_new, mask=inside)
    tl.store(Theta + at, w, mask=inside)


def update_(
    Theta: Tensor,
    gradient: Tensor,
    m: Tensor,
    v: Tensor,
    scale: Tensor,
    gamma: float,
    clamp: float,
    constants: tuple[float, float, float],
) -> None:
    """See `meta.adam.update_`."""
    n = Theta.numel()
    limit = clamp if clamp else float("inf")
    _kernel[(triton.cdiv(n, _BLOCK),)](
        Theta, gradient, m, v, scale, gamma, limit, n, *constants, BLOCK=_BLOCK, num_warps=4
    )
