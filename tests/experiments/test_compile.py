"""What needs no compiler of an accelerator; tests/accelerators has the rest."""

import json
import sys

import pytest
from _compile import catalogue, compilers, dumps, hlo, pages, targets
from _compile.catalogue import Entry

from tests.processes import ROOT, printed

# A loop of 3 trips around one of 5, as libtpu writes the final instructions of a kernel.
BUNDLES = """
   0   :  { %s1 = smov 0 }
   0x1 LB: > { %s2 = sadd.s32 1, %s3 } /* Start region 7 :: Start region 8 */
   0x2   : > { %s4 = smov 0 }
   0x3 LB: >> { %p1 = scmp.ge.s32.totalorder %s5, 5 /* loop exit test */ } /* Start region 9 */
   0x4   : > { %10 = sbr.rel (!%p1) target = $region9 }
   0x5   :  {}
   0x6   :  {}
   0x7   :  {}
   0x8   :  {} /* End region 9 */
   0x9   : > { %p2 = scmp.ge.s32.totalorder %s2, 3 /* loop exit test */ }
   0xa   : > { %11 = sbr.rel (%p3) target = $region12 }
   0xb   :  { %12 = sbr.rel (!%p2) target = $region7 }
   0xc   :  {}
   0xd   :  {}
   0xe   :  {}
   0xf   :  {} /* End region 7 */
   0x10   :  {} /* Start region 12 */
"""

MODULE = """HloModule jit_f

FileNames
1 "/somewhere/capsjax/routing/votes.py"
2 "/elsewhere/jax/numpy.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=14 end_line=14 column=10 end_column=29}
2 {file_name_id=2 function_name_id=1 line=99 end_line=99 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

%fused (p.0: f32[100,8], p.1: s32[]) -> f32[1,8] {
  %p.0 = f32[100,8]{1,0} parameter(0)
  %p.1 = s32[] parameter(1)
  ROOT %dynamic-slice.1 = f32[1,8]{1,0} dynamic-slice(%p.0, %p.1, %p.1), dynamic_slice_sizes={1,8}
}

%inner (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0}) parameter(0)
  %e.0 = f32[8]{0} get-tuple-element(%t), index=1
  %add.1 = f32[8]{0} add(%e.0, %e.0), backend_config={"estimated_cycles":"10"}
  ROOT %r = (s32[], f32[8]{0}) tuple(%e.0, %add.1)
}

%until (t.1: (s32[], f32[8])) -> pred[] {
  %t.1 = (s32[], f32[8]{0}) parameter(0)
  %c.9 = s32[] constant(9)
  %e.1 = s32[] get-tuple-element(%t.1), index=0
  ROOT %lt = pred[] compare(%e.1, %c.9), direction=LT
}

%step (u: (s32[], f32[8])) -> (s32[], f32[8]) {
  %u = (s32[], f32[8]{0}) parameter(0)
  %e.2 = f32[8]{0} get-tuple-element(%u), index=1
  %zero = s32[] constant(2)
  %copied = s32[] copy(%zero)
  %start = (s32[], f32[8]{0}) tuple(%copied, %e.2)
  %while.1 = (s32[], f32[8]{0}) while(%start), condition=%until, body=%inner
  %e.3 = f32[8]{0} get-tuple-element(%while.1), index=1
  %all-reduce.1 = (f32[8]{0}, f32[2,4]{1,0:T(8,128)S(1)}) all-reduce(%e.3, %e.3), to_apply=%sum
  ROOT %r.1 = (s32[], f32[8]{0}) tuple(%zero, %e.3)
}

%again (v: (s32[], f32[8])) -> pred[] {
  %v = (s32[], f32[8]{0}) parameter(0)
  %e.4 = s32[] get-tuple-element(%v), index=0
  ROOT %lt.1 = pred[] compare(%e.4, %e.4), direction=LT
}

ENTRY %main (a: f32[100,8], n: s32[]) -> f32[8] {
  %a = f32[100,8]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %fusion.1 = f32[1,8]{1,0} fusion(%a, %n), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/take" stack_frame_id=2}
  %s = (s32[], f32[8]{0}) tuple(%n, %fusion.1)
  %while.2 = (s32[], f32[8]{0}) while(%s), condition=%again, body=%step
  ROOT %e.5 = f32[8]{0} get-tuple-element(%while.2), index=1
}
"""  # noqa: E501


