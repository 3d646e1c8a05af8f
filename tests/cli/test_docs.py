"""What the documents say is true: the example runs, generated blocks are fresh, links lead somewhere."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/cli.md",
    "docs/architecture.md",
    "docs/train.md",
    "docs/lab.md",
    "docs/measured.md",
]
DOCUMENTS += ["docs/findings.md", "docs/engines.md", "docs/capture.md", "docs/conformance.md"]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["README.md", "docs/cli.md", "docs/lab.md", "docs/measured.md", "docs/scale.md", "docs/serve.md"]
)
def test_generated_blocks_are_fresh(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert script("render_readme").render(text) == text, "stale: run make docs"


@pytest.mark.parametrize("name", ["docs/findings.md", "docs/engines.md"])
def test_documents_of_the_rules_are_fresh(name):
    render = script("render_findings").DOCUMENTS[name]
    assert (ROOT / name).read_text(encoding="utf-8") == render(), "stale: run make docs"


def test_the_drawing_is_fresh():
    drawn = (ROOT / "docs/pipeline.svg").read_text(encoding="utf-8")
    assert script("draw_pipeline").drawing() == drawn, "stale: run make docs"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    path = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_files_named_in_the_architecture_exist():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"`(\w+/[\w/]*(?:\.py)?)`", text):
        assert (ROOT / name).exists() or (ROOT / "src/draftproof" / name).exists(), name


def test_numbers_come_from_results(tmp_path, shell):
    render = script("render_readme")
    (tmp_path / "results").mkdir()
    assert "No measurement" in render.block("numbers", tmp_path)
    assert shell("demo", "--json", "-q") == 0
    (tmp_path / "results" / "demo.json").write_text(shell.out)
    (tmp_path / "results" / "other.json").write_text('{"schema_version": "something/else"}')
    shown = render.block("numbers", tmp_path)
    tau = json.loads(shell.out)["ways"]["chain"]["acceptance"]["tau"]
    assert "| DFlash chain | " in shown and f"{tau:.2f} (" in shown and "random weights" in shown


def test_the_readme_example_runs(tmp_path, capsys):
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    [code] = [e for e in examples if "from draftproof" in e]  # the client's example is run beside the server's tests
    assert len([line for line in code.splitlines() if line]) <= 10
    exec(code.replace("bundled:smollm2", str(tiny_target(tmp_path))), {})
    assert "drafted tokens stood in" in capsys.readouterr().out


def tiny_target(folder: Path) -> Path:
    """A random Llama of some thousand parameters whose tokens are bytes, with a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary["<end>"] = len(vocabulary)
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", pad_token="<end>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=vocabulary["<end>"],
        bos_token_id=None,
        pad_token_id=vocabulary["<end>"],
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
