"""`sesame logs --follow`, ended by Ctrl-C."""

import importlib

import pytest

verb = importlib.import_module("orchestration.cli.verbs.logs")  # in the package, the name is that of the function


class InterruptedServer:
    def follow(self, job: str, write: object) -> None:
        raise KeyboardInterrupt


def test_the_job_goes_on_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once said: stopped; repeat the command to resume."""
    monkeypatch.setattr(verb, "job_server", lambda address: InterruptedServer())
    with pytest.raises(KeyboardInterrupt) as error:
        verb.logs("a-1", address="head:8265", follow=True)
    assert str(error.value) == "a-1 goes on; to stop it, run `sesame stop a-1 --address head:8265`"
