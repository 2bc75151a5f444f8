"""Ctrl-C stops a generation between two tokens; the model goes on, and nothing is left behind."""

import gc
import signal
import time

import pytest

from . import interrupted


def test_ctrl_c_stops_and_the_model_goes_on(model):
    expected = model.generate("then the", max_tokens=12)
    with interrupted.after(0.2), pytest.raises(KeyboardInterrupt):
        while True:
            model.generate("then the", max_tokens=200)
    assert model.generate("then the", max_tokens=12) == expected


def test_ctrl_c_stops_the_reading_of_prompts(smollm2):
    prompt = [1 + i % 1000 for i in range(3000)]
    begin = time.monotonic()
    smollm2.logits(prompt[:256])
    piece = time.monotonic() - begin
    begin = time.monotonic()
    with interrupted.after(0.2), pytest.raises(KeyboardInterrupt):
        smollm2.logits(prompt)
    # All of it would take more than twelve times as long as a piece.
    assert time.monotonic() - begin < 0.2 + 5 * piece + 0.5


def test_handlers_run_and_may_raise(model):
    class Enough(Exception):
        pass

    def handler(number, frame):
        raise Enough

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Enough):
            while True:
                model.generate("then the", max_tokens=200)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_session_goes_on_after_ctrl_c(model):
    session = model.session()
    n_interrupted = 0
    for _ in range(20):
        try:
            with interrupted.after(0.02):
                while True:
                    session.generate("then the", max_tokens=200)
        except KeyboardInterrupt:
            n_interrupted += 1
        assert session.generate("then the", max_tokens=3) == model.generate("then the", max_tokens=3)
    assert n_interrupted == 20


def test_interrupted_generations_leave_no_leak(model):
    gc.collect()
    growth = interrupted.growth(model, 150)
    assert growth < 3 << 20
