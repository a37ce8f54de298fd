"""A signal that comes late ends a run all the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kcciol.config import Config
from kcciol.data.classset import Splits
from kcciol.engine.run_folder import RunFolder
from kcciol.engine.stop import Stopped
from kcciol.meta.phases import train


def test_a_signal_after_the_last_step_is_not_lost(
    tiny: Config, tiny_data: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunFolder.save

    def interrupted(folder: RunFolder, path: Path, state: object) -> None:
        if path == folder.phase(3):
            signal.raise_signal(signal.SIGINT)
        save(folder, path, state)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", interrupted)
        with pytest.raises(Stopped, match="when all steps were taken, and saved") as ended:
            train(tiny, tiny_data.base, tmp_path / "run", quiet=True)
    assert ended.value.exit_code == 130
    assert RunFolder(tmp_path / "run").phase(3).exists()
    train(tiny, tiny_data.base, tmp_path / "run", resume=True, quiet=True)
