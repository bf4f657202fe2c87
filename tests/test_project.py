"""The project as a whole: its files, its dependencies and what its wheel contains."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
COMMANDS = (
    "attention",
    "audit",
    "average",
    "data",
    "evaluate",
    "generate",
    "playground",
    "score",
    "shortlist",
    "tokenizer",
    "train",
    "translate",
)

MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:home|opt|private|root|tmp|Users|var|work)/\w|\b[A-Z]:\\Users\b")
REGISTRY_HOST = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|download\.pytorch\.org|registry\.npmjs\.org|deb\.debian\.org|conda\.anaconda\.org)"
)
INDEX_OPTION = re.compile(r"--(?:extra-)?index-url|--find[-]links|--trusted[-]host")
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.]+)")


def project_files() -> list[Path]:
    """All files that belong to the repository: committed, or about to be."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git repository")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def places(path: Path, *patterns: re.Pattern[str]) -> list[str]:
    """Where one of the patterns occurs in a text file, as "file:line: text"; nothing for a binary file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
    hits = ((number, pattern.search(line)) for number, line in enumerate(lines, 1) for pattern in patterns)
    return [f"{path.name}:{number}: {hit.group()}" for number, hit in hits if hit]


def imported_packages(source: str) -> set[str]:
    """Top-level names that a module imports from outside its own package."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def pins(name: str = "constraints.txt") -> dict[str, str]:
    """The versions of constraints.txt, or of another such file, by normalised name."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    matches = [PIN.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(matches), f"every line of {name} must read name==version"
    return {canonicalize_name(match["name"]): match["version"] for match in matches if match}


def requirements(*names: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for, and what the named extras do, but the project itself."""
    extras = [PROJECT["optional-dependencies"][name] for name in names]
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]
    return (wanted for wanted in map(Requirement, texts) if wanted.name != PROJECT["name"])


def test_every_python_file_is_under_300_lines() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in project_files()
        if path.suffix == ".py"
    }
    assert "tests/test_project.py" in lengths
    assert {name: length for name, length in lengths.items() if length >= 300} == {}


def test_no_file_is_over_one_megabyte() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in project_files()}
    assert {name: size for name, size in sizes.items() if size > 1_000_000} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("data = '" + "/tm" + "p/corpus.txt'", True),
        ("cd " + "/ho" + "me/me/project", True),
        ("pip install --" + "index-url x", True),
        ("see https://" + "py" + "pi.org/project/x", True),
        ("#!/usr/bin/env bash", False),
        ("runs/tmp/model and ~/models/x and http://www.apache.org/licenses/", False),
    ],
)
def test_search_for_machine_paths_and_registries_finds_them(tmp_path: Path, text: str, found: bool) -> None:
    (tmp_path / "file.txt").write_text(f"first line\n{text}\n", encoding="utf-8")
    hits = places(tmp_path / "file.txt", MACHINE_PATH, REGISTRY_HOST, INDEX_OPTION)
    assert [hit.partition(": ")[0] for hit in hits] == (["file.txt:2"] if found else [])


def test_no_file_names_a_machine_path_or_a_registry() -> None:
    patterns = (MACHINE_PATH, REGISTRY_HOST, INDEX_OPTION)
    assert [hit for path in project_files() for hit in places(path, *patterns)] == []


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("constraints.txt", [name for name in PROJECT["optional-dependencies"] if name != "peers"]),
        ("constraints-peers.txt", ["peers"]),
    ],
)
def test_constraints_pin_a_permitted_version_of_every_requirement(file: str, extras: list[str]) -> None:
    versions = pins(file)
    found = {wanted: versions.get(canonicalize_name(wanted.name)) for wanted in requirements(*extras)}
    assert {
        str(wanted): version
        for wanted, version in found.items()
        if version is None or not wanted.specifier.contains(version, prereleases=True)
    } == {}


def test_benchmarks_run_with_the_versions_of_the_project() -> None:
    project, peers = pins(), pins("constraints-peers.txt")
    differing = {name for name in project.keys() & peers.keys() if project[name] != peers[name]}
    assert differing == {"protobuf", "tensorboard"}  # JoeyNMT needs older ones


def test_every_import_of_the_package_is_a_declared_dependency() -> None:
    extras = [text for name in ("playground", "tracking") for text in PROJECT["optional-dependencies"][name]]
    declared = {canonicalize_name(Requirement(text).name) for text in [*PROJECT["dependencies"], *extras]}
    distributions = packages_distributions()
    standard = sys.stdlib_module_names | {"compression"}  # from Python 3.14 on, which alone imports it
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "transformer").rglob("*.py")}
    undeclared = {
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path, source in sources.items()
        for name in imported_packages(source) - {"transformer"} - standard
        if declared.isdisjoint(map(canonicalize_name, distributions.get(name, ())))
    }
    assert undeclared == set()


def test_configurations_load_no_heavy_library() -> None:
    """Wrong settings are reported at once: torch alone takes seconds to load."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "transformer").rglob("*config.py"))
    ]
    assert {"transformer.config", "transformer.data.config", "transformer.data.subwords.config"} < set(modules)
    heavy = ("torch", "lightning", "datasets", "tokenizers", "pyarrow", "pandas", "transformers")
    code = f"import sys, {', '.join(modules)}; print([name for name in {heavy} if name in sys.modules])"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert result.stdout == "[]\n"


def test_package_files_hold_only_a_docstring() -> None:
    for path in (ROOT / "transformer").rglob("__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert len(body) == 1, path
        assert isinstance(body[0], ast.Expr), path


@pytest.mark.parametrize("command", COMMANDS)
def test_command_and_script_call_the_same_main(command: str) -> None:
    assert PROJECT["scripts"][f"transformer-{command}"] == f"transformer.cli.{command}:main"
    module = ast.parse((ROOT / "transformer" / "cli" / f"{command}.py").read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in module.body)
    script = (ROOT / "scripts" / f"{command}.py").read_text(encoding="utf-8")
    assert f"from transformer.cli.{command} import main\n" in script


def test_wheel_contains_the_package_and_its_configurations(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("trueformer-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "transformer").rglob("*.py")}
    yaml_files = (ROOT / "configs").rglob("*.yaml")
    configs = {f"transformer/{path.relative_to(ROOT).as_posix()}" for path in yaml_files}
    assert "transformer/configs/model/transformer_tiny.yaml" in configs
    assert names == package | configs
