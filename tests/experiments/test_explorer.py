"""The explorer: what its script is given, and what a browser makes of it."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from _provenance import versions
from _report import comparison, couplings, decoder, explorer
from _report.pages import of_run
from _report.results import examples
from flax import nnx

from capsjax.evaluation import summaries
from tests.experiments.browser import CHROMIUM, Browser
from tests.experiments.test_report import HOSTILE, Page
from tests.models.building import build


@pytest.fixture(scope="module")
def results(results):
    """The tiny run's answers, with a decoder whose pictures change clearly when poses do."""
    model = nnx.clone(results.checkpoint.model)
    for layer, factor in zip(model.decoder.layers, (200.0, 3.0, 3.0), strict=True):
        layer.kernel[...] *= factor
    return results._replace(checkpoint=results.checkpoint._replace(model=model))


@pytest.fixture(scope="module")
def drawing(results):
    return decoder.Drawing.of(results, examples(results))


# What the script is given


def test_spread_and_effects(drawing):
    shown = drawing.examples
    own = shown.poses[drawing.labels == 4][:, 4]
    np.testing.assert_allclose(drawing.means[4], own.mean(0), rtol=1e-5)
    np.testing.assert_allclose(drawing.deviations[4], own.std(0), rtol=1e-5)
    ends = np.repeat(shown.poses[shown.rows(shown.by_class[4])], 2, axis=0)
    ends[::2, 4, 3], ends[1::2, 4, 3] = drawing.values(4, np.array([-3, 3]))[3]
    images = drawing(ends, 4)
    effect = np.abs(images[::2] - images[1::2]).mean()
    np.testing.assert_allclose(drawing.effects[4, 3], effect, rtol=1e-4)


@pytest.mark.parametrize(("ours", "mean"), [(0.2, 0.1), (0.1, 0.1), (0.1, 0.2)])
def test_a_decoder_no_better_than_mean_images_is_undertrained(
    results, drawing, monkeypatch, ours, mean
):
    monkeypatch.setattr(decoder.Drawing, "errors", decoder.Errors(ours, mean))
    text, _ = explorer.explorer(results, drawing.examples, replace(drawing))
    assert ("The decoder is undertrained" in text) == (ours >= mean)


def test_errors_of_a_decoder_and_of_mean_images(results, drawing):
    images, labels = results.dataset.images / 255, results.dataset.labels
    perfect = replace(drawing, draw=lambda poses, masks: images[drawing.examples.places])
    assert perfect.errors.decoder == 0
    places = drawing.examples.places
    others = [images[(labels == labels[i]) & (np.arange(len(labels)) != i)].mean(0) for i in places]
    errors = replace(drawing, draw=lambda poses, masks: np.stack(others)).errors
    assert errors.decoder == pytest.approx(errors.typical, rel=1e-5)


def test_decoders_too_large_for_the_page_are_left_out(results, drawing, monkeypatch):
    assert drawing.layers() is not None
    monkeypatch.setattr(decoder, "LARGEST", 1000)
    text, data = explorer.explorer(results, drawing.examples, drawing)
    assert "does not fit into this page" in text
    assert "Its couplings are shown alone." in text
    assert "poses" not in data


def test_couplings_of_every_iteration(results):
    checkpoint = results.checkpoint
    images = results.dataset.images[:20]
    found = couplings.couplings(checkpoint.model, checkpoint.config, images)
    assert found.iterations == [1, 2, 3]
    assert found.layer == "primary"
    np.testing.assert_allclose(found.means[0], 0.1, rtol=1e-6)
    output = checkpoint.model(images, capture=True)
    primary = output.features["primary"]
    last = np.asarray(output.routed["classes"].coupling).reshape(*primary.shape[:-1], 10)
    np.testing.assert_allclose(found.means[2], last.mean(-2), atol=1e-5)
    # Two convolutions of 3, the second of stride 2: a position sees 5 pixels, 2 further on.
    assert found.rows == found.columns == couplings.Axis([2.5, 4.5], 5)


def test_networks_without_maps_say_why(results):
    config, images = results.checkpoint.config, results.dataset.images[:1]
    cnn = build("lin2018_cnn", (8, 8, 1), 10, width=1 / 32, kernel_size=3)
    assert "routes nothing" in couplings.couplings(cnn, config, images)
    attention = build("choi2019_mnist", (8, 8, 1), 10, width=1 / 32)
    attention.eval()
    assert "belong to no position" in couplings.couplings(attention, config, images)


def test_couplings_through_capsules_without_positions():
    model = build("lin2018_capsnet", (8, 8, 1), 3, width=1 / 32, kernel_size=3)
    assert couplings._path(model, (8, 8, 1)) == ("classes", "capsules1", "primary")
    images = np.zeros((2, 8, 8, 1), np.uint8)
    means, _ = couplings._maps(("classes", "capsules1", "primary"), model, images)
    np.testing.assert_allclose(means.sum(-1), 1, rtol=1e-5)  # each child is divided over classes


