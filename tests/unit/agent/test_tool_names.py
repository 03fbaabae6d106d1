import pytest

from hermes.agent.tool_names import resolve_name

KNOWN = ("terminal", "read_file", "write_file", "search_files", "tool_search", "todo", "process")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("read_file", "read_file"),
        ("Read-File", "read_file"),
        ("READ_FILE", "read_file"),
        ("readFile", "read_file"),
        ("read file", "read_file"),
        ("read.file", "read_file"),
        (" read_file ", "read_file"),
        ("read_file_tool", "read_file"),
        ("ReadFileTool", "read_file"),
        ("tool_read_file", "read_file"),
        ("functions.read_file", "read_file"),
        ("functions.read_file:0", "read_file"),
        ("default_api.write_file", "write_file"),
        ("read_file<|channel|>commentary", "read_file"),
        ("read_fileread_file", "read_file"),
        ("read_fileread_fileread_file", "read_file"),
        ("read_file_read_file", "read_file"),
        ("functions.read_filefunctions.read_file", None),
        ("terminalterminal", "terminal"),
        ("terminal()", "terminal"),
        ("read", "read_file"),
        ("search_file", "search_files"),
        ("tool_search", "tool_search"),
        ("tool_search_tool", "tool_search"),
        ("file", None),
        ("t", None),
        ("to", None),
        ("todolist", None),
        ("tool", "tool_search"),
        ("delete_file", None),
        ("no_such_tool", None),
        ("process_payment", None),
        ("", None),
        ("___", None),
        ("\ud800", None),
        ("a" * 100_000, None),
    ],
)
def test_a_name_resolves_only_to_what_it_can_mean(written: str, meant: str | None) -> None:
    assert resolve_name(written, KNOWN) == meant


@pytest.mark.parametrize("written", ["Read_File", "read", "functions.READ_FILE"])
def test_two_candidates_are_none(written: str) -> None:
    assert resolve_name(written, ("read_file", "read-file", "read_page")) is None


def test_an_exact_name_wins_over_its_look_alikes() -> None:
    assert resolve_name("read-file", ("read_file", "read-file")) == "read-file"


def test_nothing_known() -> None:
    assert resolve_name("read_file", ()) is None
