"""Features of images by any torch network: a folder of images in, a matrix out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["extract_features"]

_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as networks expect


def extract_features(
    images: Any,
    backbone: Any = "resnet18",
    *,
    size: int = 224,
    batch_size: int = 32,
    weights: Any = "DEFAULT",
    transform: Callable | None = None,
    device: str = "cpu",
    out: Any = None,
) -> tuple[np.ndarray, list[str]]:
    """Return features of images, one row per image, and the images' paths.

    Parameters
    ----------
    images : path-like, or sequence of path-like
        A folder, gone through with all its subfolders in sorted order, or image files.
    backbone : torch.nn.Module or str, default="resnet18"
        A network that takes (n, 3, size, size) and returns one row (or one map, which is
        averaged over positions) per image; or the name of a torchvision model, or
        ``"timm:NAME"``, whose classification layer is taken off.
    size : int, default=224
        Images are scaled to a short side of this many pixels and cut to a square.
    batch_size : int, default=32
        Images per step.
    weights : str or None, default="DEFAULT"
        Weights of a named model (torchvision's name of them; anything but None for timm).
        None leaves it random. Named weights are downloaded by those packages.
    transform : callable, optional
        Takes a PIL image and returns a (3, h, w) tensor, instead of scaling and cutting.
    device : str, default="cpu"
        Where to compute.
    out : path-like, optional
        Also save the features there as ``.npy``.

    Returns
    -------
    X : ndarray of shape (n, d), float32
    paths : list of str
        Relative to the folder, with ``/``; the first part is the class in a folder of
        class folders.
    """
    torch = _import("torch")
    paths, root = _image_paths(images)
    model = _named_model(backbone, weights) if isinstance(backbone, str) else backbone
    model = model.to(device).eval()
    prepare = transform or (lambda image: _prepared(torch, image, size))
    rows = []
    with torch.inference_mode():
        for batch in _batches(paths, batch_size):
            stack = torch.stack([prepare(_open_image(path)) for path in batch]).to(device)
            rows.append(_as_rows(model(stack)))
    X = np.concatenate(rows).astype(np.float32)
    if out is not None:
        beside = Path(out).with_name(f".{Path(out).name}.part.npy")
        np.save(beside, X)
        beside.replace(out)
    return X, [path.relative_to(root).as_posix() if root else str(path) for path in paths]


def _import(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"extract_features needs {package}. Install it with: pip install 'semfs[images]'"
        ) from error


def _image_paths(images: Any) -> tuple[list[Path], Path | None]:
    if isinstance(images, (str, Path)) and Path(images).is_dir():
        root = Path(images)
        found = [p for p in root.rglob("*") if p.suffix.lower() in _IMAGES and p.is_file()]
        paths, base = sorted(found, key=lambda p: p.relative_to(root).as_posix()), root
    else:
        several = isinstance(images, Sequence) and not isinstance(images, str)
        paths, base = [Path(p) for p in (images if several else [images])], None
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} does not exist.")
    if not paths:
        raise FileNotFoundError(f"{images} holds no images ({', '.join(sorted(_IMAGES))}).")
    return paths, base


def _open_image(path: Path) -> Any:
    image = _import("PIL.Image")
    try:
        return image.open(path).convert("RGB")
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is not a readable image ({reason}).") from error


def _prepared(torch: Any, image: Any, size: int) -> Any:
    """Scale the short side, cut the middle, and standardise as ImageNet networks expect."""
    width, height = image.size
    scale = size / min(width, height)
    image = image.resize((max(size, round(width * scale)), max(size, round(height * scale))))
    left, top = (image.width - size) // 2, (image.height - size) // 2
    pixels = np.asarray(image.crop((left, top, left + size, top + size))) / 255.0
    pixels = ((pixels - _MEAN) / _STD).astype(np.float32)
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def _batches(paths: list[Path], size: int) -> Iterator[list[Path]]:
    for start in range(0, len(paths), size):
        yield paths[start : start + size]


def _as_rows(output: Any) -> np.ndarray:
    output = output[0] if isinstance(output, (tuple, list)) else output
    values = output.float().cpu().numpy()
    return values.reshape(*values.shape[:2], -1).mean(axis=2) if values.ndim > 2 else values


def _named_model(name: str, weights: Any) -> Any:
    if name.startswith("timm:"):
        timm = _import("timm")
        return timm.create_model(name[5:], pretrained=weights is not None, num_classes=0)
    torch, models = _import("torch"), _import("torchvision.models")
    try:
        model = models.get_model(name, weights=weights)
    except ValueError as error:
        raise ValueError(f"torchvision has no model {name!r}. {error}") from error
    for layer in ("fc", "classifier", "head", "heads"):  # where torchvision keeps it
        if hasattr(model, layer):
            setattr(model, layer, torch.nn.Flatten())
    return model
