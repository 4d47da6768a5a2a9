"""Arguments of the command line: settings, wrong use, numbers, and databases that do not exist."""

import re
import shlex
from pathlib import Path

import pytest

from app.cli.commands import FORMER, SECTIONS
from app.cli.experiment import _baseline_first
from app.cli.main import main
from app.cli.run import one_variant, several_variants
from app.cli.telemetry import RateLimiter
from app.storage.store import Store
from app.values.fields import Sample, SlowSample
from app.values.samples import HOST
from tests.cli_docs import PAGE, page
from tests.fakes.command_line import Run, parse_arguments
from workloads.catalog import Machine, UsageError, workload


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["show", "1"],
        ["compare", "1", "2"],
        ["export", "1", "--format", "csv"],
        ["queue"],
        ["reference"],
        ["experiment", "--preset", "quick", "--show"],
    ],
)
def test_a_database_that_is_not_there_is_not_made_by_reading(run: Run, words: list[str], tmp_path: Path) -> None:
    mistyped = tmp_path / "profils.db"
    assert run(*words, database=mistyped, status=1).startswith(f"There is no database {mistyped}: ")
    assert not mistyped.exists()


CPU = Machine(cpu_count=4)
CNN10 = workload("cnn10")


def test_a_setting_is_read_as_its_parameter_s_kind() -> None:
    variant = one_variant(workload("lstm"), ["units=32", "xla=on", "seconds=1.5", "precision=bfloat16"], CPU).variant
    assert (variant["units"], variant["xla"], variant["seconds"], variant["precision"]) == (32, True, 1.5, "bfloat16")
    assert (variant["gpus"], variant["implementation"]) == (0, "standard"), "the CPU's defaults"


def test_several_values_make_every_combination_the_last_fastest() -> None:
    variants = several_variants(workload("cnn10"), ["layout=NHWC,NCHW", "batch_size=8,16"], CPU)
    assert [(spec.variant["layout"], spec.variant["batch_size"]) for spec in variants] == [
        ("NHWC", 8),
        ("NHWC", 16),
        ("NCHW", 8),
        ("NCHW", 16),
    ]


def test_devices_is_one_value_with_commas_in_it() -> None:
    (spec,) = several_variants(workload("cnn10"), ["devices=0,1", "gpus=2"], CPU)
    assert spec.variant["devices"] == "0,1"


@pytest.mark.parametrize("setting", ["seconds=5,5.0,05,", "xla=true,1,yes", "interpreter=,", "batch_size=8, 8 8"])
def test_a_value_given_twice_in_whatever_spelling_is_one_variant(setting: str) -> None:
    assert len(several_variants(CNN10, [setting], CPU)) == 1


