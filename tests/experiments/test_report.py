import base64
import copy
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import report
from _provenance import versions
from _report.decoder import ROWS, STEPS
from _report.html import IN_ROWS, picture, sheet
from _report.pages import SCRIPTS, SECTIONS, of_run
from _report.results import MAX_MISTAKES
from PIL import Image
from sklearn.datasets import load_sample_image

from capsjax.evaluation import summaries
from capsjax.runs import checkpoints
from capsjax.runs.history import History
from capsjax.training import build
from capsjax.training import config as configs


class Page(HTMLParser):
    """What a page refers to and shows."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text, self.scripts = [], [], "", []
        self.feed(text)
        assert not self.open, "every tag is closed"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        else:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def text(results):
    return of_run(results, versions(), ["python experiments/train.py"])


def test_as_a_user_runs_it(script, finished_run):
    done = script("report.py", finished_run)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    assert f"Written to {finished_run / 'report.html'}" in done.stdout
    html = Page((finished_run / "report.html").read_text(encoding="utf-8"))
    assert [s["id"] for s in html.all("section")] == [*SECTIONS]
    assert f"--workdir={finished_run}" in html.text


def test_it_refers_to_nothing_outside(text):
    html = Page(text)
    addresses = [a[k] for _, a in html.tags for k in ("src", "srcset", "href") if k in a]
    assert addresses
    inside = {f"#{section}" for section in SECTIONS}
    assert all(address.startswith("data:") or address in inside for address in addresses)
    assert inside < set(addresses), "the contents lead to every section"
    assert "@import" not in text
    assert "url(" not in text


def test_scripts_are_allowed_by_their_contents_alone(text):
    html = Page(text)
    policy = next(a["content"] for a in html.all("meta") if "http-equiv" in a)
    data, *scripts = html.scripts
    assert json.loads(data)["classes"]
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)
    assert policy.endswith(f"; script-src {hashes}")
    assert policy.startswith("default-src 'none'; ")


def test_every_picture_has_words_and_can_be_decoded(text):
    images = Page(text).all("img")
    assert all(image["alt"] for image in images)
    kinds = set()
    for address in {image["src"] for image in images}:
        kind, _, contents = address.removeprefix("data:").partition(";base64,")
        contents = base64.b64decode(contents, validate=True)
        kinds.add(kind)
        if kind == "image/png":
            Image.open(io.BytesIO(contents)).load()
        else:
            assert b"</svg>" in contents
    assert kinds == {"image/png", "image/svg+xml"}


def test_equal_runs_give_equal_pages(results, text):
    assert of_run(results, versions(), ["python experiments/train.py"]) == text


def test_the_numbers(results, text):
    html = Page(text)
    assert f"{100 * results.summary.accuracy:.1f} % test accuracy" in html.text
    assert "seed" in html.text
    assert f"step {results.checkpoint.step}, validation accuracy" in html.text
    epochs = results.checkpoint.config.training.epochs
    assert f"Epochs</dt><dd>{results.checkpoint.step // 7} of {epochs}</dd>" in text
    row = rf'<th scope="row">{results.dataset.class_names[2]}</th>((<td[^>]*>\d*</td>)+)'
    cells = re.findall(r"<td[^>]*>(\d*)</td>", re.search(row, text)[1])
    assert [int(cell or 0) for cell in cells] == results.summary.confusion[2].tolist()


def test_the_elements_that_move_most(text):
    strips = [a for a in Page(text).all("img") if "moved from −3 to +3 σ" in a["alt"]]
    classes, elements = zip(*(a["alt"].split(" moved")[0].split(", ") for a in strips), strict=True)
    assert len(set(classes)) == len(set(elements)) == len(strips) <= ROWS
    assert decoded(strips[0]["src"]).size == (STEPS * (8 + 2) - 2, 8)


def test_worst_mistakes_first(results, text):
    cards = re.findall(r'alt="Image (\d+), class (\d), taken for (\d)"', text)
    assert len(cards) == (~results.correct).sum()
    folded = text.partition('<details id="more">')[2].partition("</details>")[0]
    assert folded.count('alt="Image ') == len(cards) - MAX_MISTAKES
    leads = []
    for index, true, predicted in (map(int, card) for card in cards):
        scores = results.scores[index]
        assert results.dataset.labels[index] == true
        assert scores.argmax() == predicted != true
        leads.append(scores[predicted] - scores[true])
    assert leads == sorted(leads, reverse=True)


def test_a_network_without_decoder(results):
    config = copy.deepcopy(results.checkpoint.config)
    config.model.reconstruction = "none"
    model = build.build_model(config)
    model.eval()
    checkpoint = results.checkpoint._replace(model=model, config=config)
    changed = results._replace(checkpoint=checkpoint)
    html = Page(of_run(changed, {}, []))
    assert html.text.count("This network has no decoder") == 3
    assert "no decoder, so there are no poses to move. Its couplings are shown alone." in html.text
    data = json.loads(html.scripts[0])
    assert "poses" not in data
    assert data["couplings"]["iterations"] == [1, 2, 3]
    assert [s["id"] for s in html.all("section")] == [*SECTIONS]


def test_no_mistakes_and_nothing_but_mistakes(results):
    labels, classes = results.dataset.labels, np.eye(10, dtype=np.float32)
    perfect, wrong = (
        results._replace(scores=s, summary=summaries.summarize(s, labels))
        for s in (classes[labels], classes[(labels + 1) % 10])
    )
    assert "There are none: every image is classified correctly." in of_run(perfect, {}, [])
    assert "None of the images above is classified correctly." in of_run(wrong, {}, [])


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\"' onload=alert(1) x='",
    "{{7*7}}${alert(1)}`",
    "a\nb\tc",
    "\udcff not UTF-8",
    "\u202e\u2066 right to left",
    "$\\frac{1}{2}$",
    "_" * 300,
)


def test_names_are_text_and_not_html(results):
    renamed = results._replace(dataset=results.dataset._replace(class_names=HOSTILE, name="<i>"))
    text = of_run(renamed, {}, ["<script>"])
    html = Page(text)
    assert len(html.all("script")) == len(SCRIPTS) + 1
    assert not html.all("i")
    assert all(image["src"].startswith("data:") for image in html.all("img"))
    assert not any(name.startswith("on") for _, attributes in html.tags for name in attributes)
    assert HOSTILE[0] in html.text
    assert tuple(json.loads(html.scripts[0])["classes"]) == HOSTILE
    text.encode()


def decoded(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def test_pictures_of_any_number_of_channels():
    grey = decoded(picture(np.array([[[0.0], [1.5]]])))
    np.testing.assert_array_equal(grey, [[0, 255]])
    assert decoded(picture(np.zeros((4, 5, 3), np.uint8))).mode == "RGB"
    assert decoded(picture(np.zeros((4, 5, 2), np.uint8))).size == (10, 4)
    row = np.asarray(decoded(sheet(np.ones((1, 2, 1, 1, 1)), gap=1)))
    np.testing.assert_array_equal(row[0, :, -1], [255, 0, 255], "transparent between")


def test_the_training_command_is_the_nearest_config_and_its_changes(tmp_path):
    config = configs.default("sabour2017_capsnet", "mnist")
    config.model.decoder_features = (8, 16)
    resolved = build.resolve(config, (28, 28, 1), tuple("0123456789"))
    assert report.train_command(resolved, tmp_path) == (
        "python experiments/train.py --config=configs/sabour2017_mnist.py "
        f"--workdir={tmp_path} '--config.model.decoder_features=(8, 16)'"
    )
    # For a folder train.py chooses what is not given.
    folder = configs.override(configs.default("sabour2017_capsnet", "folder:x"), {})
    command = report.train_command(folder, tmp_path)
    assert "--config.training.batch_size=128 --config.training.epochs=50" in command
    with config.unlocked():
        config.model.of_another_version = 1
    assert report.train_command(config, tmp_path) is None


def test_a_run_that_was_interrupted_before_its_first_metrics(fails, finished_run, monkeypatch):
    read = checkpoints.read
    monkeypatch.setattr(checkpoints, "read", lambda *a: read(*a)._replace(history=History()))
    assert "has a checkpoint of step 7 and no metrics yet" in fails(report, finished_run)


def test_large_pictures_take_little_room():
    """As of a network for 96×96: in a row of eleven they took 200 kB when nothing was lost."""
    photo = load_sample_image("china.jpg")[:96, :96]
    assert len(picture(photo)) < 8_000
    strip = sheet(np.stack([photo] * 11)[None], gap=2)
    assert decoded(strip).height == IN_ROWS
    assert len(strip) < 60_000
    close = np.asarray(decoded(picture(photo)).convert("RGB"), float) - photo
    assert np.abs(close).mean() < 8