def test_cycles_of_a_kernel_are_bundles_times_trips():
    outer, inner, once = 15 - 6, 6, 2
    assert dumps.count_bundles(BUNDLES) == (17, once + 3 * outer + 3 * 5 * inner)
    unknown = BUNDLES.replace("%s5, 5 /* loop exit test */", "%s5, %s9")
    assert dumps.count_bundles(unknown) == (17, once + 3 * outer + 3 * inner)


def test_operations_are_counted_by_the_trips_of_their_loops():
    module = hlo.Module(MODULE)
    found = {o.instruction.name: (o.times, o.in_step) for o in module.operations}
    assert found == {
        "fusion.1": (1, False),
        "copied": (1, True),
        "add.1": (7, True),  # from 2 to 9
        "all-reduce.1": (1, True),
    }
    operations = {o.instruction.name: o for o in module.operations}
    assert operations["add.1"].instruction.cycles == 10
    assert operations["all-reduce.1"].instruction.collective == "all-reduce"
    # One row of the table is read; memory on the chip is not main memory.
    assert module.bytes_moved(operations["fusion.1"]) == 4 * 8 + 4 * 8 + 4
    assert module.bytes_moved(operations["add.1"]) == 7 * 3 * 4 * 8
    assert module.bytes_moved(operations["all-reduce.1"]) == 3 * 4 * 8
    assert module.source(operations["fusion.1"].instruction) == "capsjax/routing/votes.py:14"


def test_a_module_without_a_loop_over_steps_is_one_step():
    once = MODULE.replace("%e.4, %e.4), direction=LT", "%e.4, %x), direction=LT")
    once = once.replace("  ROOT %lt.1", "  %x = s32[] constant(1)\n  ROOT %lt.1")
    once = once.replace("  %s = ", "  %o = s32[] constant(0)\n  %s = ").replace(
        "(%n, %f", "(%o, %f"
    )
    assert all(operation.in_step for operation in hlo.Module(once).operations)


def test_missing_compilers_are_named_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSJAX_COMPILERS", str(tmp_path))
    for platform, name in (("tpu", "libtpu"), ("gpu", "jax-cuda12-plugin")):
        for found in ("none", "0.0.1"):
            message = f"{name}.* is not in .*, but {found}: .*compile.py --fetch` gets"
            with pytest.raises(ValueError, match=message):
                compilers.check(platform)
            _write_wheel(tmp_path / platform, name)


def _write_wheel(folder, name):
    info = folder / f"{name.replace('-', '_')}-0.0.1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")


def test_compilers_of_another_version_are_not_loaded(tmp_path):
    """A plugin made for another jaxlib ends the process with a fault when JAX finds it."""
    _write_wheel(tmp_path / "gpu", "jax-cuda12-plugin")
    program = "from _compile import compilers; import sys; compilers.enable(); print(sys.path)"
    said = printed(program, ROOT / "experiments", CAPSJAX_COMPILERS=str(tmp_path))
    assert str(tmp_path) not in said


@pytest.mark.parametrize(("given", "own"), [("--xla_jf_dump_to=parent", True), ("", False)])
def test_a_worker_writes_instructions_into_its_own_folder(given, own):
    """pytest's workers inherit what their parent set; empty, nothing is written."""
    program = (
        "from _compile import compilers; import os; compilers.enable(); "
        "print(f'{compilers.dumps()} ' in os.environ['LIBTPU_INIT_ARGS'])"
    )
    assert printed(program, ROOT / "experiments", LIBTPU_INIT_ARGS=given) == f"{own}\n"


def test_what_pip_cannot_install_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSJAX_COMPILERS", str(tmp_path / "new"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ValueError, match="pip could not install libtpu"):
        compilers.fetch()
    assert not (tmp_path / "new/tpu").exists()


