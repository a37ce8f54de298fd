"""Several processes that train one model together, started by torchrun; alone, nothing of this does anything.

What the host says to the other ranks goes over gloo, also on GPUs: there it notices at once that a rank has gone.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from kcciol.engine.stop import Stopped
from kcciol.errors import UserError

T = TypeVar("T")
Mean = Callable[[Tensor], Tensor]  # of a tensor over the ranks
_PATIENCE = datetime.timedelta(minutes=5)  # with a rank that does not answer


class RankLost(UserError):
    """Another rank has gone, or cannot be reached."""


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this one is. Rank 0 writes the files and speaks for all."""

    rank: int = 0
    count: int = 1
    local: int = 0  # the number among those of this machine: which GPU is its own

    @classmethod
    def here(cls) -> Ranks:
        """As torchrun's variables say; alone where they are not set."""
        words = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
        if None in words:
            return cls()
        try:
            return cls(*(int(word or "") for word in words))
        except ValueError:
            raise UserError(
                f"RANK, WORLD_SIZE and LOCAL_RANK are {words}, but must be numbers: use torchrun."
            ) from None

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """While the block runs the ranks can reach each other."""
        if self.count == 1:
            yield
            return
        if not dist.is_available():
            raise UserError("This PyTorch is built without torch.distributed: train without torchrun.")
        gpus = torch.cuda.is_available() and dist.is_nccl_available()
        with _notice_lost_ranks():
            dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", timeout=_PATIENCE)
        try:
            yield
            self.wait()  # until rank 0 has written its last file
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # a graph they hold would keep its NCCL group from ending
            if self.rank and isinstance(error, (UserError, Stopped)):
                # torchrun ends all ranks when one ends with an error, so rank 0 goes first: it saves and says why
                with contextlib.suppress(RankLost):
                    self.wait()
                time.sleep(1)
            raise
        finally:
            # A thread of gloo takes the interpreter's lock to drop what it has just done. Destroying the group holds
            # that lock and waits for the thread, for ever (seen with PyTorch 2.6): let it finish first.
            time.sleep(0.1)
            dist.destroy_process_group()

    def run_on_all(self, work: Callable[[], T]) -> T:
        """What `work` returns, once every rank has done it; if one of them cannot, all end with that one's reason."""
        if self.count == 1:
            return work()
        result, reason = None, ""
        try:
            result = work()
        except (UserError, OSError) as error:
            reason = str(error)
        reasons = [""] * self.count
        with _notice_lost_ranks():
            dist.all_gather_object(reasons, reason)
        for rank, words in enumerate(reasons):
            if words:
                raise UserError(f"Rank {rank}: {words}" if rank else words)
        return cast(T, result)

    def device(self, device: torch.device) -> torch.device:
        """Of several GPUs the rank's own, which becomes the current one."""
        if self.count == 1 or device.type != "cuda":
            return device
        gpus = torch.cuda.device_count()
        if self.local >= gpus:
            raise UserError(f"There is no GPU for the process number {self.local + 1} of a machine that has {gpus}.")
        torch.cuda.set_device(self.local)
        return torch.device("cuda", self.local)

    def slice_of(self, count: int) -> slice:
        """Which of `count` equal parts of the work are this rank's."""
        if count % self.count:
            raise UserError(
                f"trajectory.count is {count}, but a step's trajectories are split evenly over {self.count} processes: "
                f"make it a multiple of {self.count}, or start fewer."
            )
        each = count // self.count
        return slice(self.rank * each, (self.rank + 1) * each)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of x over the ranks; on a GPU it may be part of a graph."""
        if self.count == 1:
            return x
        total = x.clone()
        with _notice_lost_ranks():
            dist.all_reduce(total)
        return total.div_(self.count)

    def maximum(self, x: int) -> int:
        """The largest x of any rank; the host waits for it."""
        if self.count == 1:
            return x
        most = torch.tensor(x)
        with _notice_lost_ranks():
            dist.all_reduce(most, dist.ReduceOp.MAX)
        return int(most)

    def broadcast(self, x: Tensor) -> Tensor:
        """Rank 0's x, a tensor on the host, which waits for it."""
        if self.count > 1:
            with _notice_lost_ranks():
                dist.broadcast(x, 0)
        return x

    def wait(self) -> None:
        """Until all ranks are here."""
        self.maximum(0)


ALONE = Ranks()


@contextlib.contextmanager
def _notice_lost_ranks() -> Iterator[None]:
    """A silent rank is an error that the user can mend: by starting the run again."""
    try:
        yield
    except RuntimeError as error:
        why = re.sub(r"^\[[^]]*\] ", "", str(error).strip()).partition("\n")[0].partition(". ")[0]
        raise RankLost(
            f"Another process of this training has ended or cannot be reached ({why}): what was saved is kept, so "
            "start all of them again, with --resume if the run had begun."
        ) from None
