import re

import data
import numpy as np
import pytest
from PIL import Image

from capsjax.data import tasks

SMALL = ["--option=canvas=14", "--option=max_shift=3"]


def run(*arguments):
    data.main(data.parser().parse_args([str(a) for a in arguments]))


@pytest.mark.parametrize("name", ["affnist_generated", "diverse_multimnist"])
def test_export_holds_what_others_need(npz, tmp_path, capsys, name):
    file = tmp_path / "new" / "images.npz"
    run(name, f"--option=source=npz:{npz}", *SMALL, f"--export={file}", "--count=40")
    printed = capsys.readouterr().out
    assert f"{name}: images of 14×14×1" in printed
    assert "40 of " in printed
    written = np.load(file, allow_pickle=False)
    assert written["images"].shape == (40, 14, 14, 1)
    assert written["images"].dtype == np.uint8
    assert written["class_names"].tolist() == [str(n) for n in range(10)]
    task = tasks.create(name, source=f"npz:{npz}", canvas=14, max_shift=3)
    if name == "affnist_generated":
        test = task.evaluation_set("test")
        # Spread over the sources: 32 versions of each of 50.
        assert len(np.unique(written["source"])) == 40
        np.testing.assert_array_equal(written["labels"], test.source.labels[written["source"]])
        assert np.abs(written["affine_rotation"]).max() <= 20
        assert written["affine_scale"].shape == written["affine_translation"].shape == (40, 2)
    else:
        assert written["sources"].shape == written["present"].shape == (40, 2)
        np.testing.assert_array_equal(written["labels"].sum(1), written["present"].sum(1))


@pytest.mark.parametrize("chosen", ["train", "validation", "test", "shift_grid"])
def test_sheets(npz, tmp_path, chosen):
    file = tmp_path / "sheet.png"
    run("multimnist", f"--option=source=npz:{npz}", *SMALL, f"--set={chosen}", f"--out={file}")
    picture = np.asarray(Image.open(file))
    # Images of 14×14, enlarged six times, with a caption each.
    rows = {"validation": 2, "test": 5}.get(chosen, 6)
    assert picture.shape == (rows * (84 + 16) + 4, 884, 3)
    assert set(np.unique(picture)) > {0, 255}


def test_what_is_in_a_folder(tmp_path, capsys):
    for name, side in (("ant", 6), ("bee", 9)):
        (tmp_path / name).mkdir()
        for k in range(3):
            Image.new("L", (side, 6)).save(tmp_path / name / f"{k}.png")
    (tmp_path / "ant/0.png").write_text("no image")
    (tmp_path / "bee/notes.txt").write_text("no image")
    run(f"folder:{tmp_path}", f"--out={tmp_path / 'sheet.png'}", "--set=train")
    text = capsys.readouterr().out
    assert re.search(r"ant +│ +[12] +│ +[01] │", text)
    assert "Height 6, width 6 to 9, channels 1." in text
    assert "--config.data.size=32" in text
    assert "Cannot be read, skipped: 1 file\n" in text
    assert f"{tmp_path}/ant/0.png: not an image" in text
    assert f"Not images, ignored: 1 file\n  {tmp_path}/bee/notes.txt" in text
    assert Image.open(tmp_path / "sheet.png").width > 800
