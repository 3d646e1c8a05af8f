"""A repository of the Hugging Face hub: its config and the headers of its weights, from the cache or the network."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from draftproof.drafters.formats.safetensors_header import read_folder
from draftproof.errors import DraftproofError, UnavailableError
from draftproof.proof.files.json_file import printable

_ID = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$")


@dataclass(frozen=True)
class Snapshot:
    """What is known of a repository without its weights; ``folder``: the cached snapshot."""

    name: str
    revision: str | None
    config: Path
    files: tuple[str, ...] | None = None
    tensors: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.config.parent


def looks_like_id(name: str) -> bool:
    return bool(_ID.match(name)) and ".." not in name


def snapshot(
    name: str, revision: str | None = None, extra: tuple[str, ...] = (), *, cached_only: bool = False
) -> Snapshot:
    """Config (and ``extra`` files) of a repository; headers of weights that are cached or can be asked for.

    Raises UnavailableError where neither cache nor hub has it; ``cached_only``: the hub is not asked.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils.logging import set_verbosity_error

    set_verbosity_error()

    def fetch(file: str) -> Path:
        if cached_only:
            raise UnavailableError("the hub was not asked")
        _must_resolve()
        return Path(hf_hub_download(name, file, revision=revision))

    config = _or_cached(name, revision, "config.json", fetch)
    for file in extra:
        try:
            _or_cached(name, revision, file, fetch)
        except DraftproofError:
            continue  # not every repository has every file
    commit = config.parent.name if config.parent.parent.name == "snapshots" else revision
    files, tensors, notes = _listing(name, commit, config.parent)
    return Snapshot(name, commit, config, files, tensors, notes)


def _must_resolve() -> None:
    """Without a network the hub's client retries for half a minute; a name that does not resolve is told at once."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise UnavailableError("HF_HUB_OFFLINE is set")
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return  # the proxy resolves
    host = urlsplit(constants.ENDPOINT).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        raise UnavailableError(f"{host} does not resolve: is there a network?") from None


def _or_cached(name: str, revision: str | None, file: str, fetch: Callable[[str], Path]) -> Path:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, file, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    try:
        return fetch(file)
    except Exception as error:  # the hub's errors share no base class
        short = " ".join(str(error).split())[:160]
        raise UnavailableError(f"{printable(name)}: {file} is neither cached nor to be had ({short})") from None


def _listing(
    name: str, revision: str | None, folder: Path
) -> tuple[tuple[str, ...] | None, dict[str, Any] | None, tuple[str, ...]]:
    """Files and tensors: from the cached weights, else from the hub's own reading of the headers."""
    if any(folder.glob("*.safetensors")):
        found = read_folder(folder)
        tensors = {key: {"shape": list(info.shape), "dtype": info.dtype} for key, info in found.items()}
        return tuple(sorted(p.name for p in folder.iterdir())), tensors, ()
    try:
        from huggingface_hub import HfApi

        _must_resolve()
        api = HfApi()
        files = tuple(sorted(api.list_repo_files(name, revision=revision)))
        metadata = api.get_safetensors_metadata(name, revision=revision)
    except Exception as error:
        short = " ".join(str(error).split())[:120]
        return None, None, (f"{name}: file list and tensor headers could not be had ({short})",)
    tensors = {
        key: {"shape": list(info.shape), "dtype": info.dtype}
        for file in metadata.files_metadata.values()
        for key, info in file.tensors.items()
    }
    return files, tensors, ()
