"""The Triton kernels of the meta-step, run by Triton's interpreter on the CPU, equal their plain forms."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kcciol.kernels import have_triton

CHECK = """
import torch
from kcciol.kernels import adam_triton, relu_triton, scan, scan_triton
from kcciol import optim as adam
from kcciol.nets import convolution
torch.manual_seed(0)
close = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)

z, P = torch.randn(2, 4, 8), torch.randn(2, 7, 21)[:, :4]
G, y = z @ z.mT / 8 + 1, torch.randint(0, 21, (2, 4))
p = scan.softmax_scan(P, G, y, 0.5)
close(scan_triton.softmax_scan(P, G, y, 0.5), p)
start, offset = torch.randn(2, 2, 4, 21).unbind()
for reverse in (False, True):
    for extra in (None, offset):
        arguments = (start, G, p, 0.5, reverse, extra)
        close(scan_triton.jacobian_scan(*arguments), scan.jacobian_scan(*arguments))

a, b = torch.randn(1500), None
b, g = a.clone(), 4 * torch.randn(1500)
one, two, scale = adam.Adam.new(a), adam.Adam.new(b), adam.scales(1, 1e-2)[0]
adam.update_(a, g, one, scale, 0.1, 2.0)
adam_triton.update_(b, g, two.m, two.v, scale, 0.1, 2.0, (adam.BETA1, adam.BETA2, adam.EPS))
close(b, a)
adam_triton.update_(b, g * float("nan"), two.m, two.v, scale, 0.1, 2.0, (adam.BETA1, adam.BETA2, adam.EPS))
assert b.isnan().all()

rates = torch.tensor([0.1, 0.02, 0.5])
wide = [torch.rand(3, 40, 70) for _ in range(3)]  # rows in use of more
fast, plain = [t.clone()[:, :30] for t in wide], [t.clone()[:, :30] for t in wide]
for t in (1, 2, 900):
    g = torch.randn(3, 30, 70)
    adam_triton.step_copies_(fast[0], g, *fast[1:], rates, t, (adam.BETA1, adam.BETA2, adam.EPS))
    adam.adam_copies_(plain[0], g, *plain[1:], rates, t)
    for one, two in zip(fast, plain):
        close(one, two)

w, m, v = (torch.rand(3, 4, 3, 3, 5).permute(0, 1, 4, 2, 3) for _ in range(3))  # inputs last in memory
apart = [t.contiguous() for t in (w, m, v)]
for g in (torch.randn(3, 4, 5, 3, 3), torch.randn(3, 4, 3, 3, 5).permute(0, 1, 4, 2, 3)):
    adam_triton.step_copies_(w, g, m, v, rates, 2, (adam.BETA1, adam.BETA2, adam.EPS))
    adam.adam_copies_(apart[0], g, *apart[1:], rates, 2)
    for one, two in zip((w, m, v), apart):
        close(one, two)

import numpy
from triton.runtime import interpreter
def wide(handle):  # the interpreter would multiply a bfloat16's bits as an integer
    bits = handle.data
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32) if bits.dtype == numpy.uint16 else bits
def dot(self, a, b, d, *rest):
    return interpreter.TensorHandle(wide(a) @ wide(b) + d.data, d.dtype.scalar)
interpreter.InterpreterBuilder.create_dot = dot

