import subprocess
import sys


def run(program):
    """What a process ends with, and what it writes to stderr."""
    program = "import time\nfrom capsjax.runs.process import Deadline\n" + program
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def test_a_hang_ends_the_process_and_shows_where():
    program = """
def wait_for_the_other_host():
    time.sleep(60)

with Deadline(0.2):
    wait_for_the_other_host()
"""
    code, stderr = run(program)
    assert code == 1
    assert "Timeout" in stderr
    assert "in wait_for_the_other_host" in stderr


def test_progress_is_not_a_hang():
    program = """
with Deadline(0.5) as deadline:
    for _ in range(10):
        deadline.restart()
        time.sleep(0.1)
    deadline.suspend()  # compiling
    time.sleep(1)
    deadline.restart()
time.sleep(1)  # over
for unlimited in (0, float("inf")):
    with Deadline(unlimited):
        time.sleep(1)
"""
    assert run(program) == (0, "")
