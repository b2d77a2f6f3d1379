import pytest

from innerloop import memory
from innerloop.memory import available_bytes, require_memory


@pytest.fixture
def free(monkeypatch):
    """Sets how many bytes are free."""
    return lambda size: monkeypatch.setattr(memory, "available_bytes", lambda: size)


def test_what_is_free_is_positive_and_less_than_all_there_is():
    with open("/proc/meminfo") as file:
        total = int(next(line for line in file if line.startswith("MemTotal")).split()[1]) * 1024
    assert 0 < available_bytes() < total


@pytest.mark.parametrize("text", [None, "", "nonsense", "MemAvailable: many kB\n", "MemFree: 1\n"])
def test_without_a_readable_proc_the_system_is_asked(monkeypatch, tmp_path, text):
    def opened(path, *arguments):
        assert path == "/proc/meminfo"
        if text is None:
            raise FileNotFoundError(path)
        (tmp_path / "meminfo").write_text(text)
        return (tmp_path / "meminfo").open()

    monkeypatch.setattr(memory, "open", opened, raising=False)
    sizes = {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(memory.os, "sysconf", sizes.__getitem__)
    assert available_bytes() == 3 * 4096


def test_four_fifths_of_what_is_free_may_be_asked_for(free):
    free(1000)
    require_memory("it", 800)
    with pytest.raises(ValueError, match="it would need about 1 kB of memory"):
        require_memory("it", 801)


@pytest.mark.parametrize(
    ("size", "amount"),
    [
        (5_000, "5 kB"),
        (2_500_000, "2.5 MB"),
        (3.21e9, "3.2 GB"),
        (8 * 10**12, "8.0 TB"),
        (8 * 10**16, "80,000.0 TB"),
    ],
)
def test_the_sentence_says_how_much_would_be_needed_and_how_much_is_free(free, size, amount):
    free(1000)
    with pytest.raises(ValueError, match="memory") as error:
        require_memory("a matrix", size)
    sentence = f"a matrix would need about {amount} of memory, of which 1 kB are free"
    assert str(error.value) == sentence


def test_numbers_beyond_floats_are_refused_like_others(free):
    free(10**9)
    with pytest.raises(ValueError, match=r"would need about .* TB of memory"):
        require_memory("it", 10**400)