from kcciol.kernels import copies_triton
from kcciol.nets import copies
T = copies_triton.Tiles
copies_triton.MANY, copies_triton.FEW, copies_triton.WEIGHTS = T(64, 32, 32), T(32, 16, 32), T(32, 32, 32)
copies_triton.ENOUGH = 30
for channels, side, m in ((33, 11, 1), (48, 11, 2)):
    strides, x = (2, 1, 2), torch.rand(2, m, 3, side, side + 2)
    theta = {}
    for layer, inputs in enumerate((3, channels, channels), 1):
        theta[f"conv{layer}.weight"] = torch.randn(2, channels, inputs, 3, 3) / 15
        theta[f"conv{layer}.bias"] = torch.randn(2, channels)
    if m == 2:
        theta = {n: copies.inputs_last(t) if t.ndim == 5 else t for n, t in theta.items()}
    leaves = [t.requires_grad_() for t in theta.values()] + [x.requires_grad_()] * (m == 2)
    found = []
    for way, halves in ((copies.grouped, False), (copies.by_kernels, False), (copies.by_kernels, True)):
        torch.backends.cuda.matmul.allow_tf32 = halves  # which the interpreter does not round to
        assert copies_triton._exact() != halves
        maps = list(way(theta, x, strides))
        loss = sum((a * a.detach().cos()).sum() for a in maps[:-1]) + maps[-1].sum()  # whose gradient is expanded
        plain = torch.autograd.grad(loss, leaves, retain_graph=True)
        found.append((*maps, *plain))
        if not halves:
            again = torch.autograd.grad(loss, leaves, create_graph=True)
            found[-1] += torch.autograd.grad(sum(g.square().sum() for g in again), leaves, materialize_grads=True)
    for kernels, bound in zip(found[1:], (1e-5, 2e-4)):
        for one, two in zip(kernels, found[0]):
            torch.testing.assert_close(one, two, rtol=bound, atol=bound * float(two.detach().abs().max()))
    at_last = torch.ones_like(maps[-1].permute(0, 1, 3, 4, 2))
    parts = list(copies.single_gradients(theta, x.detach(), strides, at_last))
    for i in range(m):
        last = list(copies.grouped(theta, x[:, i : i + 1], strides))[-1]
        for name, g in zip(theta, torch.autograd.grad(last.sum(), list(theta.values()))):
            own = parts[2 * (3 - int(name[4])) + ("bias" in name)][:, i]
            g = copies._in_memory(g).flatten(1) if g.ndim == 5 else g
            torch.testing.assert_close(own, g, rtol=2e-4, atol=2e-4 * float(g.abs().max()))
    if m == 2:  # of the images alone
        (alone,) = torch.autograd.grad(next(copies.by_kernels(theta, x, strides)).sum(), x)
        close(alone, torch.autograd.grad(next(copies.grouped(theta, x, strides)).sum(), x)[0])
torch.backends.cuda.matmul.allow_tf32 = False
bad = next(copies.by_kernels(theta, x.detach() * float("nan"), strides))
assert bad.isnan().all()

last = dict(memory_format=torch.channels_last)
g, more, output = (torch.randn(3, 5, 7, 6).to(**last) for _ in range(3))
output, bias = output.relu(), torch.randn(5)
for extra in (None, more):
    for shift in (None, bias):
        for sums in (False, True):
            fast, plain = (f(g, output, extra, shift, sums) for f in (relu_triton.relu_grad, convolution.relu_grad))
            close(fast[0], plain[0])
            assert (fast[1] is None) == (not sums)
            if sums:
                close(fast[1], plain[1])

