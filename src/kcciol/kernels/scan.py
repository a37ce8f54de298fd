"""The two sequential loops of the low-rank inner loop: plain on any device, one Triton kernel on a GPU.

Both walk over k examples of t trajectories at once; x_j waits for all earlier x_i. On a GPU the k tiny steps are one
kernel, one block for each trajectory, instead of some eight launches a step.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.kernels import have_triton


def softmax_scan(P: Tensor, G: Tensor, y: Tensor, alpha: float) -> Tensor:
    """p_j = softmax(P_j - alpha sum_{i<j} G_ji (p_i - onehot(y_i))); P (t, k, c), G (t, k, k), y (t, k)."""
    if P.is_cuda and P.dtype == torch.float32 and have_triton():
        from kcciol.kernels import scan_triton

        return scan_triton.softmax_scan(P, G, y, alpha)
    onehot = F.one_hot(y, P.shape[-1])
    p, D = torch.empty_like(P), torch.empty_like(P)
    for j in range(P.shape[1]):
        logits = P[:, j]
        if j:
            logits = torch.baddbmm(logits[:, None], G[:, j : j + 1, :j], D[:, :j], alpha=-alpha)[:, 0]
        p[:, j] = torch.softmax(logits, -1)
        D[:, j] = p[:, j] - onehot[:, j]
    return p


def jacobian_scan(
    start: Tensor, G: Tensor, p: Tensor, alpha: float, reverse: bool = False, offset: Tensor | None = None
) -> Tensor:
    """x_j = J_j (start_j - alpha sum_{i before j} G_ji x_i) + offset_j, J_j = diag(p_j) - p_j p_j^T; all (t, k, c).

    "Before" means i < j, or with reverse i > j. G is symmetric.
    """
    if p.is_cuda and p.dtype == torch.float32 and have_triton():
        from kcciol.kernels import scan_triton

        return scan_triton.jacobian_scan(start, G, p, alpha, reverse, offset)
    k = p.shape[1]
    x = torch.empty_like(p)
    for j in reversed(range(k)) if reverse else range(k):
        done = slice(j + 1, k) if reverse else slice(0, j)
        c = start[:, j]
        if done.stop > done.start:
            c = torch.baddbmm(c[:, None], G[:, j : j + 1, done], x[:, done], alpha=-alpha)[:, 0]
        x[:, j] = p[:, j] * (c - (p[:, j] * c).sum(-1, True))
        if offset is not None:
            x[:, j] += offset[:, j]
    return x
