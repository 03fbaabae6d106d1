"""`hermes eval`: runs the cases of a file and reports how often what was expected holds."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import one_line, print_report
from hermes.config.env import decode_argument
from hermes.config.load import Setup
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.batch.eval_file import EvalFile
    from hermes.batch.evaluation import CaseResult, Evaluation

_EPILOG = """\
A file of cases, in YAML:

  defaults: {toolsets: [file, terminal], max_turns: 20, timeout: 300}
  cases:
    - name: rename
      files: {a.txt: one}
      prompt: Rename a.txt to b.txt.
      expect:
        text: {contains: [b.txt], not: [sorry], regex: renamed}
        tools: {used: [terminal], unused: [web_search], max: 6, errors: 0}
        files: {b.txt: {equals: one}, a.txt: absent}
        command: {run: test -f b.txt, exit: 0}
        cost_usd: 0.05
        judge: {rubric: Says what was done., min: 4}

Each case runs in a fresh folder, in the sandbox; nobody is asked.

exit status: 0 all pass, 1 some fail, 2 a bad file

examples:
  hermes eval cases.yaml
  hermes eval cases.yaml --model lab:small --model lab:big --repeat 5 --junit report.xml
  hermes eval cases.yaml --replay
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("eval", "Measure how well models do what is expected.", _EPILOG)
    parser.add_argument("file", metavar="FILE.yaml")
    parser.add_argument(
        "--model", action="append", default=[], metavar="M", help="a model; repeatable"
    )
    parser.add_count_option("--repeat", metavar="N", help="run each case N times (1)")
    parser.add_argument("--max-usd", metavar="X", type=_parse_dollars, help="most dollars in all")
    parser.add_argument("--junit", metavar="FILE", help="write a JUnit report")
    parser.add_flag("--json", help="print JSON")
    parser.add_flag("--replay", help="use the answers of the last run; needs no provider")
    args = parser.parse_command(argv, profile)
    refuse_agent("run evaluations")
    return run_async(_run_cases(args, load_checked_setup(args.profile)))


def _parse_dollars(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not an amount of dollars")
    return value


async def _run_cases(args: Namespace, setup: Setup) -> int:
    from hermes.batch.eval_file import read_eval_file
    from hermes.batch.evaluation import EvalExtent, run_evaluation
    from hermes.batch.run_folder import create_run
    from hermes.cli.batch.options import make_toolset_check
    from hermes.cli.batch.report import check_target

    file = Path(decode_argument(args.file))
    found = read_eval_file(file, make_toolset_check(setup))
    stem = "".join(c if c.isalnum() else "-" for c in file.stem)[:30].strip("-") or "cases"
    if args.junit:
        check_target(Path(args.junit))
    if args.replay:
        done = await _replay_cases(args, setup, stem, found)
        where = "answers of the last run"
    else:
        folder = create_run(setup.home, f"eval-{stem}-{time.time_ns() // 1000}", "")
        extent = EvalExtent(args.model or [""], args.repeat or 1, args.max_usd)
        done = await run_evaluation(setup, folder, found, extent)
        where = str(folder.path)
    passed = sum(result.passed for result in done.results)
    import msgspec

    print_report(msgspec.to_builtins(done), _describe_results(done), json=args.json)
    if not args.json:
        text = f"{passed} of {len(done.results)} passed, ${done.cost_usd:.4f}; {where}"
        print(text, file=sys.stderr)
    if args.junit:
        _write_junit(Path(args.junit), file.stem, done)
    return 0 if passed == len(done.results) else EXIT_FAILED


async def _replay_cases(args: Namespace, setup: Setup, stem: str, found: EvalFile) -> Evaluation:
    """Run the cases on the answers that the last run recorded; with its models and as often, unless
    options say otherwise."""
    from functools import partial
    from tempfile import TemporaryDirectory

    from msgspec import structs

    from hermes.batch.evaluation import run_evaluation
    from hermes.batch.replay.recorded_cases import RecordedCases, RecordedRun, find_recorded_run
    from hermes.batch.run_folder import RunFolder

    source = RecordedRun(find_recorded_run(setup.home, stem))
    make_runner = partial(RecordedCases, source=source)
    try:
        extent = await source.find_extent(found)
        extent = structs.replace(
            extent, models=args.model or extent.models, repeat=args.repeat or extent.repeat
        )
        with TemporaryDirectory(prefix="hermes-eval-") as scratch:
            folder = RunFolder(Path(scratch))
            return await run_evaluation(setup, folder, found, extent, make_runner)
    finally:
        await source.close()


def _describe_results(done: Evaluation) -> list[str]:
    width = max(len(one_line(rate.name)) for rate in done.rates)
    lines = []
    for rate in done.rates:
        model = f"  {one_line(rate.model)}" if rate.model else ""
        interval = f"  ({rate.low:.0%} to {rate.high:.0%})" if rate.of > 1 else ""
        mark = "pass" if rate.passed == rate.of else "FAIL"
        name = f"{one_line(rate.name):<{width}}"
        lines.append(f"{mark}  {name}  {rate.passed}/{rate.of}{interval}{model}")
        lines += [
            f"      {result.repeat + 1}: {_describe_failure(result)}"
            for result in done.results
            if (result.name, result.model) == (rate.name, rate.model) and not result.passed
        ]
    return lines


def _describe_failure(result: CaseResult) -> str:
    shown = one_line(result.error or result.text, 100)
    failed = one_line(", ".join(result.failed), 400)
    return f"{failed}: {shown}" if shown else failed


def _write_junit(file: Path, suite: str, done: Evaluation) -> None:
    from xml.etree.ElementTree import Element, ElementTree, SubElement

    failures = sum(not result.passed for result in done.results)
    total = sum(result.seconds for result in done.results)
    root = Element(
        "testsuite",
        name=_clean_xml(suite),
        tests=str(len(done.results)),
        failures=str(failures),
        errors="0",
        skipped="0",
        time=f"{total:.3f}",
    )
    for result in done.results:
        name = f"{result.name}[{result.repeat + 1}]"
        case = SubElement(
            root,
            "testcase",
            classname=_clean_xml(result.model or suite),
            name=_clean_xml(name),
            time=f"{result.seconds:.3f}",
        )
        if not result.passed:
            message = ", ".join(result.failed)
            node = SubElement(case, "failure", message=_clean_xml(message), type="expectation")
            node.text = _clean_xml(result.error or result.text)
    try:
        ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from None


def _clean_xml(text: str) -> str:
    """The text without characters that XML does not know."""
    return "".join(
        c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c not in "\ufffe\uffff" else "?"
        for c in text
    )