def test_no_interpreter_is_a_value_next_to_another() -> None:
    variants = several_variants(CNN10, ["interpreter=,/usr/bin/python3"], CPU)
    assert [spec.variant["interpreter"] for spec in variants] == ["", "/usr/bin/python3"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["layout"], "-s takes name=value, not 'layout'."),
        (["=NHWC"], "-s takes name=value, not '=NHWC'."),
        (["layout=NHWC", "layout=NCHW"], "layout is given twice."),
        (["layot=NHWC"], "There is no parameter of cnn10 called 'layot'. Did you mean layout?"),
        (["layout="], "There is no value of layout called ''."),
        (["batch_size=0"], "batch_size must be from 1 to 1,048,576, not 0."),
        (["batch_size=1e9"], "batch_size takes a whole number, not '1e9'."),
        (["seconds=nan"], "seconds must be from 0.1 to 86,400, not nan."),
        (["seed=" + ",".join(map(str, range(501)))], "501 combinations are too many: choose fewer values, 500 at"),
        (["xla=maybe"], "xla is on or off (true or false), not 'maybe'."),
    ],
)
def test_a_wrong_setting_is_one_sentence(settings: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        several_variants(workload("cnn10"), settings, CPU)
    assert str(caught.value).startswith(sentence)


def test_the_baseline_comes_first() -> None:
    variants = several_variants(workload("cnn10"), ["batch_size=8,16,32"], CPU)
    ordered = _baseline_first(variants, "batch_size=16", CNN10)
    assert [spec.variant["batch_size"] for spec in ordered] == [16, 8, 32]
    assert _baseline_first(variants, None, CNN10) == variants
    with pytest.raises(UsageError, match="No variant of this experiment has batch_size=64"):
        _baseline_first(variants, "batch_size=64", CNN10)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["run"],
            (
                "run needs a workload: lstm, gru, cnn10, wrn28-10, your own file as path/to/file.py:name, or your own "
                "command as -- python train.py."
            ),
        ),
        (
            ["list", "parameters", "lstn"],
            "There is no workload called 'lstn'. Did you mean lstm? Your own is path/to/file.py:name.",
        ),
        (["compare", "1", "1"], "compare takes two runs or more; `python -m app list` shows their numbers."),
        (
            ["experiment"],
            (
                "experiment needs a workload with some -s name=a,b, a command after --, or --preset quick; "
                "`list presets` shows them."
            ),
        ),
        (
            ["experiment", "lstm", "--show"],
            "--show goes with --preset; `python -m app compare` shows any stored runs.",
        ),
        (
            ["experiment", "lstm", "-s", "xla=false,true", "--until", "1%", "--repeats", "2"],
            "--until needs at least 3 repeats: give --repeats 3 or more.",
        ),
        (
            ["experiment", "--preset", "quick", "--report", "page.pdf"],
            "--report takes a file that ends in .html or .md.",
        ),
        (
            ["experiment", "--preset", "quick", "dummy", "-s", "seconds=1", "--baseline", "seconds=1"],
            "--preset has its own workload, settings and baseline: leave out WORKLOAD, -s, --baseline.",
        ),
        (
            ["experiment", "--preset", "quick", "--queue", "--report", "x.html", "--no-standby"],
            "--queue runs nothing yet, but `queue run` takes these options: leave out --report, --no-standby.",
        ),
        (
            ["experiment", "--preset", "quick", "--queue", "--budget", "0s"],
            "A budget of zero leaves no time for a run: give --budget more, such as 8m or 90s.",
        ),
        (
            ["experiment", "--preset", "quick", "--show", "--parallel"],
            "--show runs nothing: leave out --parallel.",
        ),
        (
            ["experiment", "dummy", "-s", "seconds=1,2", "--report", "/nowhere/x.html"],
            "--report takes a file in an existing folder; /nowhere is not one.",
        ),
        (
            ["queue", "run", "--report", "/nowhere/x.html"],
            "--report takes a file in an existing folder; /nowhere is not one.",
        ),
        (["watch", "--json", "--csv"], "watch takes one of --json, --csv and --prometheus."),
        (
            ["compare", "1", "2", "--tag", "paper"],
            "compare takes runs by number or by what finds them (--search, --tag …), not both.",
        ),
        (["compare", *map(str, range(1, 752))], "compare takes at most 750 runs; these are 751."),
        (["compare", "1", "2", "--baseline", "3"], "The baseline, run 3, is not among the runs compared."),
    ],
)
def test_wrong_use_is_one_sentence(run: Run, words: list[str], sentence: str, database_path: Path) -> None:
    assert run(*words, status=2) == f"{sentence}\n"
    assert not database_path.exists(), "wrong use makes no database"


def test_a_report_takes_no_folder_s_name(
    tmp_path: Path, database_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.html").mkdir()
    words = ["experiment", "--preset", "quick", "--report", str(tmp_path / "x.html"), "--db", str(database_path)]
    assert main(words) == 2
    assert capsys.readouterr().err.endswith("x.html cannot.\n")


NO_RUN = "{!r} is not the number of a run; `python -m app list` shows them."
HELP = "`python -m app{} --help` shows how it is used."
TIME = "Invalid value for '--budget': {!r} is not a time such as 8m, 90s or 1h30m."
AGE = "Invalid value for '--samples-older-than': {!r} is not an age such as 30d, 12h or 2w, up to 36500 days."

SOME_RUNS = "delete takes the numbers of runs, or --samples-older-than AGE, which --dry-run goes with."
ALL_RUNS = "--samples-older-than is about all runs: leave out --for-good and the numbers of runs."
OF_GPUS = "--all goes with gpus list, --precision with gpus calibrate."


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], f"A command is missing. {HELP.format('')}"),
        (["dance"], f"No such command 'dance'. {HELP.format('')}"),
        (["lsit"], f"No such command 'lsit'. Did you mean 'list'? {HELP.format('')}"),
        (["run", "lstm", "--fast"], f"No such option '--fast'. {HELP.format(' run')}"),
        (
            ["run", "--larges-batch"],
            f"No such option '--larges-batch'. Did you mean '--largest-batch'? {HELP.format(' run')}",
        ),
        (["show"], "show takes RUN; `python -m app list` shows the numbers of runs."),
        (["queue", "rnu"], f"There is no 'rnu' of queue. Did you mean run? {HELP.format(' queue')}"),
        (
            ["hosts", "dance"],
            (
                "There is no 'dance' of hosts. There are: list, add, check, remove, jobs, fetch, stop. "
                f"{HELP.format(' hosts')}"
            ),
        ),
        (
            ["run", "lstm", "-s", "layers=1,2"],
            (
                "layers takes a whole number, not '1,2'. `python -m app experiment` takes several values, and compares "
                "them."
            ),
        ),
        (["show", "first"], f"Invalid value for 'RUN': {NO_RUN.format('first')}"),
        (["compare", "1,x"], f"Invalid value for '[RUN]...': {NO_RUN.format('x')}"),
        (["list", "presets", "--tag", "x"], "--tag goes with runs, not with list presets."),
        (["list", "--units", "64"], f"No such option '--units'. {HELP.format(' list')}"),
        (
            ["run", "lstm", "batch_size=64"],
            f"Got unexpected extra argument (batch_size=64). Did you mean -s batch_size=64? {HELP.format(' run')}",
        ),
        (
            ["run", "lstm", "bacth_size=64"],
            f"Got unexpected extra argument (bacth_size=64). {HELP.format(' run')}",
        ),
        (["list", "presets", "x=1"], "list parameters takes a workload, such as lstm; other lists take none."),
        (["import"], "import takes FILE."),
        (["list", "--batch-size=64"], f"No such option '--batch-size'. {HELP.format(' list')}"),
        (["experiment", "--variants-of", "1;2"], f"Invalid value for '--variants-of': {NO_RUN.format('1;2')}"),
        (
            ["experiment", "lstm", "--variants-of", "1,2"],
            "--variants-of takes the variants of stored runs: leave out WORKLOAD.",
        ),
        (["experiment", "lstm", "--repeats", "0"], "Invalid value for '--repeats': 0 is not in the range 1<=x<=999."),
        (["experiment", "lstm", "--budget", "soon"], TIME.format("soon")),
        (
            ["experiment", "lstm", "--until", "narrow"],
            "Invalid value for '--until': 'narrow' is not a precision such as 0.5%, above 0 and below 100.",
        ),
        (["experiment", "lstm", "--budget", ""], TIME.format("")),
        (["experiment", "lstm", "--budget", "5m2h"], TIME.format("5m2h")),
        (["watch", "--seconds", "-1"], "Invalid value for '--seconds': -1.0 is not in the range 0<x<inf."),
        (["watch", "--seconds", "nan"], "Invalid value for '--seconds': nan is not a number."),
        (["watch", "--every", "0.009"], "Invalid value for '--every': 0.009 is not in the range 0.01<=x<=3600."),
        (["run", "lstm", "--sample-ms", "9"], "Invalid value for '--sample-ms': 9.0 is not in the range 10<=x<=1000."),
        (
            ["experiment", "lstm", "--sample-ms", "1001"],
            "Invalid value for '--sample-ms': 1001.0 is not in the range 10<=x<=1000.",
        ),
        (["delete"], SOME_RUNS),
        (["prune"], SOME_RUNS),
        (["delete", "1", "--dry-run"], SOME_RUNS),
        (["delete", "1", "--samples-older-than", "1d"], ALL_RUNS),
        (["delete", "--for-good", "--samples-older-than", "1d"], ALL_RUNS),
        (["delete", "--samples-older-than", "soon"], AGE.format("soon")),
        (["delete", "--samples-older-than", "-1d"], AGE.format("-1d")),
        (["compare", "1", "2", "--all"], "--all goes with --diff."),
        (
            ["compare", "1", "2", "--diff", "--why", "--baseline", "1"],
            "--diff answers another question: leave out --baseline, --why.",
        ),
        (["compare", "1", "2", "--diff", "--scaling"], "compare takes one of --diff and --scaling."),
        (
            ["compare", "1", "2", "--diff", "--format", "latex"],
            "--diff answers another question: leave out --format.",
        ),
        (["list", "--tag"], f"Option '--tag' requires an argument. {HELP.format(' list')}"),
        (["compare", "1", "2", "--scaling", "--why"], "--scaling answers another question: leave out --why."),
        (["gpus", "calibrate", "--all"], OF_GPUS),
        (["gpus", "--precision", "float32"], OF_GPUS),
        (
            ["queue", "move", "1", "--first", "--before", "2"],
            "--first and --before exclude each other: give one of them.",
        ),
    ],
)
def test_words_that_are_none_are_status_2(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")


def test_an_empty_database_says_what_to_do(run: Run, database_path: Path) -> None:
    Store.open(database_path).close()
    lines = "No runs yet. `python -m app run lstm` starts the first one; `python -m app reference` lists H200 runs.\n"
    assert run("list") == lines


def test_parameters_are_listed_with_defaults_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "parameters", "cnn10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("layout ")).split()[1:6] == [
        "NCHW",
        "NHWC",
        "NCHW",
        "|",
        "NHWC",
    ]
    assert "1 … 1,024" in next(line for line in lines if line.startswith("channels "))


