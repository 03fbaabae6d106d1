"""Reads the files of a run with the packages of others: FOLDER [PREDICTIONS]."""

import json
import sys
from pathlib import Path

import datasets
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ messages[0].content }}
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role != "system" or not tools %}<|im_start|>{{ message.role }}
{%- if message.reasoning_content %}
<think>
{{ message.reasoning_content }}
</think>
{%- endif %}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}"""


def read_lines(file: Path) -> list:
    return [json.loads(line) for line in file.read_text().splitlines()]


def load(kind: str, file: Path, folder: Path) -> datasets.Dataset:
    found = datasets.load_dataset(
        kind, data_files=str(file), split="train", cache_dir=str(folder / "cache")
    )
    assert isinstance(found, datasets.Dataset)
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    datasets.disable_progress_bars()
    for form in ("", ".openai", ".sharegpt", ".raw"):
        file = folder / f"trajectories{form}.jsonl"
        rows = load("json", file, folder)
        lines = read_lines(file)
        assert set(rows.features) == set(lines[0]), (form, rows.features)
        assert [drop_empty(row) for row in rows] == [drop_empty(line) for line in lines], form
    lines = read_lines(folder / "trajectories.openai.jsonl")
    table = load("parquet", folder / "trajectories.parquet", folder)
    for row, line in zip(table, lines, strict=True):
        assert drop_empty(row["messages"]) == drop_empty(line["messages"])
        assert json.loads(row["tools"]) == line["tools"]
        assert {"id": row["id"], **json.loads(row["metadata"])} == line["metadata"]
    again = folder / "again.parquet"
    table.to_parquet(str(again))
    assert list(load("parquet", again, folder)) == list(table)
    template = ImmutableSandboxedEnvironment().from_string(TEMPLATE)
    texts = [template.render(messages=line["messages"], tools=line["tools"]) for line in lines]
    result = {"rows": len(lines), "texts": texts}
    if len(sys.argv) > 2:
        from swebench.harness.utils import get_predictions_from_file

        result["predictions"] = get_predictions_from_file(sys.argv[2], "none", "test")
    print(json.dumps(result))


def drop_empty(value: object) -> object:
    """Without keys that one schema for all rows fills with nothing."""
    if isinstance(value, dict):
        return {key: drop_empty(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [drop_empty(item) for item in value]
    return value


if __name__ == "__main__":
    main()