def test_where_positions_look():
    touched = np.zeros((4, 8), bool)
    for i, (start, end) in enumerate([(0, 3), (1, 5), (3, 7), (5, 8)]):  # windows of 4, padded
        touched[i, start:end] = True
    assert couplings._axis(touched) == couplings.Axis([1.0, 3.0, 5.0, 7.0], 4)
    for seen in (True, False):  # everything, or nothing: no pose reacts
        assert couplings._axis(np.full((2, 8), seen)) == couplings.Axis([2.0, 6.0], None)


# Several runs


def test_several_runs(results):
    checkpoint = results.checkpoint
    other = checkpoint.config.copy_and_resolve_references()
    other.seed = 1
    seed = results._replace(name="runs/a1", checkpoint=checkpoint._replace(config=other))
    changed = other.copy_and_resolve_references()
    changed.training.batch_size = 12
    labels = results.dataset.labels
    scores = np.eye(10, dtype=np.float32)[labels]
    perfect = results._replace(
        name="runs/<b>",
        checkpoint=checkpoint._replace(config=changed),
        scores=scores,
        summary=summaries.summarize(scores, labels),
    )
    html = Page(comparison.page([results, seed, perfect], {}, ["again"]))
    assert "runs/a0 and 1 more seed" in html.text
    share = 100 * results.summary.accuracy
    assert f"{share:.2f} ± 0.00 %" in html.text
    assert "training.batch_size2412" in html.text.replace("\n", "")
    assert "model.name" not in html.text
    wrong = int((~results.correct).sum())
    assert f"Wrong in runs/a0 and 1 more seed alone: {min(wrong, 24)}" in html.text
    assert "Wrong in runs/<b> alone: 0" in html.text
    assert "0 images are wrong in both." in html.text
    seeds = Page(comparison.page([results, seed], {}, []))
    assert "have one config and differ in their seed" in seeds.text
    assert f"{wrong} images are wrong in both." in seeds.text
    # Two of five are right, and no wrong class has more.
    said = [np.full_like(labels, k) for k in (labels[0], labels[0], 9, 9, 8)]
    five = [seed._replace(scores=np.eye(10, dtype=np.float32)[k]) for k in said]
    assert labels[0] not in (8, 9)
    assert comparison.Group(five).wrong[0]
    assert comparison.Group(five).mistaken_for[0] == 9
    data = results.dataset
    other = perfect._replace(dataset=data._replace(images=255 - data.images))
    with pytest.raises(ValueError, match="different images"):
        comparison.page([results, other], {}, [])
    # Networks of two sizes see the same files of a folder.
    folder, larger = data._replace(name="folder:x"), np.repeat(data.images, 2, axis=1)
    assert comparison._same_images(folder, folder._replace(images=larger))
    assert not comparison._same_images(folder, folder._replace(labels=np.roll(labels, 1)))


# In a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def opened(drawing):
    """The first images of the two classes that the explorer opens on: those that move most."""
    most = np.argsort(-drawing.effects.max(1))[:2].tolist()
    return [drawing.examples.by_class[label][0] for label in most]


@pytest.fixture(scope="module")
def address(results, tmp_path_factory):
    """The page of the tiny run, whose classes have hostile names."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    named = results._replace(dataset=results.dataset._replace(class_names=HOSTILE))
    file.write_text(of_run(named, versions(), ["<b>"]), encoding="utf-8")
    return file.as_uri()


SIZES = [(1280, False), (400, True)]


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_it_opens_without_requests_and_errors(browser, address, width, dark):
    browser.open(address, width=width, dark=dark)
    assert browser.requests == [address]
    assert browser.errors == []
    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), "no scrolling aside"
    assert browser.run("[...document.images].every((i) => i.hidden || i.naturalWidth > 0)")
    assert not browser.run("document.getElementById('tool').hidden")
    assert browser.run(
        f"matchMedia('(prefers-color-scheme: dark)').matches === {str(dark).lower()}"
    )


PIXELS = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return [...data].filter((_, i) => i % 4 === 0);
}"""


