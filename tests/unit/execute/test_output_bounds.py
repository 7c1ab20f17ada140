from __future__ import annotations

import threading

import pytest
from scripted_port import claim_of

from detent.execute import output as bounds
from detent.execute.output import HEAD_LIMIT, TAIL_LIMIT, Output
from detent.runtime.clock import Clock


@pytest.fixture
def announced() -> list[Output]:
    return []


@pytest.fixture
def output(announced: list[Output]) -> Output:
    return Output(claim_of("any"), Clock(), announced.append)


def text(chunks, stream=None) -> str:
    return "".join(c.text for c in chunks if stream is None or c.stream == stream)


def test_chunks_are_numbered_across_streams_in_the_order_of_writing(output):
    output.write("stdout", b"one\n")
    output.write("stdout", b"two\n")
    output.write("stderr", b"oops\n")
    first = output.take()
    output.write("stdout", b"three\n")
    last = output.close()
    told = [(c.seq, c.stream, c.text) for c in [*first, *last]]
    assert told == [(0, "stdout", "one\ntwo\n"), (1, "stderr", "oops\n"), (2, "stdout", "three\n")]
    assert {(c.execution_id, c.attempt, c.token) for c in first} == {
        (output.claim.execution_id, output.claim.attempt, output.claim.token)
    }


def test_a_character_split_between_reads_arrives_whole(output):
    for byte in "naïve ☂ 𝄞".encode():
        output.write("stdout", bytes([byte]))
    assert text(output.close()) == "naïve ☂ 𝄞"


def test_bad_bytes_and_nul_are_replaced(output):
    output.write("stdout", b"a\xffb\x00c\xe2\x82")
    assert text(output.close()) == "a\ufffdb\ufffdc\ufffd"


def test_lone_surrogates_in_a_logged_line_do_no_harm(output):
    output.write("log", "x\udcffy\n")
    assert text(output.close()) == "x?y\n"


def test_head_and_tail_are_kept_with_a_marker_between(output):
    total = 10_000_000
    for start in range(0, total, 10_000):
        output.write("stdout", b"%09d\n" % start * 1000)
    told = text(output.close())
    left_out = total - HEAD_LIMIT - TAIL_LIMIT
    head, marker, tail = told.partition(f"\n… {left_out:,} bytes left out …\n")
    assert marker
    assert len(head) == HEAD_LIMIT
    assert len(tail) == TAIL_LIMIT
    assert head.startswith("000000000\n")
    assert tail.endswith("009990000\n")


def test_output_that_just_fits_has_no_marker(output):
    whole = b"0123456789abcdef" * ((HEAD_LIMIT + TAIL_LIMIT) // 16)
    output.write("stderr", whole)
    assert text(output.close()) == whole.decode()


def test_a_cut_inside_a_character_leaves_no_halves(output):
    sign = "☂".encode()
    output.write("stdout", b"x" + sign * 500_000)
    told = text(output.close())
    assert "\ufffd" not in told
    omitted = int(told.partition("… ")[2].partition(" bytes")[0].replace(",", ""))
    kept = told.replace(f"\n… {omitted:,} bytes left out …\n", "")
    assert len(kept.encode()) + omitted == 1 + 3 * 500_000


def test_memory_stays_bounded_however_much_is_written(output):
    block = b"y" * 65_536
    for _ in range(1600):  # 100 MB
        output.write("stdout", block)
        output.take()
    assert len(output._streams["stdout"].tail) <= 2 * TAIL_LIMIT + len(block)
    assert not output._ready


def test_streams_that_alternate_byte_by_byte_do_not_become_a_row_each(output):
    for _ in range(50_000):
        output.write("stdout", b"o")
        output.write("stderr", b"e")
    chunks = output.close()
    assert len(chunks) < 1000
    assert text(chunks, "stdout") == "o" * 50_000
    assert text(chunks, "stderr") == "e" * 50_000


def test_a_long_line_is_cut_into_chunks_of_bounded_size(output):
    output.write("stdout", b"z" * 200_000)
    chunks = output.close()
    assert max(len(c.text) for c in chunks) <= bounds.CHUNK_BYTES
    assert text(chunks) == "z" * 200_000


def test_the_first_write_after_a_flush_announces_itself_once(output, announced):
    output.write("stdout", b"a")
    output.write("stdout", b"b")
    assert announced == [output]
    output.take()
    output.write("stdout", b"c" * 100_000)
    assert announced == [output, output]


def test_writes_after_the_end_are_ignored(output, announced):
    output.close()
    output.write("stdout", b"late")
    assert not output.close()
    assert not announced


def test_many_threads_may_write_at_once(output):
    def write(name: int) -> None:
        for n in range(500):
            output.write("log", f"{name}:{n}\n")

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = text(output.close()).splitlines()
    assert sorted(lines) == sorted(f"{name}:{n}" for name in range(4) for n in range(500))
