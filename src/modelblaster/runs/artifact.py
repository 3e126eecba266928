"""The artifact: a folder that holds an optimized program and everything needed to trust and rebuild it.

`artifact.json` names the problem, the plan's files and a SHA-256 of every other file; `plan.json` is the candidate,
`sources/` its kernels for people to read, `objects/<device>/` what was built, `evidence.json` verdict and timing,
`constants.bin` the tensors that the program holds outside its state. Nothing is unpickled. Hashes show that a folder
is whole and unchanged since it was written; they do not say who wrote it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelblaster.errors import ArtifactError, StorageError
from modelblaster.records.candidate import Candidate
from modelblaster.records.codec import RecordError, from_json, to_data, to_json
from modelblaster.records.evidence import Evidence
from modelblaster.records.manifest import Border, Manifest

if TYPE_CHECKING:
    from modelblaster.records.task import Task

SCHEMA = "modelblaster.artifact/1"


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact that was read and found whole."""

    path: Path
    manifest: Manifest
    candidate: Candidate
    evidence: Evidence
    constants: bytes


def write(
    path: Path,
    *,
    task: Task,
    border: Border,
    candidate: Candidate,
    evidence: Evidence,
    constants: bytes,
    device: str,
    isolation: str,
    objects: tuple[Path, ...],
) -> None:
    """Write an artifact in one step: an older one at `path` is replaced only by a complete new one.

    Raises:
        StorageError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".artifact-") as draft:
            folder = Path(draft) / "new"
            _fill(folder, candidate, evidence, constants, device, objects)
            files = tuple((name, _sha256(folder / name)) for name in _names(folder))
            manifest = Manifest(SCHEMA, task, border, device, isolation, files)
            (folder / "artifact.json").write_text(to_json(manifest, indent=1))
            if task.problem.text:
                # For people; what counts is the text in the manifest.
                (folder / "problem.py").write_text(task.problem.text)
            if path.exists():
                os.rename(path, Path(draft) / "old")
            os.rename(folder, path)
    except OSError as error:
        raise StorageError(f"cannot write the artifact {path}: {error.strerror}") from error


def _fill(
    folder: Path, candidate: Candidate, evidence: Evidence, constants: bytes, device: str, objects: tuple[Path, ...]
) -> None:
    (folder / "sources").mkdir(parents=True)
    target = folder / "objects" / device_folder(device)
    target.mkdir(parents=True)
    for source in candidate.sources:
        (folder / "sources" / source.name).write_text(source.text)
    for number, built in enumerate(objects):
        shutil.copyfile(built, target / f"{number}.so")
    (folder / "plan.json").write_text(to_json(candidate))
    (folder / "evidence.json").write_text(json.dumps(to_data(evidence), indent=1))
    (folder / "constants.bin").write_bytes(constants)


def read(path: Path) -> Artifact:
    """Read an artifact and check that it is whole.

    Raises:
        ArtifactError: there is none, it is damaged or changed, or of a newer form.
    """
    manifest = _manifest(path)
    found = {name for name in _names(path) if name not in ("artifact.json", "problem.py")}
    expected = dict(manifest.files)
    if found != set(expected):
        raise ArtifactError(
            f"{path}: {', '.join(sorted(found ^ set(expected)))}: missing or added since it was written"
        )
    for name, sha256 in expected.items():
        if _sha256(path / name) != sha256:
            raise ArtifactError(f"{path}: {name} was changed since it was written; make the artifact again")
    try:
        candidate = from_json(Candidate, (path / "plan.json").read_text())
        evidence = from_json(Evidence, (path / "evidence.json").read_text())
    except RecordError as error:
        raise ArtifactError(f"{path}: {error}") from error
    return Artifact(path, manifest, candidate, evidence, (path / "constants.bin").read_bytes())


def objects_for(artifact: Artifact, device: str) -> tuple[Path, ...] | None:
    """The objects that were built for this very device, in the order of the sources, or None."""
    folder = artifact.path / "objects" / device_folder(device)
    if artifact.manifest.device != device or not folder.is_dir():
        return None
    return tuple(folder / f"{number}.so" for number in range(len(artifact.candidate.sources)))


def device_folder(device: str) -> str:
    """A folder name for a device's fingerprint."""
    return hashlib.sha256(device.encode()).hexdigest()[:16]


def _manifest(path: Path) -> Manifest:
    file = path / "artifact.json"
    try:
        text = file.read_text()
        schema = json.loads(text).get("schema")
    except (OSError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path} is no artifact: no readable artifact.json in it") from error
    if schema != SCHEMA:
        raise ArtifactError(f"{path} has the form {schema!r}, this version reads {SCHEMA!r}")
    try:
        return from_json(Manifest, text)
    except RecordError as error:
        raise ArtifactError(f"{path}: {error}") from error


def _names(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def _sha256(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise ArtifactError(f"{file}: {error.strerror}") from error