def test_targets():
    assert targets.find("v5e:16x16").topology == "16x16"
    assert targets.find("h100").topology == "1x1x1"
    assert targets.find("h100:8").topology == "1x1x8"
    assert [d.platform for d in targets.devices(targets.find("cpu"))] == ["cpu"]
    for wrong in ("v5e", "h1000", "cpu:2"):
        with pytest.raises(ValueError, match=f"unknown target '{wrong}': use one of v5e, v5p, .*"):
            targets.find(wrong)


def test_a_program_is_compiled_for_this_machine(script, tmp_path):
    output = tmp_path / "compiled.json"
    small = "--config.model.width=0.03125"
    arguments = ("--config=configs/digits.py", "--target=cpu", "--program=validation", small)
    done = script("compile.py", *arguments, f"--output={output}")
    assert done.returncode == 0, done.stderr
    assert "validation: compiling" in done.stdout
    written = json.loads(output.read_text())
    assert written["devices"] == written["hosts"] == 1
    ((name, program),) = written["programs"].items()
    assert name == "validation"
    assert program["memory"]["total"] > program["memory"]["temporary"] > 0
    assert program["operations"] > 10
    assert program["estimated"]["cycles"] is None
    assert len(program["largest_operations"]) == 5


ENTRIES = [Entry("routing", name, "forward", "v5e:2x2", (f"--routing={name}",)) for name in "ab"]
# In place of experiments/compile.py: counts its calls, and never finishes b.
PRETENDED = """
import json, pathlib, sys
options = dict(o.lstrip("-").split("=") for o in sys.argv[1:])
with open("CALLS", "a") as file:
    print(options["routing"], file=file)
if options["routing"] == "b":
    while True:
        sum(range(1000))
record = {"compile_cpu_seconds": 1.0, "memory": {"total": 3e6}, "estimated": {"cycles": 2e6}}
pathlib.Path(options["output"]).write_text(json.dumps({"programs": {"forward": record}}))
"""


def test_the_list_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    monkeypatch.setattr(catalogue, "sources", lambda: "these")
    command = (sys.executable, "-c", PRETENDED.replace("CALLS", str(calls)))

    def compile_all():
        done = catalogue.compile_all(ENTRIES, tmp_path / "kept", cpu_seconds=2, command=command)
        return [pages.in_short(record) for _, record in done]

    first = compile_all()
    assert first == ["1 CPU s, 3 MB, 2.00 M cycles", "not finished in 2 CPU seconds"]
    assert compile_all() == first
    assert calls.read_text().split() == ["a", "b"]
    monkeypatch.setattr(catalogue, "sources", lambda: "others")
    compile_all()
    assert calls.read_text().split() == ["a", "b", "a", "b"]


def test_what_a_compiler_fails_at_is_kept_and_other_failures_end_the_list(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "sources", lambda: "these")

    def compile_all(said):
        command = (sys.executable, "-c", f"import sys; sys.exit('error: {said}')")
        return list(catalogue.compile_all(ENTRIES, tmp_path / said, cpu_seconds=9, command=command))

    for said, name in (
        ("the compiler failed for v5e:2x2: no", "failed"),
        ("2 GB of 1 GB, 1 GB too much; its largest buffers: x", "does_not_fit"),
    ):
        assert [record[name] for _, record in compile_all(said)] == [said, said]
    with pytest.raises(ValueError, match=r"^a for v5e:2x2: no such thing$"):
        compile_all("no such thing")


def test_the_pages_are_those_of_the_records():
    records = json.loads(pages.RECORDS.read_text())
    page = pages.accelerators(records, pages.NOTES.read_text())
    assert page == (pages.DOCS / "accelerators.md").read_text()
    page = (pages.DOCS / "scaling.md").read_text()
    assert pages.in_place(page, pages.scaling(records)) == page


def test_what_is_exchanged():
    """100 MB over a quarter of 400 GB/s, 7/4 times; ten times four hops of a microsecond."""
    record = {"collectives": {"all-reduce": {"number": 10, "bytes": 100e6}}}
    exchanged = pages.exchange(record, targets.CHIPS_BY_NAME["v5e"], 8)
    assert exchanged == pytest.approx((1.75, 0.04))