def test_sliders_draw_what_the_network_decodes(browser, address, results, drawing, opened):
    browser.open(address)
    predicted = int(results.predicted[opened[0]])
    pose = drawing.examples.poses[drawing.examples.rows(opened[:1])[0]].copy()
    first = f"({PIXELS})(document.querySelector('.live'))"

    def assert_drawn():
        expected = 255 * drawing(pose[None], predicted)[0, ..., 0]
        assert np.ptp(expected) > 30  # the error is at most 1
        assert np.abs(np.reshape(browser.run(first), (8, 8)) - expected).max() <= 1

    assert_drawn()
    before = browser.run(first)
    for element, z in ((3, 2.5), (7, -3.0), (3, -1.0)):
        browser.run(
            f"(() => {{ const s = document.getElementById('element-{element}'); s.value = {z};"
            "s.dispatchEvent(new Event('input')); s.dispatchEvent(new Event('change')); })()"
        )
        pose[predicted, element] = drawing.values(predicted, z)[element, 0]
        assert_drawn()
    said = browser.run("document.getElementById('element-3').getAttribute('aria-valuetext')")
    assert said.startswith("−1.0 standard deviations from the mean of class ")
    assert np.abs(np.subtract(browser.run(first), before)).max() > 5  # the error is at most 1
    browser.run(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Reset').click()"
    )
    assert browser.run(first) == before
    assert browser.errors == []


def test_the_way_from_one_pose_to_another(browser, address, results, drawing, opened):
    browser.open(address)
    ends = np.zeros((2, 10, 16), np.float32)
    for end, row, place in zip(ends, drawing.examples.rows(opened), opened, strict=True):
        predicted = int(results.predicted[place])
        end[predicted] = drawing.examples.poses[row, predicted]
    film = browser.run(f"[...document.querySelectorAll('.film canvas')].map({PIXELS})")
    assert len(film) == 9
    for i, pixels in enumerate(film):
        between = (1 - i / 8) * ends[0] + i / 8 * ends[1]
        # Given everything, as the masks have been applied.
        decoded = results.checkpoint.model.decoder(jnp.asarray(between[None]))
        expected = 255 * np.asarray(decoded)[0, ..., 0]
        assert np.abs(np.reshape(pixels, (8, 8)) - expected).max() <= 1


def test_couplings_are_drawn_where_positions_look(browser, address):
    browser.open(address)
    maps = browser.run("document.querySelectorAll('.maps .stack').length")
    assert maps == 2 * 3
    said = browser.run("document.querySelectorAll('.maps .stack')[0].getAttribute('aria-label')")
    assert "Iteration 1: 0.100 everywhere" in said
    corner, middle = browser.run(
        "(() => { const c = document.querySelectorAll('.maps canvas')[2].getContext('2d');"
        "const at = (x, y) => c.getImageData(x, y, 1, 1).data[3];"
        "return [at(5, 5), Math.max(at(80, 80), at(150, 80), at(80, 150), at(150, 150))]; })()"
    )
    assert corner == 0
    assert middle > 0


def test_cells_and_mistakes(browser, address, results):
    browser.open(address)
    counts = results.summary.confusion - np.diag(np.diag(results.summary.confusion))
    true, predicted = (int(k) for k in np.unravel_index(counts.argmax(), counts.shape))
    cell = f"td[data-true='{true}'][data-predicted='{predicted}'] button"
    browser.run(f'document.querySelector("{cell}").click()')
    panel = browser.run("document.getElementById('cell').textContent")
    assert f"{HOSTILE[predicted]}: {counts[true, predicted]} images" in panel
    assert browser.run("document.querySelectorAll('#cell img').length") == counts[true, predicted]
    browser.run(
        "(() => { const s = document.querySelector('#filter select');"
        f"s.value = {true}; s.dispatchEvent(new Event('change')); }})()"
    )
    leads = browser.run(
        "[...document.querySelector('#mistakes .mistakes').children]"
        ".map((f) => [f.dataset.true, Number(f.dataset.lead)])"
    )
    wrong = ~results.correct & (results.dataset.labels == true)
    assert [int(t) for t, _ in leads] == [true] * wrong.sum()
    np.testing.assert_allclose(
        [lead for _, lead in leads], sorted(results.lead[wrong], reverse=True), atol=1e-4
    )


def test_values_under_the_pointer(browser, address, results):
    browser.open(address)
    box = browser.run(
        "(() => { document.querySelector('.plot').scrollIntoView();"
        "const b = document.querySelector('.plot picture').getBoundingClientRect();"
        "return [b.right - 3, b.top + 50]; })()"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    last = [r for r in results.history.records if r["split"] == "train"][-1]
    said = browser.run("document.querySelector('.plot .values').textContent")
    step, _, value = said.partition(": train ")
    assert step == f"step {last['step']}"
    assert float(value) == pytest.approx(last["loss"], rel=0.005)


AXE = importlib.util.find_spec("axe_core_python")


@pytest.mark.skipif(AXE is None, reason="needs axe-core-python: pip install '.[test]'")
@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_accessibility(browser, address, width, dark):
    browser.open(address, width=width, dark=dark)
    browser.run(Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8") + ";0")
    found = browser.run("axe.run().then(({ violations }) => violations)")
    serious = [
        (v["id"], v["nodes"][0]["html"][:200])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []
