"""The explorer: what its script is given, and what a browser makes of it."""

import importlib.util
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from _provenance import versions
from _report import comparison, couplings, decoder, explorer
from _report.page import page
from _report.results import examples
from flax import nnx

from capsjax import models
from capsjax.evaluation import summaries
from tests.experiments.browser import CHROMIUM, Browser
from tests.experiments.test_report import HOSTILE, Page


@pytest.fixture(scope="module")
def results(results):
    """The tiny run's answers, with a decoder whose pictures change clearly when poses do."""
    model = nnx.clone(results.checkpoint.model)
    for layer, factor in zip(model.decoder.layers, (200.0, 3.0, 3.0), strict=True):
        layer.kernel[...] *= factor
    return results._replace(checkpoint=results.checkpoint._replace(model=model))


@pytest.fixture(scope="module")
def shown(results):
    return examples(results)


# What the script is given


def test_spread_and_effects(results, shown):
    found = decoder.spread(results, shown)
    labels = results.dataset.labels[shown.places]
    own = shown.poses[labels == 4][:, 4]
    np.testing.assert_allclose(found.means[4], own.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.deviations[4], own.std(0), rtol=1e-5)
    drawing = decoder.Drawing.of(results.checkpoint.model)
    effects = decoder.effects(results, shown, drawing, found)
    ends = np.repeat(shown.poses[shown.rows(shown.by_class[4])], 2, axis=0)
    ends[::2, 4, 3] = found.means[4][3] - 3 * found.deviations[4][3]
    ends[1::2, 4, 3] = found.means[4][3] + 3 * found.deviations[4][3]
    images = drawing(ends, 4)
    np.testing.assert_allclose(effects[4, 3], np.abs(images[::2] - images[1::2]).mean(), rtol=1e-4)


def test_the_rule_for_an_undertrained_decoder(results, shown):
    assert decoder.Errors(0.2, 0.1).undertrained
    assert decoder.Errors(0.1, 0.1).undertrained
    assert not decoder.Errors(0.1, 0.2).undertrained

    def perfect(poses, labels):
        return results.dataset.images[shown.places] / 255

    assert not decoder.errors(results, shown, perfect).undertrained
    assert decoder.errors(results, shown, perfect).decoder == 0

    def of_mean_images(poses, labels):
        images = results.dataset.images
        return np.stack([images[results.dataset.labels == k].mean(0) / 255 for k in labels])

    mean = decoder.errors(results, shown, of_mean_images)
    assert mean.decoder == pytest.approx(mean.typical, rel=1e-5)


def test_layers_too_large_or_too_coarse_are_sampled(results, shown, monkeypatch):
    drawing, spread = decoder.Drawing.of(results.checkpoint.model), decoder.spread(results, shown)
    arguments = (drawing, list(shown.by_class), spread, 10)
    assert decoder.layers(*arguments) is not None
    with monkeypatch.context() as patch:
        patch.setattr(decoder, "CLOSE", 0.0)
        assert decoder.layers(*arguments) is None
    monkeypatch.setattr(decoder, "LARGEST", 1000)
    assert decoder.layers(*arguments) is None
    text, data = explorer.explorer(results, shown, explorer.chosen(results, shown))
    assert "pictures were made in advance" in text
    assert data["decoder"] is None
    assert len(data["samples"]["sheets"]) > 10
    assert "no room" not in text
    with monkeypatch.context() as patch:
        patch.setattr(explorer, "SHEETS", 1)
        fewer, _ = explorer.explorer(results, shown, explorer.chosen(results, shown))
    assert f"no room for {len(explorer.chosen(results, shown))} more images." in fewer
    pose, expected = shown.poses[0], shown.poses[0].copy()
    values = spread.means[2][:, None] + explorer.SAMPLES * spread.deviations[2][:, None]
    grid = decoder.moved(drawing, pose, 2, values)
    expected[2, 5] = spread.means[2][5] - 2 * spread.deviations[2][5]
    np.testing.assert_allclose(grid[5, 1], drawing(expected[None], 2)[0], atol=1e-6)


def test_couplings_of_every_iteration(results, shown):
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
    lengths = np.linalg.norm(primary, axis=-1)[..., None]
    weighted = (lengths * last).sum(-2) / lengths.sum(-2)
    np.testing.assert_allclose(found.weighted[2], weighted, atol=1e-5)
    # Two convolutions of 3, the second of stride 2: a position sees 5 pixels, 2 further on.
    assert found.rows == found.columns == couplings.Axis([2.5, 4.5], 5)


def test_networks_without_maps_say_why(results):
    config, images = results.checkpoint.config, results.dataset.images[:1]
    cnn = models.create("lin2018_cnn", (8, 8, 1), 10, width=1 / 32, kernel_size=3, rngs=nnx.Rngs(0))
    cnn.eval()
    assert "routes nothing" in couplings.couplings(cnn, config, images)
    attention = models.create("choi2019_mnist", (8, 8, 1), 10, width=1 / 32, rngs=nnx.Rngs(0))
    attention.eval()
    assert "belong to no position" in couplings.couplings(attention, config, images)


def test_couplings_through_capsules_without_positions():
    model = models.create(
        "lin2018_capsnet", (8, 8, 1), 3, width=1 / 32, kernel_size=3, rngs=nnx.Rngs(0)
    )
    assert couplings._path(model, (8, 8, 1)) == ("classes", "capsules1", "primary")
    images = np.zeros((2, 8, 8, 1), np.uint8)
    means, _, _ = couplings._Maps(("classes", "capsules1", "primary"))(model, images)
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
    with other.unlocked():
        other.seed = 1
    seed = results._replace(checkpoint=checkpoint._replace(config=other))
    changed = other.copy_and_resolve_references()
    with changed.unlocked():
        changed.training.batch_size = 12
    labels = results.dataset.labels
    scores = np.eye(10, dtype=np.float32)[labels]
    perfect = results._replace(
        checkpoint=checkpoint._replace(config=changed),
        scores=scores,
        summary=summaries.summarize(scores, labels),
    )
    names = ["runs/a0", "runs/a1", "runs/<b>"]
    html = Page(comparison.page(names, [results, seed, perfect], {}, ["again"]))
    assert "runs/a0 and 1 more seed" in html.text
    share = 100 * results.summary.accuracy
    assert f"{share:.2f} ± 0.00 %" in html.text
    assert "training.batch_size2412" in html.text.replace("\n", "")
    assert "model.name" not in html.text
    wrong = int((~results.correct).sum())
    assert f"Wrong in runs/a0 and 1 more seed alone: {min(wrong, 24)}" in html.text
    assert "Wrong in runs/<b> alone: 0" in html.text
    assert "0 images are wrong in both." in html.text
    seeds = Page(comparison.page(names[:2], [results, seed], {}, []))
    assert "have one config and differ in their seed" in seeds.text
    assert f"{wrong} images are wrong in both." in seeds.text
    # Two of five are right, and no wrong class has more.
    said = [np.full_like(labels, k) for k in (labels[0], labels[0], 9, 9, 8)]
    five = [seed._replace(scores=np.eye(10, dtype=np.float32)[k]) for k in said]
    assert labels[0] not in (8, 9)
    assert comparison.Group([], five).wrong[0]
    assert comparison.Group([], five).mistaken_for[0] == 9
    elsewhere = perfect._replace(
        dataset=perfect.dataset._replace(images=255 - perfect.dataset.images)
    )
    with pytest.raises(ValueError, match="different images"):
        comparison.page(names[:2], [results, elsewhere], {}, [])
    # Networks of two sizes see the same files of a folder.
    larger = np.repeat(results.dataset.images, 2, axis=1)
    ours, theirs = (
        run._replace(dataset=run.dataset._replace(name="folder:x", images=images))
        for run, images in ((results, results.dataset.images), (perfect, larger))
    )
    assert "Wrong in b alone: 0" in comparison.page(["a", "b"], [ours, theirs], {}, [])
    labels = np.roll(theirs.dataset.labels, 1)
    changed = theirs._replace(dataset=theirs.dataset._replace(labels=labels))
    with pytest.raises(ValueError, match=r"different images \(folder:x, made in two ways\)"):
        comparison.page(["a", "b"], [ours, changed], {}, [])


# In a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def opened(results, shown):
    """The first images of the two classes that the explorer opens on: those that move most."""
    drawing, spread = decoder.Drawing.of(results.checkpoint.model), decoder.spread(results, shown)
    most = decoder.effects(results, shown, drawing, spread).max(1)
    return [shown.by_class[label][0] for label in np.argsort(-most)[:2].tolist()]


@pytest.fixture(scope="module")
def address(results, tmp_path_factory):
    """The page of the tiny run, whose classes have hostile names."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    named = results._replace(dataset=results.dataset._replace(class_names=HOSTILE))
    file.write_text(page(named, versions(), ["<b>"]), encoding="utf-8")
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


def test_sliders_draw_what_the_network_decodes(browser, address, results, shown, opened):
    browser.open(address)
    place = opened[0]
    predicted = int(results.predicted[place])
    pose = shown.poses[shown.rows([place])[0]].copy()
    drawing, spread = decoder.Drawing.of(results.checkpoint.model), decoder.spread(results, shown)
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
        pose[predicted, element] = (
            spread.means[predicted][element] + z * spread.deviations[predicted][element]
        )
        assert_drawn()
    said = browser.run("document.getElementById('element-3').getAttribute('aria-valuetext')")
    assert said.startswith("−1.0 standard deviations from the mean of class ")
    assert np.abs(np.subtract(browser.run(first), before)).max() > 5  # the error is at most 1
    browser.run(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Reset').click()"
    )
    assert browser.run(first) == before
    assert browser.errors == []


def test_the_way_from_one_pose_to_another(browser, address, results, shown, opened):
    browser.open(address)
    drawing = decoder.Drawing.of(results.checkpoint.model)
    ends = []
    for place in opened:
        row, predicted = shown.rows([place])[0], int(results.predicted[place])
        seen = np.zeros((10, 16), np.float32)
        seen[predicted] = shown.poses[row, predicted]
        ends.append(seen)
    film = browser.run(f"[...document.querySelectorAll('.film canvas')].map({PIXELS})")
    assert len(film) == 9
    for i, pixels in enumerate(film):
        between = (1 - i / 8) * ends[0] + i / 8 * ends[1]
        # Given everything, as the masks have been applied.
        expected = 255 * np.asarray(drawing.decoder(jnp.asarray(between[None])))[0, ..., 0]
        assert np.abs(np.reshape(pixels, (8, 8)) - expected).max() <= 1


def test_by_keyboard(browser, address):
    """The first slider by Tab and arrows, as a person without a pointer moves it."""
    browser.open(address)
    browser.run("document.querySelector('.stage button').focus()")
    before = browser.run("document.querySelector('.sliders output').textContent")
    for key, code in (("Tab", 9), ("ArrowRight", 39), ("ArrowRight", 39)):
        for kind in ("rawKeyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )
    assert browser.run("document.activeElement.type") == "range"
    assert browser.run("document.querySelector('.sliders output').textContent") != before


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


def test_without_scripts_it_shows_pictures(browser, address):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(address)
        tree = browser.call("DOM.getDocument", depth=-1)
        text = json.dumps(tree)
        assert "The explorer needs JavaScript" in text
        assert browser.errors == []
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