from kcciol.paper.sine import regression_back_triton, regression_triton
from kcciol.paper.sine import adjoint
from kcciol.paper.sine import network
for h, T in ((37, 3), (129, 8), (37, 12), (20, 10), (20, 16)):  # tiles and blocks
    B, n, d = 2, 16, 70
    W = [(torch.randn(B, h, d) / 9, torch.randn(B, h)), (torch.randn(B, h, h) / h**0.5, torch.randn(B, h))]
    W.append((torch.randn(B, 1, h) / h**0.5, torch.randn(B, 1)))
    z, y, alpha = torch.randn(B, T, n, d).relu(), torch.randn(B, T, n), torch.tensor([0.02, 0.01]).view(B, 1, 1)
    before = [w.clone() for w, b in W]
    for fast, plain in zip(regression_triton.learn(W, z, y, alpha, exact=True), network.learn(W, z, y, alpha)):
        torch.testing.assert_close(fast[0], plain[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(fast[1], plain[1], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(a, w) for a, (w, b) in zip(before, W))
    leaves = [z.requires_grad_(), *(t.requires_grad_() for layer in W for t in layer)]
    fast = [t.detach() for t in leaves]
    times = 2 if T % 2 == 0 else 1
    plain = [t for layer in network.stages(network.learn, W, z, y, alpha, times) for t in layer]
    adjoints = [torch.randn_like(t.mT if t.dim() == 4 else t) for t in plain]
    adjoints = [t.mT if t.dim() == 4 else t for t in adjoints]  # as autograd brings them: not row by row
    wanted = torch.autograd.grad(plain, leaves, adjoints)
    pairs = lambda flat: list(zip(flat[::2], flat[1::2]))
    with torch.no_grad():
        learned, kept = regression_triton.learn_and_keep(pairs(fast[1:]), fast[0], y, alpha, times, exact=True)
        for t, other in zip(plain, (t for layer in learned for t in layer)):
            torch.testing.assert_close(t, other, rtol=1e-4, atol=1e-5)
        to_z, start = regression_back_triton.back(pairs(adjoints), fast[0], alpha, kept, exact=True)
    for g, other in zip(wanted, (to_z, *(t for layer in start for t in layer))):
        torch.testing.assert_close(g, other, rtol=1e-4, atol=1e-5)
    way = adjoint.Way(
        lambda *inputs: regression_triton.learn_and_keep(*inputs, exact=True),
        lambda stages, *inputs: regression_back_triton.back(*inputs, exact=True),
    )
    asked, lost = torch.randn(times * B, 9, d), torch.zeros(B, dtype=torch.bool)
    flat = lambda learned: [(w.flatten(0, 1), b.flatten(0, 1)) for w, b in learned]
    error = lambda learned: network.predict(flat(learned), asked).square().mean()
    wanted = torch.autograd.grad(error(network.stages(network.learn, W, z, y, alpha, times)), leaves)
    for g, other in zip(wanted, torch.autograd.grad(error(adjoint.learn(W, z, y, alpha, times, lost, way)), leaves)):
        torch.testing.assert_close(g, other, rtol=1e-4, atol=1e-5)
    assert not lost.any()
    wild = torch.tensor([0.02, 1e30]).view(B, 1, 1)
    found = adjoint.learn(W, z, y, wild, times, lost, way)
    assert lost.tolist() == [False, True]
    for w, (start, _) in zip((w for w, b in found), W):
        assert torch.equal(w[:, 1], start[1].expand_as(w[:, 1]))
    alone = adjoint.learn([(w[:1], b[:1]) for w, b in W], z[:1], y[:1], wild[:1], times, lost[:1].clone(), way)
    grads, others = (torch.autograd.grad(sum(w[:, :1].sum() for w, b in f), leaves) for f in (found, alone))
    for g, other in zip(grads, others):
        torch.testing.assert_close(g[0], other[0], rtol=1e-4, atol=1e-5)
        assert not g[1].any()
    W, z = [(w.detach(), b.detach()) for w, b in W], z.detach()
precision, seen = regression_triton.precision, []
def noted(name, device):
    seen.append(name)
    return precision(name, device)
regression_triton.precision = noted
tall = [(torch.zeros(1, 4, 3), 0), (torch.zeros(1, 4, 4), 0), (torch.zeros(1, 1, 4), 0)]
fitting = [n for n in (8, 16, 24, 64, 128, 256) if regression_triton.fits(tall, torch.zeros(1, 1, n))]
assert fitting == [16, 64, 128]
for exact in (True, False):
    regression_triton.learn(W, z, y, alpha, exact)
assert seen == ["float32", "tf32"]
print("equal")
"""


@pytest.mark.skipif(not have_triton(), reason="Triton is not installed; the CUDA builds of PyTorch bring it")
def test_kernels_equal_their_plain_forms() -> None:
    result = subprocess.run(
        [sys.executable, "-c", CHECK],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.strip() == "equal", result.stderr
