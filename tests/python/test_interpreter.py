"""Reads where an interpreter makes them difficult: threads, fork, signal handlers, interpreters."""

import os
import signal
import threading
import time

import fastclock
import pytest
from conftest import SOURCES


@pytest.fixture(autouse=True)
def usual_source():
    yield
    fastclock.select("auto")


def test_reads_stay_right_while_another_thread_changes_the_source():
    stop = threading.Event()

    def change():
        while not stop.is_set():
            for source in SOURCES:
                fastclock.select(source)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        changes_seen = set()
        end = time.monotonic() + 2
        before = time.monotonic_ns()
        while time.monotonic() < end or len(changes_seen) < len(SOURCES):
            changes_seen.add(fastclock.info().source)
            for _ in range(1000):
                ours = fastclock.monotonic_ns()
                after = time.monotonic_ns()
                assert before <= ours <= after
                before = after
    finally:
        stop.set()
        changer.join()


def test_threads_that_pass_stamps_to_each_other_never_see_time_go_back():
    rounds, box, ready = 20_000, [0], [threading.Semaphore(1), threading.Semaphore(0)]
    back = []

    def pass_on(mine, other):
        for _ in range(rounds):
            ready[mine].acquire()
            stamp = fastclock.monotonic_ns()
            if stamp < box[0]:
                back.append((box[0], stamp))
            box[0] = stamp
            ready[other].release()

    threads = [threading.Thread(target=pass_on, args=pair) for pair in ((0, 1), (1, 0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert back == []


@pytest.mark.parametrize("source", SOURCES)
def test_children_of_fork_read_right(source):
    fastclock.select(source)
    fastclock.monotonic_ns()
    for _ in range(50):
        before = fastclock.monotonic_ns()
        child = os.fork()
        if child == 0:
            good = before <= fastclock.monotonic_ns() <= time.monotonic_ns()
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert fastclock.monotonic_ns() >= before


@pytest.mark.parametrize("source", SOURCES)
def test_a_child_of_fork_may_change_the_source_of_its_own(source):
    before = fastclock.info().source
    child = os.fork()
    if child == 0:
        try:
            fastclock.select(source)
            good = time.monotonic_ns() <= fastclock.monotonic_ns() <= time.monotonic_ns()
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert fastclock.info().source == before


def test_a_storm_of_signals_whose_handler_reads_sees_one_order():
    """Ten thousand signals a second are asked for; the handler runs between any two bytecodes."""
    enough, last, wrong, count = 2000, [0], [], [0]

    def handler(number, frame):
        before = last[0]  # before the reading: a second signal may come in between, and its handler
        stamp = fastclock.monotonic_ns()
        if stamp < before:
            wrong.append((before, stamp))
        last[0] = stamp
        count[0] += 1

    former = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    deadline = time.monotonic() + 60
    try:
        while count[0] < enough and time.monotonic() < deadline:
            before = last[0]
            stamp = fastclock.monotonic_ns()
            after = fastclock.monotonic_ns()
            if not before <= stamp <= after:
                wrong.append((before, stamp, after))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert count[0] >= enough
    assert wrong == []


INTERPRETERS = """
import json, os
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import fastclock
out, into = os.pipe()
code = f'''
import os, fastclock, fastclock.relaxed
reads = [fastclock.monotonic_ns() for _ in range(1000)]
reads += [fastclock.relaxed.raw_ns() > 0, type(fastclock.time()) is float]
os.write({into}, b"%d %d\\\\n" % (reads[0], reads == sorted(reads[:1000]) + [True, True]))
'''
before = fastclock.monotonic_ns()
for _ in range(5):
    number = interpreters.create()
    failure = interpreters.run_string(number, code)
    assert not failure, failure
    interpreters.destroy(number)
after = fastclock.monotonic_ns()
os.close(into)
print(json.dumps({"lines": os.read(out, 10_000).decode().splitlines(),
                  "before": before, "after": after}))
"""


def test_reads_work_in_subinterpreters_also_with_a_lock_of_their_own(child):
    told = child(INTERPRETERS)
    stamps = [[int(word) for word in line.split()] for line in told["lines"]]
    assert len(stamps) == 5
    assert all(good for _, good in stamps)
    order = [told["before"], *(stamp for stamp, _ in stamps), told["after"]]
    assert order == sorted(order)