FORMER_LINES = [
    ("calibrate --precision float32", "gpus calibrate --precision float32"),
    ("diff 1 2 --all", "compare --diff 1 2 --all"),
    ("experiment --presets --json", "list presets --json"),
    ("list --json --experiments", "list --json experiments"),
    ("prune --dry-run --older-than 30d", "delete --dry-run --samples-older-than 30d"),
    ("prune --older-than=30d", "delete --samples-older-than=30d"),
    ("queue go-on 3", "queue run 3"),
    ("reference --add", "reference add"),
    ("reference --json --remove", "reference remove --json"),
    ("run lstm --parameters", "list parameters lstm"),
    ("scaling 1-4 --report x.md", "compare --scaling 1-4 --report x.md"),
]


@pytest.mark.parametrize(("former", "current"), FORMER_LINES)
def test_former_words_mean_what_replaced_them(former: str, current: str) -> None:
    assert parse_arguments(*former.split()) == parse_arguments(*current.split())


def test_no_help_has_former_words_and_each_is_tried() -> None:
    assert all(any(re.match(former, words) for words, _ in FORMER_LINES) for former in FORMER)
    assert not any(name in FORMER for commands in SECTIONS.values() for name in commands)


def test_words_of_a_command_behind_dashes_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--", "echo", "--parameters"]) == 0
    assert "echo --parameters" in capsys.readouterr().out


@pytest.mark.parametrize(("word", "days"), [("30d", 30.0), ("12h", 0.5), ("2w", 14.0), ("7", 7.0), ("0", 0.0)])
def test_an_age_is_a_number_with_its_unit(word: str, days: float) -> None:
    assert parse_arguments("delete", "--samples-older-than", word).samples_older_than == days


@pytest.mark.parametrize(("word", "seconds"), [("8m", 480), ("90s", 90), ("1h30m", 5400), ("2.5", 2.5), ("1m5s", 65)])
def test_a_budget_is_a_time(word: str, seconds: float) -> None:
    assert parse_arguments("experiment", "lstm", "--budget", word).budget == seconds


def test_telemetry_is_read_every_50_ms_unless_told_otherwise() -> None:
    assert parse_arguments("run", "lstm").sample_ms == 50.0
    assert parse_arguments("experiment", "lstm", "--sample-ms", "10").sample_ms == 10.0


def test_no_device_is_shown_more_often_than_requested() -> None:
    due = RateLimiter(5.0)
    host = [Sample(t_ns=n * 500_000_000, device=HOST) for n in range(31)]
    gpu = [Sample(t_ns=n * 5_000_000_000, device="GPU-a") for n in range(4)]
    assert [sample.t_ns / 1e9 for sample in host if due(sample)] == [0.0, 5.0, 10.0, 15.0]
    assert all(due(sample) for sample in gpu)
    assert due(SlowSample(t_ns=1, device=HOST)), "slow ones have a pace of their own"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["experiment", "--repeats", "1000"], "'--repeats': 1000 is not in the range 1<=x<=999."),
        (["experiment", "--repeats", "x"], "'--repeats': 'x' is not a valid whole number."),
        (["experiment", "--max-throttled", "most"], "'--max-throttled': 'most' is not a valid number."),
        (["experiment", "--until", "-1%"], "'--until': '-1%' is not a precision such as 0.5%, above 0"),
        (["experiment", "--max-throttled", "-.5%"], "'--max-throttled': -0.5 is not in the range 0<=x<=100."),
        (["experiment", "--parallel", "-2"], "No such option '-2'"),
        (["watch", "--seconds", "-1e3"], "'--seconds': -1000.0 is not in the range 0<x<inf."),
        (["experiment", "--until"], "Option '--until' requires an argument"),
    ],
)
def test_a_word_in_place_of_a_number_is_told_without_names_of_the_program_s_own(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_options_before_the_command_are_those_of_it(tmp_path: Path) -> None:
    assert parse_arguments("--db", "a.db", "--sample-ms", "20", "run", "lstm").database == Path("a.db")
    assert parse_arguments("--db", "a.db", "--sample-ms", "20", "run", "lstm").sample_ms == 20.0
    assert parse_arguments("--db", "a.db", "list", "--db", "b.db").database == Path("b.db")


def test_every_command_is_in_a_section_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line and not line.startswith((" ", "Usage"))]
    assert heads == ["Options:", *(f"{title}:" for title in SECTIONS)]
    assert {name for entries in SECTIONS.values() for name in entries} <= {line.split()[0] for line in lines if line}


def test_the_page_of_commands_is_made_from_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make it anew with: python -m tests.cli_docs"


NAMES = [name for entries in SECTIONS.values() for name in entries]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_command_s_help_are_true(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    _, _, written = capsys.readouterr().out.partition("Examples:\n")
    examples = [shlex.split(line.partition(" > ")[0]) for line in written.splitlines()]
    assert 1 <= len(examples) <= 3
    for python, m, app, *words in examples:
        assert (python, m, app, words[0]) == ("python", "-m", "app", name)
        parse_arguments(*words)
