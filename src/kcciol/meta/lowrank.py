"""The inner loop again, without ever building W_k.

A step on one example changes a layer by a matrix of rank one, -alpha d_j z_j^T, where d_j is the error at the layer's
output. So what the layer says of any z after j steps is what W_0 says of it, minus alpha times the sum over i < j of
(z_i.z + 1) d_i; the 1 is the bias. The whole inner loop is carried by the k x k matrix of those products and k error
vectors.

`LinearLowRank` has its derivatives written out. With P = z W^T + b, G = z_tr z_tr^T + 1, Q = z_val z_tr^T + 1,
D = the errors, E = the gradient at the logits of tau_val, and L, U the strict lower and upper part of a matrix:

    D_j = softmax(P_j - alpha (L(G) D)_j) - onehot(y_j)          softmax_scan
    O   = P_val - alpha Q D,     E = (softmax(O) - onehot) / (s t)
    C   = -alpha Q^T E - alpha U(G) B,   B_j = J_j C_j            jacobian_scan, backwards
    with J_j = diag(p_j) - p_j p_j^T and p_j = D_j + onehot: B is the gradient at the logits of tau_tr.

First order takes D, and z_tr where it is part of an update, as constants: then B = 0 and only tau_val counts.
`HiddenLowRank` writes the forward loop out and leaves the derivatives to autograd.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.kernels import scan
from kcciol.meta.inner import Autograd, Inner, TrajectoryLabels, Weights


class LinearLowRank(Inner):
    """Linear W, derivatives written out; see the head of this file for the names. `loss` is for autograd all the same:
    of a network whose derivatives are not written out."""

    def loss(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> Tensor:
        exact, (z_tr, z_val) = self.order == "exact", y.split(z)
        P_tr, P_val = y.split(F.linear(z, W["weight"], W["bias"]))
        target = F.one_hot(y.train, P_tr.shape[-1])
        with torch.set_grad_enabled(exact):
            G, D = z_tr @ z_tr.mT + 1, torch.zeros_like(P_tr[:, :0])  # (t, k, k), (t, j, c)
            for j in range(y.train.shape[1]):
                logits = P_tr[:, j : j + 1] - self.alpha * (G[:, j : j + 1, :j] @ D)
                D = torch.cat([D, logits.softmax(-1) - target[:, j : j + 1]], 1)
        Q = z_val @ (z_tr if exact else z_tr.detach()).mT + 1
        return F.cross_entropy((P_val - self.alpha * (Q @ D)).flatten(0, 1), y.val.flatten())

    def gradient(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        self.W, self.z, self.y = W, z, y
        self.z_tr, self.z_val = y.split(z)  # (t, k, d), (t, s, d)
        outputs = W["bias"].shape[0]
        P_tr, P_val = y.split(F.linear(z, W["weight"], W["bias"]))
        self.G, self.Q = self.z_tr @ self.z_tr.mT + 1, self.z_val @ self.z_tr.mT + 1
        self.p = scan.softmax_scan(P_tr, self.G, y.train, self.alpha)  # (t, k, c)
        self.D = self.p - F.one_hot(y.train, outputs)
        log_p = torch.log_softmax(torch.baddbmm(P_val, self.Q, self.D, alpha=-self.alpha), -1)  # (t, s, c)
        loss = -log_p.gather(-1, y.val[..., None]).mean()
        self.p_val = log_p.exp()
        self.E = (self.p_val - F.one_hot(y.val, outputs)) / y.val.numel()
        self.Qbar = -self.alpha * (self.E @ self.D.mT)  # (t, s, k): the gradient in Q
        if self.order == "first":
            gW = {"weight": _outer(self.E, self.z_val), "bias": self.E.sum((0, 1))}
            return loss, gW, _flat(torch.zeros_like(self.z_tr), self.E @ W["weight"] + self.Qbar @ self.z_tr)
        start = -self.alpha * (self.Q.mT @ self.E)
        self.B = scan.jacobian_scan(start, self.G, self.p, self.alpha, reverse=True)  # (t, k, c)
        self.C = start - self.alpha * (self.G.triu(1) @ self.B)
        self.Gbar = _symmetric_lower(-self.alpha * (self.B @ self.D.mT))  # (t, k, k): the gradient in G, both ways
        self.Pbar = _flat(self.B, self.E)
        gW = {"weight": self.Pbar.T @ z, "bias": self.Pbar.sum(0)}
        u = self.Pbar @ W["weight"]
        u += _flat(self.Gbar @ self.z_tr + self.Qbar.mT @ self.z_val, self.Qbar @ self.z_tr)
        return loss, gW, u

    def hvp(self, v: Weights, zdot: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        return self._hvp_first(v, zdot) if self.order == "first" else self._hvp_exact(v, zdot)

    def _hvp_first(self, v: Weights, zdot: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The Hessian of the loss on tau_val at W_k, whose distance from W is a constant."""
        W, (_, zdot_val) = self.W, self.y.split(zdot)
        Odot = F.linear(zdot_val, W["weight"]) + F.linear(self.z_val, v["weight"], v["bias"])
        Odot -= self.alpha * ((zdot_val @ self.z_tr.mT) @ self.D)
        Edot = _jacobian(self.p_val, Odot) / self.y.val.numel()
        gWdot = {"weight": _outer(Edot, self.z_val) + _outer(self.E, zdot_val), "bias": Edot.sum((0, 1))}
        udot = Edot @ W["weight"] + self.E @ v["weight"] - self.alpha * ((Edot @ self.D.mT) @ self.z_tr)
        return gWdot, _flat(torch.zeros_like(self.z_tr), udot)

    def _hvp_exact(self, v: Weights, zdot: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        W, alpha, z_tr, z_val = self.W, self.alpha, self.z_tr, self.z_val
        zdot_tr, zdot_val = self.y.split(zdot)
        Pdot_tr, Pdot_val = self.y.split(F.linear(zdot, W["weight"]) + F.linear(self.z, v["weight"], v["bias"]))
        half = zdot_tr @ z_tr.mT
        Gdot, Qdot = half + half.mT, zdot_val @ z_tr.mT + z_val @ zdot_tr.mT
        # forward: how the errors and the gradient at tau_val's logits move
        start = Pdot_tr - alpha * (Gdot.tril(-1) @ self.D)
        Ddot = scan.jacobian_scan(start, self.G, self.p, alpha)
        Odot = Pdot_val - alpha * (Qdot @ self.D + self.Q @ Ddot)
        Edot = _jacobian(self.p_val, Odot) / self.y.val.numel()
        # backward: how the gradient at tau_tr's logits moves; J itself moves with p, and p' = D'
        start = -alpha * (Qdot.mT @ self.E + self.Q.mT @ Edot + Gdot.triu(1) @ self.B)
        turn = Ddot * (self.C - (self.p * self.C).sum(-1, True)) - self.p * (Ddot * self.C).sum(-1, True)
        Bdot = scan.jacobian_scan(start, self.G, self.p, alpha, reverse=True, offset=turn)
        # the products of the gradient
        Qbardot = -alpha * (Edot @ self.D.mT + self.E @ Ddot.mT)
        Gbardot = _symmetric_lower(-alpha * (Bdot @ self.D.mT + self.B @ Ddot.mT))
        Pbardot = _flat(Bdot, Edot)
        gWdot = {"weight": Pbardot.T @ self.z + self.Pbar.T @ zdot, "bias": Pbardot.sum(0)}
        udot = Pbardot @ W["weight"] + self.Pbar @ v["weight"]
        udot += _flat(
            Gbardot @ z_tr + self.Gbar @ zdot_tr + Qbardot.mT @ z_val + self.Qbar.mT @ zdot_val,
            Qbardot @ z_tr + self.Qbar @ zdot_tr,
        )
        return gWdot, udot


def _flat(train: Tensor, val: Tensor) -> Tensor:
    """(t, k, x) and (t, s, x) -> (t k + t s, x), the order of z."""
    return torch.cat([train.flatten(0, 1), val.flatten(0, 1)])


def _outer(g: Tensor, z: Tensor) -> Tensor:
    """Sum over trajectories and examples of g z^T: (t, n, c), (t, n, d) -> (c, d)."""
    return g.flatten(0, 1).T @ z.flatten(0, 1)


def _jacobian(p: Tensor, x: Tensor) -> Tensor:
    """The softmax's derivative along x, row by row."""
    return p * (x - (p * x).sum(-1, True))


def _symmetric_lower(m: Tensor) -> Tensor:
    """The strict lower part added to its transpose: G = z z^T depends on each pair twice, through either factor."""
    lower = m.tril(-1)
    return lower + lower.mT


class HiddenLowRank(Autograd):
    """One hidden layer: both layers' updates are of rank one."""

    def loss(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> Tensor:
        A, a, V, b = W["hidden.weight"], W["hidden.bias"], W["weight"], W["bias"]
        exact, alpha, k = self.order == "exact", self.alpha, y.train.shape[1]
        z_tr, z_val = y.split(z)
        P, P_val = y.split(F.linear(z, A, a))  # (t, k, h), (t, s, h)
        G, one = z_tr @ z_tr.mT + 1, z.new_ones(1, 1, 1)
        target = F.one_hot(y.train, V.shape[0]).to(z.dtype)
        S, D1, D2 = (torch.empty(0) for _ in range(3))  # hidden outputs, errors at the hidden layer and at the logits
        with torch.set_grad_enabled(exact):
            for j in range(k):
                pre = P[:, j : j + 1]
                if j:
                    pre = torch.baddbmm(pre, G[:, j : j + 1, :j], D1, alpha=-alpha)
                hidden = pre.relu()
                logits = F.linear(hidden, V, b)
                if j:
                    logits = torch.baddbmm(logits, torch.baddbmm(one, hidden, S.mT), D2, alpha=-alpha)
                d2 = logits.softmax(-1) - target[:, j : j + 1]
                back = d2 @ V
                if j:
                    back = torch.baddbmm(back, d2 @ D2.mT, S, alpha=-alpha)
                d1 = back * (pre > 0)
                S, D1, D2 = ((torch.cat([m, r], 1) if j else r) for m, r in ((S, hidden), (D1, d1), (D2, d2)))
        Q = torch.baddbmm(one, z_val, (z_tr if exact else z_tr.detach()).mT)
        hidden = torch.baddbmm(P_val, Q, D1, alpha=-alpha).relu()
        logits = torch.baddbmm(F.linear(hidden, V, b), torch.baddbmm(one, hidden, S.mT), D2, alpha=-alpha)
        return F.cross_entropy(logits.flatten(0, 1), y.val.flatten())
