"""The page of the articles that some runs repeat, from made-up runs of a preset of the user's."""

from pathlib import Path

from app.report.article.tables import describe_origin
from app.report.render import articles_html
from app.runs.experiment.presets import load_preset, replicated_articles
from tests.fakes.experiments import ENVIRONMENT, result
from tests.unit.viewmodels.stored import run_row, stored_run

FORM = """
question = "?"
repeats = 1
matrix = [{workload = "lstm", settings = {gpus = 0, xla = [false, true]}}]
"""
ARTICLE = """
[article]
title = "<b>Mine</b> & co"
machine = "an <i>old</i> card"
[[article.tables]]
kind = "ratios"
title = "XLA <on>"
workload = "lstm"
figure = "step_ms"
head = "compiler"
baseline = { xla = false }
columns = [{ settings = {} }]
rows = [{ label = "XLA", settings = { xla = true }, article_ratio = [2.0, 3.0] }]
claims = [{ about = "XLA", says = "worth it" }]
"""


def test_what_the_article_gives_stands_beside_what_was_measured_and_no_word_is_markup(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"[gpu]{FORM}[cpu]{FORM}{ARTICLE}", encoding="utf-8")
    plain, xla = load_preset(str(file)).all_plans()[0].variants
    runs = [result(1, plain, 100.0), result(2, xla, 250.0)]
    page = articles_html(replicated_articles(runs, [str(file)]))
    assert "<h1>&lt;b&gt;Mine&lt;/b&gt; &amp; co</h1>" in page
    assert "The article measured on an &lt;i&gt;old&lt;/i&gt; card." in page
    assert "XLA &lt;on&gt;" in page
    assert '<td class="number">2–3×</td><td class="number">128.0</td><td class="number">2.50×</td>' in page
    assert page.index("2.50×") < page.index("The article, XLA: worth it.")


def test_a_table_of_which_nothing_was_chosen_is_left_out() -> None:
    plan = load_preset("article-a").all_plans()[0]
    layers = [spec for spec in plan.variants if spec.variant["implementation"] in ("standard", "cudnn")]
    runs = [result(number, spec, 100.0 * number) for number, spec in enumerate(layers, 1)]
    page = articles_html(replicated_articles(runs))
    assert "cuDNN as a drop-in layer" in page
    assert "The ladder" not in page


def test_the_machine_is_its_cards_or_else_its_processor() -> None:
    on_gpu = stored_run(run_row(1, gpu_names=("NVIDIA H200",)), environment=ENVIRONMENT)
    on_cpu = stored_run(run_row(2), environment={"cpu": "A processor"})
    versions = "NVIDIA driver 580.1 · TensorFlow 2.21.0 · VariantScope 0.1.0"
    assert describe_origin([on_gpu.header]) == f"Measured on NVIDIA H200 · {versions} · 2025-10-09 · 1 run"
    assert describe_origin([on_cpu.header]) == "Measured on A processor · 2025-10-09 · 1 run"
