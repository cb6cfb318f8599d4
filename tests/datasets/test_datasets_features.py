"""Features of images by a torch network."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from semfs.datasets import extract_features

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, size in (("b/2.png", (40, 30)), ("a/1.jpg", (16, 16)), ("b/1.PNG", (9, 50))):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    (tmp_path / "images" / "notes.txt").write_text("no image")
    return tmp_path / "images"


@pytest.fixture
def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(5, 7, 3)
    )


def test_folder_gives_one_row_per_image_in_sorted_order(folder, network, tmp_path):
    X, paths = extract_features(folder, network, size=16, out=tmp_path / "f.npy")
    assert paths == ["a/1.jpg", "b/1.PNG", "b/2.png"]
    assert X.shape == (3, 7)
    assert X.dtype == np.float32
    assert_array_equal(np.load(tmp_path / "f.npy"), X)
    assert len(np.unique(X.round(6), axis=0)) == 3


def test_batch_size_does_not_change_the_features(folder, network):
    one, _ = extract_features(folder, network, size=16, batch_size=1)
    all_at_once, _ = extract_features(folder, network, size=16, batch_size=9)
    assert_allclose(one, all_at_once, rtol=1e-4, atol=1e-6)


def test_pixels_are_standardised_as_networks_expect(tmp_path):
    Image.new("RGB", (8, 8), (124, 116, 104)).save(tmp_path / "grey.png")
    X, _ = extract_features(tmp_path, torch.nn.Flatten(), size=4)
    assert X.shape == (1, 48)
    assert np.abs(X).max() < 0.02  # the mean of ImageNet becomes zero


def test_own_transform_and_list_of_files(folder, network):
    def transform(image):
        return torch.full((3, 8, 8), float(image.size[0]))

    files = [folder / "b" / "2.png", folder / "a" / "1.jpg"]
    X, paths = extract_features(files, network, transform=transform)
    assert X.shape == (2, 7)
    assert paths == [str(f) for f in files]


def test_broken_and_missing_images_are_named(folder, network, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.png does not exist"):
        extract_features([tmp_path / "missing.png"], network)
    (folder / "a" / "0.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"0\.png is not a readable image"):
        extract_features(folder, network)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no images"):
        extract_features(tmp_path / "empty", network)


def test_missing_package_names_the_extra(folder):
    code = (
        "import sys; from semfs.datasets import extract_features\n"
        "sys.modules['torch'] = None\n"
        f"try:\n    extract_features({str(folder)!r})\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'semfs[images]'" in done.stdout, done.stderr
